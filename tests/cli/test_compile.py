"""`tfgraph compile`: what it prints, its JSON, and that failures leave nothing behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.api.bounds import RELATIVE

if TYPE_CHECKING:
    from collections.abc import Callable

# A backend whose `build` ends as its target's name says.
BROKEN = """
from tfgraph.backends import CompilingBackend, register_backend

class Broken(CompilingBackend):
    def __init__(self, error):
        self.error = error
    def build(self, graph, weights, target):
        raise self.error
    def compile(self, graph, weights, target):
        raise self.error

register_backend("interrupted", lambda: Broken(KeyboardInterrupt()))
register_backend("internal", lambda: Broken(ZeroDivisionError("by zero")))
register_backend("full", lambda: Broken(OSError(28, "No space left on device", "weights")))
"""
ADD_NORM = """\
graph near(%x: f32[batch,8], %y: f32[8], %s: f32[8], %b: f32[8]) {
  %sum = add(%x, %y) : f32[batch,8]
  %norm = layer_norm(%sum, %s, %b) : f32[batch,8]
  return %norm
}
"""


def test_what_it_prints(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("compile", "tiny.tfg", "--passes", "cse,dce")
    assert result.code == 0
    text = re.sub(r"\d\.\d\de-\d\d", "ERROR", result.out)
    text = re.sub(r"sha256 [0-9a-f]{64}", "sha256 HASH", text)
    text = re.sub(r"cpu [\w-]+ \(", "cpu NAME (", text)
    text = re.sub(r"[\d.]+ (Ki)?B", "SIZE", text)
    assert text == (
        "tiny.tfg: tiny, 2 nodes, 32 parameters, seeded\n"
        "  input   x  float32[n,8]  normal(1)\n"
        "  output  z  float32[n,4]\n"
        "  size    n  1 to 300      example 3\n"
        "target  cpu NAME (this machine)\n"
        "passes  2 -> 2 nodes\n"
        "  cse  0\n"
        "  dce  0\n"
        "memory  weights SIZE, activations SIZE at n=3\n"
        "verify  ok against numpy at 4 sizes\n"
        "  n=1\n"
        "  n=3\n"
        "  n=67\n"
        "  n=300\n"
        "  output  max error     bound\n"
        "  z        ERROR  ERROR  ok\n"
        "wrote   tiny.cpu.tfgraph, 7 files, SIZE\n"
        "        sha256 HASH\n"
    )
    assert result.err == ""


def test_json_is_one_object(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    found = tfgraph("compile", "tiny.tfg", "-o", tmp_path / "art", "--json").json
    assert list(found) == ["artifact", "target", "arch", "symbols", "passes", "verify", "sha256"]
    assert Path(found["artifact"]) == tmp_path / "art"
    assert (found["target"], found["arch"]) == ("cpu", None)
    assert found["symbols"] == {"n": {"min": 1, "max": 300, "example": 3}}
    assert all({"name", "applied", "declined"} == set(p) for p in found["passes"])
    verify = found["verify"]
    assert (verify["against"], verify["ok"], verify["reason"]) == ("numpy", True, None)
    assert {"n": 1} in verify["dims"]
    assert {"n": 3} in verify["dims"]
    (output,) = verify["outputs"]
    assert output["name"] == "z"
    assert 0 <= output["max_abs"] <= output["bound"]


def test_what_did_not_run_says_so(tfgraph: Callable[..., Any]) -> None:
    found = tfgraph("compile", "tiny.tfg", "--no-verify", "--json").json
    assert found["verify"]["ok"] is None
    assert found["verify"]["reason"] == "not run: --no-verify"
    assert "verify  not run: --no-verify\n" in tfgraph("compile", "tiny.tfg", "--no-verify").out


def test_quiet_prints_the_place_alone(tfgraph: Callable[..., Any]) -> None:
    assert tfgraph("compile", "tiny.tfg", "-q", "--no-verify").out == "tiny.cpu.tfgraph\n"


def test_near_misses_are_told_with_place_and_reason(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "near.tfg").write_text(ADD_NORM)
    result = tfgraph("compile", "near.tfg", "--passes", "fuse-add-norm", "--no-verify")
    assert "passes  2 -> 2 nodes\n  fuse-add-norm  0\nnot fused\n" in result.out
    assert "  fuse-add-layer-norm: the add broadcasts f32[batch,8] with f32[8]\n" in result.out
    assert "    at  %norm = layer_norm  near.tfg:3:11\n" in result.out


def test_print_after_shows_a_diff(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "near.tfg").write_text(ADD_NORM.replace("%y: f32[8]", "%y: f32[batch,8]"))
    options = ("near.tfg", "--passes", "fuse-add-norm,dce", "--no-verify", "--print-after")
    result = tfgraph("compile", *options, "all")
    assert "--- before fuse-add-norm\n+++ after fuse-add-norm\n" in result.out
    assert "\n-  %sum = add(%x, %y) : f32[batch,8]\n" in result.out
    assert "\n+  %norm = add_layer_norm(" in result.out
    assert "\ndce changes nothing\n" in result.out
    # With --json stdout holds the object alone.
    result = tfgraph("compile", *options, "fuse-add-norm", "--json")
    assert result.json["target"] == "cpu"
    assert "+++ after fuse-add-norm" in result.err


@pytest.mark.parametrize(
    ("target", "code", "error"),
    [
        ("interrupted", 130, "interrupted\n"),
        ("full", 2, "error: weights: No space left on device\n"),
        (
            "internal",
            70,
            "internal error: ZeroDivisionError: by zero (tfgraph VERSION; please report it; "
            "-v shows where)\n",
        ),
    ],
)
def test_what_fails_leaves_nothing_behind(
    tfgraph: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    code: int,
    error: str,
) -> None:
    from tfgraph.runtime.version import VERSION

    monkeypatch.setattr("tfgraph.backends.base._REGISTERED", {})
    (tmp_path / "broken.py").write_text(BROKEN)
    result = tfgraph("compile", "tiny.tfg", "--plugin", "broken.py", "--target", target)
    assert (result.code, result.err) == (code, error.replace("VERSION", VERSION))
    left = {p.name for p in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"broken.py", "tiny.tfg"}


def test_verbose_shows_where_an_internal_error_is(
    tfgraph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgraph.backends.base._REGISTERED", {})
    (tmp_path / "broken.py").write_text(BROKEN)
    line = ("compile", "tiny.tfg", "--plugin", "broken.py", "--target", "internal")
    assert "broken.py" in tfgraph(*line, "-v").err
    found = tfgraph(*line, "--json")
    assert (found.code, found.json["error"]["code"]) == (70, "internal")


def test_cuda_names_the_architecture_and_its_origin(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("compile", "tiny.tfg", "--target", "cuda", "--arch", "sm_90", "-o", "a")
    assert result.code == 0
    assert "target  cuda sm_90 (--arch)\n" in result.out
    found = tfgraph("compile", "tiny.tfg", "--target", "cuda", "--arch", "sm_80", "--json").json
    assert (found["target"], found["arch"]) == ("cuda", "sm_80")
    assert (found["verify"]["ok"] is None) == bool(found["verify"]["reason"])
    assert list(Path().glob("tiny.cuda.tfgraph/kernels/*.cu"))


def test_an_artifact_is_not_a_model(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "old.tfgraph").mkdir()
    assert tfgraph("compile", "old.tfgraph").err == (
        "error: old.tfgraph is an artifact, expected a model\n"
        "hint: name what it was compiled from\n"
    )


def test_a_failed_verification(
    tfgraph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RELATIVE, "float32", 1e-12)
    result = tfgraph("compile", "tiny.tfg")
    assert result.code == 1
    assert result.err.startswith("error: verification failed: output 'z' differs from numpy by ")
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.tfg"]
    result = tfgraph("compile", "tiny.tfg", "--json")
    assert (result.code, result.json["artifact"], result.json["verify"]["ok"]) == (1, None, False)
    assert "verification failed" in result.err
    result = tfgraph("compile", "tiny.tfg", "--keep-failed")
    assert result.code == 1
    assert "kept as tiny.cpu.failed.tfgraph" in result.err
    assert {p.name for p in tmp_path.iterdir()} == {"tiny.tfg", "tiny.cpu.failed.tfgraph"}
