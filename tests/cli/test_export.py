"""`tfgraph export`: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from tfgraph.onnx.export import exports, registry


def test_it_says_what_it_wrote(tfgraph: Callable[..., Any]) -> None:
    done = tfgraph("export", "tiny.tfg")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["onnx", "opset", "24,", "2", "nodes"] in lines
    assert ["MatMul", "1,", "Softmax", "1"] in lines
    assert ["check", "ok,", "ONNX's", "checker"] in lines
    assert ["output", "observed", "bound"] in lines
    verified = next(line for line in lines if line[0] == "z")
    assert float(verified[1]) <= float(verified[2])
    assert verified[3] == "ok"
    assert lines[-1][:2] == ["wrote", "tiny.onnx,"]
    onnx.checker.check_model("tiny.onnx", full_check=True)


def test_options_and_json(tfgraph: Callable[..., Any]) -> None:
    given = "export", "tiny.tfg", "-o", "out/a.onnx", "--opset", 17, "--external-above", 0
    found = tfgraph(*given, "--no-verify", "--json").json
    assert found["model"] == "out/a.onnx"
    assert found["data"] == "out/a.onnx.data"
    assert found["opset"] == onnx.load("out/a.onnx").opset_import[0].version == 17
    assert found["operators"] == {"MatMul": 1, "Softmax": 1}
    assert (found["verify"]["ok"], found["verify"]["reason"]) == (None, "not run: --no-verify")
    assert tfgraph("export", "tiny.tfg", "-q").out == "tiny.onnx\n"


def test_a_failed_verification(
    tfgraph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 1, nothing written, the errors in JSON."""
    monkeypatch.setattr(registry, "_TABLE", {k: list(v) for k, v in registry._TABLE.items()})

    @exports("softmax")
    def softmax(to: Any, node: Any, x: str) -> Any:
        return to.node("Sigmoid", x)

    done = tfgraph("export", "tiny.tfg")
    assert done.code == 1
    assert "error: verification in ONNX Runtime failed: output 'z' differs" in done.err
    found = tfgraph("export", "tiny.tfg", "--json")
    assert found.code == 1
    assert (found.json["model"], found.json["verify"]["ok"]) == (None, False)
    assert [p.name for p in Path().iterdir()] == ["tiny.tfg"]


def test_bad_input(tfgraph: Callable[..., Any]) -> None:
    done = tfgraph("export", "tiny.tfg", "--opset", 12)
    assert done.code == 2
    assert done.err.endswith(
        "error: opset 12 is not supported: expected 13 to 28\nhint: without --opset it is 24\n"
    )
    Path("state.tfg").write_text(
        "graph step(%c: f32[batch,4,8] = state(), %new: f32[batch,1,8]) {\n"
        "  %0 = cache_append(%c, %new) {at=3} : f32[batch,4,8]\n  return c=%0\n}\n"
    )
    done = tfgraph("export", "state.tfg")
    assert done.code == 2
    assert "state.tfg:1:" in done.err
    assert "step has states (%c)" in done.err
