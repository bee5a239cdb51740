"""`--dtype`: what is written, said and refused; and `dtype=` in Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from helpers.checkpoints import CASES, NAMES, reference
from helpers.onnx_files import NAMES as EXPORTS
from helpers.onnx_files import export_path, references
from helpers.tolerance import NARROW_ROUNDINGS, UNIT, assert_within
from safetensors.numpy import load_file

import tfgraph as tg
from tfgraph import ops
from tfgraph.backends.layouts import unpacked
from tfgraph.errors import TfgraphError
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from pathlib import Path

NDArray = np.ndarray[Any, Any]
NARROW: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("dtype", NARROW)
def test_the_artifact_is_of_that_type(tfgraph: Any, tmp_path: Path, dtype: str) -> None:
    result = tfgraph("compile", "tiny.tfg", "--target", "cuda", "--dtype", dtype, "-o", "t")
    assert result.code == 0, result.err
    assert f"input   x  {dtype}[n,8]" in result.out
    assert "checked instead: the graph after the passes, on numpy" in result.out
    manifest = json.loads((tmp_path / "t" / "manifest.json").read_text())
    kinds = [p["dtype"] for p in (*manifest["inputs"], *manifest["outputs"], *manifest["weights"])]
    assert kinds == [dtype] * 3
    assert manifest["command"][-2:] == ["--dtype", dtype]
    stored = load_file(tmp_path / "t" / "weights.safetensors")["w:columns"]
    graph = tg.load_source("tiny.tfg").graph
    assert stored.dtype == NARROW[dtype]
    given = Seeded(graph.params)["w"].astype(NARROW[dtype])
    np.testing.assert_array_equal(unpacked("columns", stored, given.shape), given)
    source = (tmp_path / "t" / "kernels" / "kernels.cu").read_text()
    assert ("half" if dtype == "float16" else "nv_bfloat16") in source


def test_what_is_refused(tfgraph: Any) -> None:
    cases = {
        "compile tiny.tfg --dtype float16": (
            "error: dtype: float16 does not run on cpu\n"
            "hint: dtype: float32 does; `tfgraph run --target numpy` takes float16\n"
        ),
        "compile tiny.tfg --target cuda --dtype int8": (
            "error: dtype int8: models are compiled in float32, float16, bfloat16\n"
        ),
        "compile tiny.tfg --target cuda --dtype half": (
            "error: unknown dtype 'half'\nhint: did you mean 'float16'?\n"
        ),
        "compile tiny.tfg --target cuda --arch sm_75 --dtype bfloat16": (
            "error: bfloat16 needs sm_80 or newer, not sm_75\nhint: float16 runs on all\n"
        ),
        "compile tiny.tfg --tf32": "error: --tf32 is for --target cuda, not cpu\n",
        "compile tiny.tfg --target cuda --tf32 --dtype bfloat16": (
            "error: tf32 is for models in float32, and this is in bfloat16\n"
        ),
        "compile tiny.tfg --target cuda --arch sm_75,sm_90 --tf32": (
            "error: tf32 needs sm_80 or newer, not sm_75\n"
        ),
        "compare tiny.tfg --dtype float16": (
            "error: dtype: float16 does not run on cpu\n"
            "hint: dtype: float32 does; `tfgraph run --target numpy` takes float16\n"
        ),
        "compare tiny.tfg tiny.tfg --dtype float16": (
            "error: --dtype is for one model\nhint: --target runs two of them\n"
        ),
    }
    for line, error in cases.items():
        result = tfgraph(*line.split())
        assert (result.code, result.err) == (2, error), line


def test_bfloat16_of_a_model_file_and_an_old_architecture(tfgraph: Any, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("layers: 1\nwidth: 8\ndtype: bfloat16\narch: sm_75\n")
    result = tfgraph("compile", "m.yaml", "--target", "cuda")
    assert result.code == 2
    assert result.err.startswith("m.yaml:3:8: error: bfloat16 needs sm_80 or newer, not sm_75\n")


def test_tf32_of_a_model_file(tfgraph: Any, tmp_path: Path) -> None:
    """The options stand above it; other targets and types have no say in it."""
    model = "layers: 1\nwidth: 8\nheads: 1\n"
    (tmp_path / "m.yaml").write_text(model + "tf32: true\n")
    options = {"": True, "--no-tf32": None, "--dtype float16": None, "--arch sm_80 --tf32": True}
    for line, wanted in options.items():
        args = ("--target", "cuda", *line.split(), "--no-prove", "--no-verify", "-o", "out")
        result = tfgraph("compile", "m.yaml", *args)
        assert result.code == 0, result.err
        assert ("tf32" in result.out.partition("target  ")[2].partition("\n")[0]) == bool(wanted)
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        assert manifest["cuda"].get("tf32") == wanted
        again = " ".join(manifest["command"])
        assert ("--no-tf32" in again) == (line == "--no-tf32")
    assert tfgraph("compile", "m.yaml", "--no-verify", "-o", "cpu").code == 0
    error = tfgraph("compile", "m.yaml", "--target", "cuda", "--arch", "sm_75").err
    assert error.startswith("m.yaml:4:7: error: tf32 needs sm_80 or newer, not sm_75\n")


def test_run_and_inspect(tfgraph: Any, tmp_path: Path) -> None:
    result = tfgraph("run", "tiny.tfg", "--target", "numpy", "--dtype", "float16", "--save", "o")
    assert result.code == 0, result.err
    assert np.load(tmp_path / "o" / "z.npy").dtype == np.float16
    shown = tfgraph("inspect", "tiny.tfg", "--dtype", "bf16")
    assert "%y = linear(%x, %w) : bf16[n,4]" in shown.out
    assert tfgraph("run", "tiny.tfg", "--dtype", "float16").code == 2  # on the CPU


def test_a_weight_that_is_too_large() -> None:
    with ops.graph("g") as g:
        g.output("y", ops.linear(g.input("x", "f32", "n", 2), g.param("w", "f32", 2, 2)))
    weights = {"w": np.array([[1, 2], [-3, -7e4]], np.float32)}
    x = np.ones((1, 2), np.float16)
    with pytest.raises(TfgraphError) as error:
        tg.compile(g.build(), "numpy", weights=weights, dtype="float16")(x=x)
    assert error.value.message == "weight 'w' has values too large for f16, such as -70000"
    assert error.value.hint == "bfloat16 has the range of float32"
    infinite = {"w": np.array([[1, 2], [np.inf, np.nan]], np.float32)}
    run = tg.compile(g.build(), "numpy", weights=infinite, dtype="float16")
    assert np.isinf(run(x=x)["y"][0, 0])


def test_weights_that_are_given_are_those_of_the_model() -> None:
    """They have the type that the model was written in, and are rounded once, ties to even."""
    with ops.graph("g") as g:
        g.output("y", ops.mul(g.input("x", "f32", 3), g.param("w", "f32", 3)))
    values = np.array([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20], np.float32)
    run = tg.compile(g.build(), "numpy", weights={"w": values}, dtype="float16")
    got = run(x=np.ones(3, np.float16))["y"].astype(np.float64)
    np.testing.assert_array_equal(got, [1, 1 + 2**-9, 1 + 2**-10])


def near(got: dict[str, NDArray], want: dict[str, NDArray], real: NDArray, dtype: str) -> None:
    """The type, and within its roundings."""
    for name, array in want.items():
        rows = real if array.shape[:2] == real.shape else np.ones(len(array), bool)
        a, b = got[name].astype(np.float64)[rows], array[rows]
        assert str(got[name].dtype) == dtype
        assert_within(a, b, NARROW_ROUNDINGS * UNIT[dtype] * np.abs(b).max(), name)


def given_to(run: Any, arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    """The inputs of a run, floats in its type; token types are zeros where none are recorded."""
    zeros = np.zeros_like(arrays.get("input_ids", np.zeros(())))
    found = {port.name: arrays.get(port.name, zeros) for port in run.inputs}
    kinds = {port.name: NARROW.get(port.dtype) for port in run.inputs}
    return {n: a if kinds[n] is None else a.astype(kinds[n]) for n, a in found.items()}


@pytest.mark.parametrize("case", NAMES)
def test_checkpoints(case: str) -> None:
    """Against what transformers computes in float32."""
    dtype = "float16"
    run = tg.compile(tg.load_source(CASES / case), "numpy", dtype=dtype)
    given = given_to(run, reference(case, "in"))
    real = given.get("attention_mask", np.ones((1, 1))).astype(bool)
    near(run(**given), reference(case, "out"), real, dtype)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("export", EXPORTS)
def test_onnx_files(export: str, dtype: str) -> None:
    """Masks by a sentinel, an eps of 1e-12 and positions, written out in float32."""
    run = tg.compile(tg.load_source(export_path(export)), "numpy", dtype=dtype)
    arrays = {key[3:]: a for key, a in references(export).items() if key.startswith("in.")}
    want = {key[4:]: a for key, a in references(export).items() if key.startswith("out.")}
    given = given_to(run, arrays)
    real, got = given.get("attention_mask", np.ones((1, 1))).astype(bool), run(**given)
    near(got, {name: array for name, array in want.items() if name in got}, real, dtype)
