"""Every op of the IR as ONNX operators, run by ONNX Runtime and by onnx's reference, in several
versions of the operator set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.onnx_export import OPSETS, NoKernel, Session, by_numpy, by_reference, written
from helpers.op_samples import Sample, takes
from helpers.tolerance import assert_close

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.fuzz.schema import own_ops
from tfgraph.ir import DType
from tfgraph.ops import REGISTRY

F32, F16, F64 = DType.float32, DType.float16, DType.float64
TAKEN = (F32, F16, DType.int64, DType.int32, DType.bool_)
LENGTH = 64
"""Roundings in a row; attention has the most of them."""

LATER = {("cumsum", F16, 13)}
"""What only a later version of the operator set takes."""

NO_KERNEL = {"cache_append", "cast"}
"""Ops that ONNX Runtime does not run for all of these dtypes: bools, i4."""


def sample(name: str, dtype: DType, seed: int) -> tuple[Any, dict[str, Any]]:
    """A graph and its inputs; an input of one axis tells each size, as ONNX needs it."""
    made = Sample(name, dtype, seed)
    inputs = {key: array.data for key, array in made.given.items()}
    for symbol, size in made.sizes.items():
        made.builder.input(f"of_{symbol}", "i8", symbol)
        inputs[f"of_{symbol}"] = np.zeros(size, np.int8)
    return made.graph, inputs


def check(got: dict[str, Any], want: dict[str, Any], name: str) -> None:
    assert got.keys() == want.keys()
    for key, expected in want.items():
        array = np.asarray(got[key])
        assert array.dtype == expected.dtype
        if expected.dtype.kind == "f":
            # One step of float16 is far more than what float32 inside of an operator is off.
            length = 4 if expected.dtype == np.float16 else LENGTH
            assert_close(array, expected, length=length, name=name)
        else:
            np.testing.assert_array_equal(array, expected, name)


@pytest.mark.parametrize("name", own_ops())
def test_every_op(name: str) -> None:
    ran = 0
    for dtype in takes(REGISTRY[name]):
        if dtype not in TAKEN:
            continue
        for seed in range(3 if dtype == F32 else 1):
            graph, inputs = sample(name, dtype, seed)
            if any(o.value.type.dtype in (DType.int4, DType.bfloat16) for o in graph.outputs):
                continue  # what NumPy cannot pass on: test_casts_to_rare_types
            want = by_numpy(graph, inputs)
            for opset in OPSETS if dtype == F32 else OPSETS[:5:4]:
                if (name, dtype, opset) in LATER:
                    with pytest.raises(TfgraphError) as raised:
                        written(graph, opset)
                    assert raised.value.hint == "opset 14 does"
                    continue
                model = written(graph, opset)
                label = f"{name} of {dtype} in opset {opset}, seed {seed}"
                try:
                    check(Session(model)(**inputs), want, label)
                    ran += 1
                except NoKernel:
                    assert name in NO_KERNEL, label
                if opset == 24 and seed == 0:
                    check(by_reference(model, **inputs), want, f"{label}, reference")
    assert ran, name


@pytest.mark.parametrize("seed", range(12))
def test_every_mask(seed: int) -> None:
    """Masks of all kinds and their intersections, in an attention and alone."""
    for name in ("attention", "mask"):
        graph, inputs = sample(name, F32, 100 + seed)
        want = by_numpy(graph, inputs)
        for opset in (13, 24):
            check(Session(written(graph, opset))(**inputs), want, f"{name} in opset {opset}")


@pytest.mark.parametrize("scale", [0, -0.5])
def test_scales_without_a_root(scale: float) -> None:
    """ONNX's Attention takes the root of the scale."""
    with ops.graph("one") as g:
        q, k, v = (g.input(name, "f32", "b", "s", 8) for name in "qkv")
        g.output("y", ops.attention(q, k, v, heads=2, kv_heads=2, scale=scale))
    graph, rng = g.build(), np.random.default_rng(0)
    inputs = {name: rng.normal(size=(2, 3, 8)).astype(np.float32) for name in "qkv"}
    check(Session(written(graph, 24))(**inputs), by_numpy(graph, inputs), f"scale {scale}")


def test_float64_stays_exact() -> None:
    """ONNX's fused operators have constants in float32: float64 goes by its parts."""
    for name in ("layer_norm", "rms_norm", "attention", "gelu_tanh", "softmax"):
        graph, inputs = sample(name, F64, 1)
        got = Session(written(graph, 24))(**inputs)
        for key, expected in by_numpy(graph, inputs).items():
            assert_close(got[key], expected, length=LENGTH, name=name)


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.int4])
def test_casts_to_rare_types(dtype: DType) -> None:
    """There and back again, since NumPy cannot hold them."""
    with ops.graph("there") as g:
        x = g.input("x", "f32", "n")
        g.output("y", ops.cast(ops.cast(x, dtype=dtype), dtype=F32))
    values = np.array([0, 1, -3, 7, -8], np.float32)
    got = Session(written(g.build(), 24))(x=values)["y"]
    np.testing.assert_array_equal(got, values)
