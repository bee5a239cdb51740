"""The CPU kernels over the last axis, norms and softmax, against the formulas in float64."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.kernels import compile_kernels
from helpers.tolerance import UNIT, assert_close, assert_within, relative

from tfgraph.backends.tvm.cpu.norm import norm
from tfgraph.backends.tvm.cpu.softmax import softmax
from tfgraph.backends.tvm.kernels import NormShape
from tfgraph.backends.tvm.target import cpu_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.runtime.jit import Program

WIDTHS = (1, 2, 3, 7, 16, 31, 32, 33, 63, 64, 65, 129, 384)
ROWS = (1, 2, 7, 33, 600)
EPS = 1e-5

ONE_RESULT = {f"layer{n}": NormShape("layer", n, EPS) for n in WIDTHS}
ONE_RESULT |= {f"rms{n}": NormShape("rms", n, EPS, bias=False) for n in (1, 33, 64, 129, 384)}
for add, shift, scale, bias in itertools.product((False, True), repeat=4):
    key = "".join("absh"[i] for i, on in enumerate((add, shift, scale, bias)) if on)
    kind = "layer" if bias or shift else "rms"
    ONE_RESULT[f"parts_{key}"] = NormShape(kind, 50, EPS, add, shift, scale, bias)
TWO_RESULTS = {
    "layer": NormShape("layer", 65, EPS, add=True, shift=True, keep_sum=True),
    "rms": NormShape("rms", 64, EPS, add=True, bias=False, keep_sum=True),
}


@pytest.fixture(scope="module")
def norms() -> Iterator[Program]:
    kernels = {name: norm(name, shape, cpu_machine()) for name, shape in ONE_RESULT.items()}
    with compile_kernels(kernels, threads=2) as program:
        yield program


@pytest.fixture(scope="module")
def softmaxes() -> Iterator[Program]:
    kernels: dict[str, Any] = {f"s{n}": softmax(f"s{n}", cpu_machine(), n) for n in WIDTHS[:10]}
    kernels["any"] = softmax("any", cpu_machine())
    with compile_kernels(kernels, threads=2) as program:
        yield program


def inputs(shape: NormShape, rows: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    wanted = {"a": (rows, shape.width)}
    if shape.add:
        wanted["b"] = (rows, shape.width)
    for name in ("scale", "bias", "shift"):
        if getattr(shape, name):
            wanted[name] = (shape.width,)
    return {name: random.standard_normal(size).astype(np.float32) for name, size in wanted.items()}


def reference(shape: NormShape, arrays: dict[str, Any]) -> Any:
    a = {name: array.astype(np.float64) for name, array in arrays.items()}
    x = a["a"] + a.get("b", 0.0) + a.get("shift", 0.0)
    if shape.kind == "layer":
        centred = x - x.mean(-1, keepdims=True)
        y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + shape.eps)
    else:
        y = x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.eps)
    return x, y * a.get("scale", 1.0) + a.get("bias", 0.0)


@pytest.mark.parametrize("name", ONE_RESULT)
def test_norm_matches_formula(norms: Program, name: str) -> None:
    for rows in ROWS:
        arrays = inputs(ONE_RESULT[name], rows, seed=rows)
        (out,) = norms.call(name, list(arrays.values()))
        want = reference(ONE_RESULT[name], arrays)[1]
        assert_close(out, want, length=ONE_RESULT[name].width + 8, name=f"{rows} rows")


@pytest.mark.parametrize("name", TWO_RESULTS)
def test_norm_returns_the_sum_too(name: str) -> None:
    shape = TWO_RESULTS[name]
    with compile_kernels({name: norm(name, shape, cpu_machine())}, threads=2, outputs=2) as program:
        for rows in ROWS:
            arrays = inputs(shape, rows, seed=rows)
            total, out = program.call(name, list(arrays.values()))
            exact, want = reference(shape, arrays)
            assert_close(total, exact, length=2)
            assert_close(out, want, length=shape.width + 8)


@pytest.mark.parametrize("width", [7, 64, 384])
def test_layer_norm_with_a_mean_far_larger_than_the_spread(norms: Program, width: int) -> None:
    random = np.random.default_rng(width)
    shape = ONE_RESULT[f"layer{width}"]
    for mean, spread in [(1e4, 1.0), (1e6, 1.0), (-3e3, 0.01), (1e18, 1e13), (0.0, 1e18)]:
        a = (mean + spread * random.standard_normal((9, width))).astype(np.float32)
        arrays = {"a": a, "scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}
        (out,) = norms.call(f"layer{width}", list(arrays.values()))
        want = reference(shape, arrays)[1]
        assert_close(out, want, length=min(width, 128), name=f"{mean}, {spread}")


def test_rms_norm_of_very_large_and_very_small_values(norms: Program) -> None:
    for size in (1e18, 1e-3, 1e-12, 0.0):
        arrays = inputs(ONE_RESULT["rms129"], 5, seed=1)
        arrays["a"] *= np.float32(size)
        (out,) = norms.call("rms129", list(arrays.values()))
        want = reference(ONE_RESULT["rms129"], arrays)[1]
        assert_close(out, want, length=129)


def test_constant_rows_give_the_shift(norms: Program) -> None:
    arrays = inputs(ONE_RESULT["layer33"], 4, seed=2)
    arrays["a"][:] = np.array([[0.1], [-7.3], [3e5], [0.0]], np.float32)
    (out,) = norms.call("layer33", list(arrays.values()))
    assert np.array_equal(out, np.broadcast_to(arrays["bias"], out.shape))


@pytest.mark.parametrize("name", ["layer33", "rms384", "parts_absh"])
def test_norm_rows_have_the_same_bits_alone(norms: Program, name: str) -> None:
    arrays = inputs(ONE_RESULT[name], 600, seed=3)
    (together,) = norms.call(name, list(arrays.values()))
    for row in (0, 1, 250, 599):
        alone = {k: v[row : row + 1] if len(v) == 600 else v for k, v in arrays.items()}
        (out,) = norms.call(name, list(alone.values()))
        assert np.array_equal(out.view(np.int32), together[row : row + 1].view(np.int32))


def test_code_for_avx2() -> None:
    machine = cpu_machine("x86-64-v3")
    kernels = {"norm": norm("norm", ONE_RESULT["parts_absh"], machine)}
    kernels["softmax"] = softmax("softmax", machine)
    arrays = inputs(ONE_RESULT["parts_absh"], 9, seed=6)
    with compile_kernels(kernels, threads=2, machine=machine) as program:
        out = program.call("norm", list(arrays.values()))[0]
        assert_close(out, reference(ONE_RESULT["parts_absh"], arrays)[1], length=50)
        exact = np.exp(arrays["a"].astype(np.float64))
        exact /= exact.sum(-1, keepdims=True)
        assert_close(program.call("softmax", [arrays["a"]])[0], exact, length=50)


def test_norm_keeps_nan_to_its_row(norms: Program) -> None:
    arrays = inputs(ONE_RESULT["layer65"], 3, seed=4)
    arrays["a"][1, 64] = np.nan
    (out,) = norms.call("layer65", list(arrays.values()))
    assert np.isnan(out[1]).all()
    assert np.isfinite(out[[0, 2]]).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_softmax_matches_formula(softmaxes: Program, width: int) -> None:
    names = ["any", f"s{width}"] if width in WIDTHS[:10] else ["any"]
    for rows in ROWS:
        x = np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32) * 9
        x[rows // 2] *= 1e30
        x[0, : width // 2] = -np.inf
        gap = x.max(-1, keepdims=True) - x.astype(np.float64)
        exact = np.exp(-gap) / np.exp(-gap).sum(-1, keepdims=True)
        for name in names:
            (out,) = softmaxes.call(name, [x])
            assert_close(out, exact, length=16, scale=1.0)
            normal = exact > 1e-37  # the gap is rounded, which exp turns into a relative error
            error = np.abs(out[normal] / exact[normal] - 1)
            bound = gap[normal] * UNIT["float32"] + relative("float32", 16)
            assert_within(error, np.zeros_like(error), bound)


@pytest.mark.parametrize("name", ["any", "s33"])
def test_softmax_of_empty_and_not_finite_rows(softmaxes: Program, name: str) -> None:
    x = np.random.default_rng(5).standard_normal((6, 33)).astype(np.float32)
    x[1] = -np.inf
    x[2, 32] = np.nan
    x[3, 0] = np.inf
    (out,) = softmaxes.call(name, [x])
    assert np.array_equal(out[1], np.zeros(33))
    assert np.isnan(out[2]).all()
    assert np.isnan(out[3]).any()
    assert_close(out[[0, 4, 5]].sum(-1), np.ones(3), length=33)
    alone = softmaxes.call(name, [x[5:]])[0]
    assert np.array_equal(alone.view(np.int32), out[5:].view(np.int32))
