"""`compare`, `inspect`, `doctor` and `init`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from helpers.checkpoints import CASES
from helpers.tolerance import UNIT, assert_within
from safetensors.numpy import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
WRONG = """
from dataclasses import dataclass, replace
import numpy as np
from tfgraph.backends import Backend, register_backend
from tfgraph.backends.numpy import NumpyExecutable

class Wrong(Backend):
    '''NumPy with a softmax that is off by a thousandth.'''
    name = "wrong"
    def compile(self, graph, weights, target):
        inner = NumpyExecutable(graph, weights)
        soft = {n.outputs[0].name for n in graph.nodes if n.op == "softmax"}
        class Run:
            inputs, outputs, symbols = inner.inputs, inner.outputs, inner.symbols
            def __call__(self, *, dims=None, **inputs):
                found = inner(dims=dims, **inputs)
                by_name = {o.name: o.value.name for o in graph.outputs}
                return {k: v + np.float32(1e-3) if by_name[k] in soft else v
                        for k, v in found.items()}
            def close(self): pass
        return Run()

register_backend("wrong", Wrong)
"""


KEYS = [
    *(
        "ok",
        "a",
        "b",
        "outputs",
        "intermediates",
        "empty_rows",
        "judgements",
        "first_divergence",
        "saved",
    ),
]


def test_compare_equal(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("compare", "tiny.tfg", "--dim", "n=9")
    assert result.code == 0
    assert result.out.startswith("numpy against cpu at n=9\n")
    assert result.out.endswith("equal within bounds\n")
    found = tfgraph("compare", "tiny.tfg", "--json").json
    assert list(found) == KEYS
    assert (found["ok"], found["a"], found["b"]) == (True, "numpy", "cpu")
    assert set(found["outputs"][0]) == {"name", "max_abs", "max_rel", "bound", "ok", "worst_index"}
    assert found["first_divergence"] is None


def test_compare_says_what_is_bounded_what_is_left_out_and_where_values_are_made(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "m.tfg").write_text(
        "graph m(%x: f32[n,8], %s: f32[8], %b: f32[8]) {\n"
        "  %scale = add(1, %w) : f32[8]\n"
        "  %sum = add(%x, %x) : f32[n,8]\n"
        "  %norm = layer_norm(%sum, %s, %b) : f32[n,8]\n"
        "  %y = mul(%norm, %scale) : f32[n,8]\n"
        "  return z=%y\n}\nweights {\n  %w : f32[8] = normal(1)\n}\n"
    )
    lines = tfgraph("compare", "m.tfg").out.splitlines()
    assert lines[1].split() == ["value", "max", "abs", "<=", "bound", "op", "place"]
    rows = {tuple(line.split()[i] for i in (0, -3, -2, -1)) for line in lines[2:4]}
    assert rows == {
        ("output", "ok", "mul", "m.tfg:5:8"),
        ("%norm", "ok", "add_layer_norm", "m.tfg:4:11"),
    }
    assert lines[5] == "2 of 3 intermediates compared; 1 depend on weights alone"
    # Merged weights and their product have no counterpart in the reference.
    encoder = tfgraph("compare", ROOT / "examples/encoder.yaml", "--dim", "seq=2").out
    assert "; 4 exist only after the passes; 8 depend on weights alone\n" in encoder
    turned = tfgraph("compare", "m.tfg", "--backends", "cpu,numpy").out
    assert "2 of 4 intermediates compared; 1 exist only before the passes; 1 depend" in turned


def test_compare_different(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    np.save("x.npy", np.ones((2, 8), np.float32))
    line = ("compare", "tiny.tfg", "--backends", "numpy,wrong", "--plugin", "wrong.py")
    result = tfgraph(*line, "--input", "x=x.npy", "--json")
    assert result.code == 1
    first = result.json["first_divergence"]
    assert (first["value"], first["op"], first["location"]) == ("z", "softmax", "tiny.tfg:4:8")
    assert_within(first["isolated"], 1e-3, 2 * UNIT["float32"])  # of probabilities, up to 1
    plain = tfgraph(*line)
    assert plain.code == 1
    assert "  first culprit  kernel %z = softmax at tiny.tfg:4:8\n" in plain.out


def test_inspect_formats(tfgraph: Callable[..., Any]) -> None:
    text = tfgraph("inspect", "tiny.tfg", "--format", "text").out
    assert text == tfgraph("inspect", "tiny.tfg").out
    assert text.startswith("graph tiny(%x: f32[n,8] = normal(1)) {\n")
    assert tfgraph("inspect", "tiny.tfg", "--format", "dot").out.startswith('digraph "tiny" {\n')
    assert tfgraph("inspect", "tiny.tfg", "--format", "mermaid").out.startswith("flowchart TD\n")
    Path("tiny.yaml").write_text(tfgraph("inspect", "tiny.tfg", "--format", "yaml").out)
    assert tfgraph("inspect", "tiny.yaml", "--format", "text").out == text
    found = tfgraph("inspect", "tiny.tfg", "--json").json
    assert found["graph"] == text
    assert found["ops"] == {"linear": 1, "softmax": 1}


def test_inspect_a_python_graph(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "from tfgraph import graph, ops\n"
        "with graph('tiny') as g:\n"
        "    g.output('y', ops.softmax(g.input('x', 'f32', 'n', 8)))\n"
    )
    assert "%0 = softmax(%x)" in tfgraph("inspect", "m.py:g").out
    assert tfgraph("inspect", "m.py:h").code == 2


def test_inspect_the_twins(tfgraph: Callable[..., Any]) -> None:
    yaml = tfgraph("inspect", ROOT / "examples/encoder.yaml", "--format", "text")
    python = tfgraph("inspect", f"{ROOT}/examples/encoder.py:model", "--format", "text")
    assert yaml.code == python.code == 0
    assert yaml.out == python.out


def test_inspect_fusion_and_cost(tfgraph: Callable[..., Any]) -> None:
    encoder = ROOT / "examples/encoder.yaml"
    result = tfgraph("inspect", encoder, "--fusion", "--json")
    applied = {k: v for p in result.json["fusion"] for k, v in p["applied"].items()}
    assert applied["fuse-attention"] == 4
    assert applied["fuse-add-layer-norm"] == 8
    told = tfgraph("inspect", encoder, "--fusion").out
    assert "fuse-add-layer-norm 8" in told
    # What a pass is for stands first, and in its count; clean-ups come after.
    assert re.search(r"fuse-attention +4  fuse-attention 4; clean-ups: merge-transposes 16", told)
    assert "  no change: fold-constants, cse, fuse-gated-linear, fuse-rotary, dce\n" in told
    cost = tfgraph("inspect", encoder, "--cost", "--dim", "batch=1", "--dim", "seq=2", "--json")
    found = cost.json["cost"]
    assert found["sizes"] == {"batch": 1, "seq": 2}
    # 2 tokens in 4 layers, a multiply-add being two operations.
    flops = {line["name"]: line["flops"] for line in found["ops"]}
    assert flops["linear"] == 2 * 2 * 4 * (4 * 256**2 + 2 * 256 * 1024)
    fused = tfgraph("inspect", encoder, "--fused").out
    assert "add_layer_norm(" in fused
    assert " = softmax(" not in fused


@pytest.mark.parametrize("option", ["--cost", "--fusion"])
@pytest.mark.parametrize("format", ["dot", "mermaid", "yaml"])
def test_a_drawing_stands_alone(tfgraph: Callable[..., Any], format: str, option: str) -> None:
    result = tfgraph("inspect", "tiny.tfg", "--format", format, option)
    assert (result.code, result.out, result.err) == (
        2,
        "",
        f"error: --format {format} stands alone; {option} prints a table\n"
        f"hint: leave {option} out, or add --json, which has both\n",
    )
    found = tfgraph("inspect", "tiny.tfg", "--format", format, option, "--json").json
    assert {"graph", option.removeprefix("--")} <= set(found)


def test_the_cost_names_its_graph(tfgraph: Callable[..., Any]) -> None:
    encoder = ROOT / "examples/encoder.yaml"
    written = tfgraph("inspect", encoder, "--cost", "--json").json["cost"]
    assert written["graph"] == "as written"
    for options in (("--fusion",), ("--fused",), ("--passes", "fuse-add-norm,dce")):
        found = tfgraph("inspect", encoder, "--cost", *options, "--json").json["cost"]
        assert found["graph"] == "after passes"
        assert found["total"]["read_bytes"] < written["total"]["read_bytes"]
        assert "add_layer_norm" in {line["name"] for line in found["ops"]}
    assert (
        "cost    after passes: 50 nodes\n" in tfgraph("inspect", encoder, "--fusion", "--cost").out
    )
    assert tfgraph("inspect", "tiny.tfg", "--cost").out.startswith("cost    as written: 2 nodes\n")


def test_inspect_an_artifact(tfgraph: Callable[..., Any]) -> None:
    tfgraph("compile", "tiny.tfg", "--no-verify", "-o", "art")
    result = tfgraph("inspect", "art")
    assert result.out.startswith("art: tiny for cpu ")
    assert "\n  input   x  float32[n,8]  normal(1)\n" in result.out
    assert "\ngraph tiny(" in result.out
    assert tfgraph("inspect", "art", "--format", "text").out.startswith("graph tiny(")
    assert tfgraph("inspect", "art", "--json").json["manifest"]["target"] == "cpu"
    result = tfgraph("inspect", "art", "--fusion")
    assert result.code == 2
    assert "its passes ran when it was compiled" in result.err


def test_doctor(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("doctor")
    lines = result.out.splitlines()
    assert result.code == (0 if lines[-1] == "compiling for the CPU works" else 3)
    found = tfgraph("doctor", "--json").json
    assert found["ok"] == (result.code == 0)
    names = [f["name"] for f in found["findings"]]
    for name in ("Python", "platform", "apache-tvm", "apache-tvm-ffi", "threads", "CPU"):
        assert name in names
    for finding in found["findings"]:
        assert set(finding) == {"name", "ok", "found", "hint"}
        assert finding["ok"] or finding["hint"]


def test_doctor_keeps_to_the_width(
    tfgraph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    words = " ".join(tfgraph("doctor").out.split())
    assert max(map(len, tfgraph("doctor").out.splitlines())) <= 70
    monkeypatch.setenv("COLUMNS", "300")
    assert " ".join(tfgraph("doctor").out.split()) == words


def test_doctor_notices_another_version(
    tfgraph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["tfgraph.cli.doctor"]  # whose name the package gives to the verb
    monkeypatch.setattr(module, "_pins", lambda: {"apache-tvm-ffi": "9.9"})
    result = tfgraph("doctor")
    assert result.code == 3
    assert "pip install apache-tvm-ffi==9.9; others crash\n" in result.out
    assert result.out.endswith("the CPU path is broken: see above\n")


def test_init_writes_a_model_that_reads_and_overwrites_nothing(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("init")
    assert (result.code, result.out) == (0, "wrote model.yaml; next: tfgraph compile model.yaml\n")
    assert tfgraph("inspect", "model.yaml").code == 0
    before = Path("model.yaml").read_bytes()
    result = tfgraph("init", "model.yaml")
    assert (result.code, result.err) == (
        2,
        "error: model.yaml exists; it is kept as it is\n"
        "hint: name another file: tfgraph init FILE\n",
    )
    assert Path("model.yaml").read_bytes() == before
    assert tfgraph("init", "none/m.yaml").code == 2


def test_import_overwrites_on_demand_only(tfgraph: Callable[..., Any]) -> None:
    checkpoint = CASES / "bert"
    line = ("import", "hf", checkpoint, "-o", "m.yaml")
    assert tfgraph(*line).code == 0
    written = Path("m.yaml").read_text()
    Path("m.yaml").write_text("# mine\n")
    result = tfgraph(*line)
    assert (result.code, result.err) == (
        2,
        "error: m.yaml exists; it is kept as it is\n"
        "hint: --force overwrites it; -o names another\n",
    )
    assert Path("m.yaml").read_text() == "# mine\n"
    assert tfgraph(*line, "--force").code == 0
    assert Path("m.yaml").read_text() == written


def test_a_checkpoint_folder_is_a_model(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    """In bfloat16 here: what its weights take when they are widened is printed. Nothing is written
    beside it."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_bytes((CASES / "qwen2" / "config.json").read_bytes())
    tensors = load_file(CASES / "qwen2" / "model.safetensors")
    narrow = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in tensors.items()}
    save_file(narrow, folder / "model.safetensors")
    result = tfgraph("compile", folder, "--target", "cpu", "--no-verify")
    assert result.code == 0, result.err
    half = sum(tensor.nbytes for tensor in narrow.values()) / 1024
    sizes = f"{half:.1f} KiB to {2 * half:.1f} KiB"
    head = result.out.splitlines()[0]
    assert head.endswith(f"from a file in bfloat16, widened to float32: {sizes}")
    assert Path("small.cpu.tfgraph").is_dir()
    assert tfgraph("run", "small.cpu.tfgraph").code == 0
    assert tfgraph("inspect", folder).code == 0
    assert tfgraph("compare", folder, "--backends", "numpy,numpy").code == 0
    assert len(list(folder.iterdir())) == 2


def test_importing_a_folder_without_a_checkpoint(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    result = tfgraph("import", "hf", "empty", "-o", "m.yaml")
    assert (result.code, result.out) == (2, "")
    assert "config.json" in result.err
    assert not Path("m.yaml").exists()
