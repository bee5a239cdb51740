"""`tfgraph compile`: what it prints, its JSON, and that failures leave nothing behind."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
register_backend("mistaken", lambda: Broken(ZeroDivisionError("by zero")))
register_backend("full", lambda: Broken(OSError(28, "No space left on device", "weights")))
"""
PLUGIN = """
from tfgraph.ops import Array, op
from tfgraph.ops.infer import like_first

@op(infer=like_first, kind="composite")
def same_in_tests_of_compile(x: Array, /) -> Array:
    return x
"""
WRONG = """
from tfgraph.ops import tanh
from tfgraph.passes import RulePass, add_rule, call, rule, var

@rule(call("softmax", var("x")))
def mistaken(x):
    return tanh(x)

add_rule("simplify", mistaken)
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
        "  lower  2  nodes by kernel: linear 1, softmax 1\n"
        "  no change: cse, dce\n"
        "memory  weights SIZE packed, activations SIZE at n=3\n"
        "prove   ok, proved for all sizes\n"
        "verify  ok against numpy at 4 sizes\n"
        "  n=1\n"
        "  n=3\n"
        "  n=67\n"
        "  n=300\n"
        "  output  observed     bound\n"
        "  z       ERROR  ERROR  ok\n"
        "wrote   tiny.cpu.tfgraph, 12 files, SIZE\n"
        "        sha256 HASH\n"
    )
    assert result.err == ""


def test_json_is_one_object(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    found = tfgraph("compile", "tiny.tfg", "-o", tmp_path / "art", "--json").json
    keys = ["artifact", "target", "arch", "symbols", "passes", "taps", "proof", "verify", "sha256"]
    assert list(found) == keys
    assert list(found) == keys
    assert Path(found["artifact"]) == tmp_path / "art"
    assert (found["target"], found["arch"]) == ("cpu", None)
    assert found["symbols"] == {"n": {"min": 1, "max": 300, "example": 3}}
    assert all({"name", "applied", "declined", "proof"} == set(p) for p in found["passes"])
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
    assert "passes  2 -> 2 nodes\n  lower          2  nodes by kernel: add 1" in result.out
    assert "layer_norm 1\n  no change: fuse-add-norm\nnot fused\n" in result.out
    assert "  fuse-add-layer-norm: the add broadcasts f32[batch,8] with f32[8]\n" in result.out
    assert "    at  %norm = layer_norm  near.tfg:3:11\n" in result.out


def test_what_runs_as_its_parts_is_told_too(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    """Attention wider than the kernels take is matmul, softmax, matmul: visible, as it is slow."""
    (tmp_path / "wide.tfg").write_text(
        "graph wide(%x: f32[batch,seq,512]) {\n"
        "  %y = attention(%x, %x, %x) {heads=1, kv_heads=1, scale=1} : f32[batch,seq,512]\n"
        "  return %y\n}\n"
    )
    options = ("wide.tfg", "--target", "cuda", "--arch", "sm_80", "--passes", "cse")
    result = tfgraph("compile", *options)
    assert (
        "not fused\n"
        "  attention: heads of 512 are wider than the kernel's 256: runs as its parts\n"
        "    at  %y = attention  wide.tfg:2:8\n"
    ) in result.out
    lower = tfgraph("compile", *options, "--json").json["passes"][-1]
    assert lower["name"] == "lower"
    assert lower["applied"]["softmax"] == 1
    written = json.loads((tmp_path / "wide.cuda.tfgraph" / "passes.json").read_text())
    assert written[-1]["declined"][0]["rule"] == "attention"


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
            "mistaken",
            2,
            "broken.py:8: error: ZeroDivisionError: by zero\n            raise self.error\n"
            "hint: -v shows the traceback\n",
        ),
    ],
)
def test_what_fails_leaves_nothing_behind(
    tfgraph: Callable[..., Any],
    tmp_path: Path,
    target: str,
    code: int,
    error: str,
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    result = tfgraph("compile", "tiny.tfg", "--plugin", "broken.py", "--target", target)
    assert (result.code, result.err) == (code, error)
    left = {p.name for p in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"broken.py", "tiny.tfg"}


def test_a_mistake_of_ours_asks_for_a_report(
    tfgraph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfgraph.runtime.version import VERSION

    # The package gives the module's name to its function.
    monkeypatch.setattr(sys.modules["tfgraph.api.compile"], "write_artifact", None)
    result = tfgraph("compile", "tiny.tfg")
    assert (result.code, result.err) == (
        70,
        "internal error: TypeError: 'NoneType' object is not callable "
        f"(tfgraph {VERSION}; please report it; -v shows where)\n",
    )
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.tfg"]
    assert 'api/compile.py", line' in tfgraph("compile", "tiny.tfg", "-v").err
    found = tfgraph("compile", "tiny.tfg", "--json")
    assert (found.code, found.json["error"]["code"]) == (70, "internal")


def test_cuda_names_the_architecture_and_its_origin(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("compile", "tiny.tfg", "--target", "cuda", "--arch", "sm_90", "-o", "a")
    assert result.code == 0
    assert "target  cuda sm_90 (--arch)\n" in result.out
    found = tfgraph("compile", "tiny.tfg", "--target", "cuda", "--arch", "sm_80", "--json").json
    assert (found["target"], found["arch"]) == ("cuda", "sm_80")
    assert found["verify"]["ok"] is None
    assert found["verify"]["reason"].startswith("not run: ")
    assert found["verify"]["instead"] == "the graph after the passes, on numpy, at 4 sizes"
    assert f"        checked instead: {found['verify']['instead']}  ok\n" in result.out
    assert list(Path().glob("tiny.cuda.tfgraph/kernels/*.cu"))
    result = tfgraph("compile", "tiny.tfg", "--target", "cuda", "--arch", "sm_90,sm_80")
    assert "target  cuda sm_80,sm_90 (--arch)\n" in result.out
    assert re.search(
        r"(?m)^cubins  (none|sm_80, sm_90, and PTX of sm_90 for later GPUs, by)", result.out
    )


@pytest.mark.parametrize("target", ["opencl", "metal", "webgpu"])
def test_a_language_is_written_and_not_run(tfgraph: Callable[..., Any], target: str) -> None:
    result = tfgraph("compile", "tiny.tfg", "--target", target)
    assert result.code == 0
    assert re.search(
        r"^verify +not run: this version writes \S.* and does not run it$", result.out, re.M
    )
    assert "checked instead: the graph after the passes, on numpy, at 4 sizes  ok\n" in result.out
    artifact = f"tiny.{target}.tfgraph"
    assert sorted(p.name for p in (Path(artifact) / "kernels").iterdir())[1] == "launch.json"
    for line in (f"run {artifact}", f"run tiny.tfg --target {target}"):
        result = tfgraph(*line.split())
        assert result.code == 3
        assert "\nhint: compile " in result.err


def test_a_wrong_pass_fails_also_where_nothing_can_run(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    options = ("--target", "cuda", "--plugin", "wrong.py")
    result = tfgraph("compile", "tiny.tfg", *options)
    assert result.code == 1
    assert "rule mistaken changes what it replaces" in result.err
    result = tfgraph("compile", "tiny.tfg", *options, "--no-prove")
    assert result.code == 1
    assert result.err.startswith("error: verification failed: output 'z' differs from numpy by ")
    assert {p.name for p in tmp_path.iterdir()} - {"__pycache__"} == {"tiny.tfg", "wrong.py"}


def test_an_artifact_is_not_a_model(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "old.tfgraph").mkdir()
    assert tfgraph("compile", "old.tfgraph").err == (
        "error: old.tfgraph is an artifact, expected a model\n"
        "hint: name what it was compiled from\n"
    )


def test_a_failed_verification(
    tfgraph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgraph.rounding.statistical.factor", lambda draws: 1e-9)
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


def test_a_failed_verification_says_at_which_size_and_how_to_see_it_again(
    tfgraph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgraph.rounding.statistical.factor", lambda draws: 1e-9)
    (tmp_path / "two words.py").write_text(PLUGIN)
    options = ("--passes", "cse,dce", "--plugin", "two words.py")
    result = tfgraph("compile", "tiny.tfg", *options)
    size = re.search(r" at \[\d+, \d\] of n=(\d+), bound ", result.err)
    assert size is not None, result.err
    line = shlex.split(result.err.partition("differs: ")[2])
    assert line[:5] == ["tfgraph", "compare", "tiny.tfg", "--backends", "numpy,cpu"]
    assert line[5:7] == ["--dim", f"n={size[1]}"]
    assert line[-4:] == list(options)
    again = tfgraph(*line[1:], "--json")
    assert not again.json["outputs"][0]["ok"]  # float64 says that nobody is to blame for that bound
    found = tfgraph("compile", "tiny.tfg", *options, "--json").json["verify"]["outputs"]
    assert found[0]["dims"] == {"n": int(size[1])}
    assert again.json["outputs"][0]["max_abs"] == found[0]["max_abs"]


def test_the_artifact_says_how_it_was_verified(
    tfgraph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tfgraph("compile", "tiny.tfg", "-o", "good", "--json").json
    manifest = json.loads(Path("good/manifest.json").read_text())
    assert manifest["sha256"] == made["sha256"]
    assert manifest["verification"] == {
        "against": "numpy", "ok": True, "reason": None, "dims": made["verify"]["dims"]
    }  # fmt: skip
    assert "  verification ok against numpy at 4 sizes\n" in tfgraph("inspect", "good").out
    assert tfgraph("run", "good").err == ""
    tfgraph("compile", "tiny.tfg", "-o", "again")
    assert Path("again/manifest.json").read_bytes() == Path("good/manifest.json").read_bytes()

    tfgraph("compile", "tiny.tfg", "-o", "unverified", "--no-verify")
    assert "  verification not run: --no-verify\n" in tfgraph("inspect", "unverified").out
    assert tfgraph("run", "unverified").err == ""

    monkeypatch.setattr("tfgraph.rounding.statistical.factor", lambda draws: 1e-9)
    tfgraph("compile", "tiny.tfg", "-o", "bad.tfgraph", "--keep-failed")
    shown = tfgraph("inspect", "bad.failed.tfgraph").out
    assert "  verification FAILED: output 'z' differs from numpy by " in shown
    ran = tfgraph("run", "bad.failed.tfgraph", "--json")
    assert ran.code == 0
    warning = (
        "warning: bad.failed.tfgraph failed its verification: output 'z' differs from numpy by"
    )
    assert ran.err.startswith(warning)


def test_print_after_numbers_the_runs_of_a_pass(tfgraph: Callable[..., Any]) -> None:
    line = ("compile", "tiny.tfg", "--no-verify", "--passes", "cse,dce,cse", "--print-after", "all")
    told = [text for text in tfgraph(*line).out.splitlines() if text.endswith("changes nothing")]
    assert told == [f"{name} changes nothing" for name in ("cse (run 1)", "dce", "cse (run 2)")]
