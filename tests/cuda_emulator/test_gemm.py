"""Products in every dtype, by every kernel that a host may choose, against float64.

Inputs are numbers of the dtype, products of 16-bit numbers are exact in float32, and sums are in
float32: so the result is off by the rounding of a float32 sum and one rounding to the dtype.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu

from tfgraph.backends.rounding import UNITS
from tfgraph.backends.tvm.cuda.kernels import CudaKernels
from tfgraph.backends.tvm.cuda.linear import FEW, linear
from tfgraph.backends.tvm.cuda.matmul import matmul

TF32 = 2.0**-11
"""The unit of tf32: ten bits of fraction, rounded to nearest."""
DTYPES = ("float16", "bfloat16", "float32", "tf32")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gemm")


def normal(dtype: str, *shape: int, seed: int = 1) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return drawn.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def assert_product(got: np.ndarray, a: np.ndarray, b: np.ndarray, *, tf32: bool = False) -> None:
    """got is a @ b: each element within gamma_k |a| |b| and one rounding of the result."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    want, size, k = a @ b, np.abs(a) @ np.abs(b), a.shape[-1]
    sums = k * UNITS["float32"] + (2.01 * TF32 if tf32 else 0.0)
    unit = UNITS[str(got.dtype)]
    bound = (sums * size + unit * np.abs(want)) * 1.01 + 1e-30
    error = np.abs(got.astype(np.float64) - want)
    assert np.all(error <= bound), f"{(error / bound).max()} of the bound"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("k", "n"), [(50, 70), (7, 1), (64, 64), (136, 131)])
def test_linear(directory: Path, dtype: str, k: int, n: int) -> None:
    tf32, kind = dtype == "tf32", "float32" if dtype == "tf32" else dtype
    function = linear(("m",), k, n, dtype=kind, tf32=tf32)
    run = CudaOnCpu({"linear": function}, directory)
    weight = normal(kind, k, n)
    few, *more = run.variants("linear")
    assert len(more) >= 2
    for kernel in (few, *more):
        for m in (1, FEW) if kernel == few else (1, 17, 65, 130):
            x = normal(kind, m, k, seed=m)
            (got,) = run("linear", x, CudaKernels().pack(weight), kernel=kernel)
            assert got.dtype == x.dtype
            assert_product(got, x, weight, tf32=tf32)


def test_the_host_chooses_by_rows(directory: Path) -> None:
    run = CudaOnCpu({"linear": linear(("a", "b"), 8, 8, dtype="float16")}, directory)
    assert [run.kernels[name].when for name in run.variants("linear")] == [
        "a * b <= 4",
        "a * b <= 16",
        "a * b <= 256",
        "",
    ]
    assert "linear_kernel_1  [(a * b + 15) // 16] x [128]  if a * b <= 16" in run.source


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_epilogue_is_rounded_once(directory: Path, dtype: str) -> None:
    """relu(x w + b) * g of small integers and powers of two: exact in float32, and the result in
    every dtype, unless something is rounded between."""
    function = linear(("m",), 24, 40, dtype=dtype, bias=True, activation="relu", gate=True)
    run = CudaOnCpu({"linear": function}, directory)
    rng = np.random.default_rng(5)
    kind = normal(dtype, 1).dtype

    def draw(*shape: int, values: tuple[float, ...]) -> np.ndarray:
        return rng.choice(values, shape).astype(kind)

    x, weight = draw(20, 24, values=(-1, 0, 1, 2)), draw(24, 40, values=(-1, 0, 1))
    bias, gate = draw(40, values=(-300.5, 1.25, 256)), draw(20, 40, values=(0.0, 0.5, -2))
    exact = x.astype(np.float64) @ weight.astype(np.float64) + bias.astype(np.float64)
    want = (np.maximum(exact, 0) * gate.astype(np.float64)).astype(kind)
    for kernel in run.variants("linear"):
        m = FEW if kernel == "linear_kernel" else 20
        arguments = x[:m], CudaKernels().pack(weight), bias, gate[:m]
        (got,) = run("linear", *arguments, kernel=kernel)
        np.testing.assert_array_equal(got.astype(np.float64), want[:m].astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(66, 65, 17), (3, 72, 64), (1, 8, 130)])
def test_matmul(directory: Path, dtype: str, transpose_b: bool, m: int, n: int, k: int) -> None:
    """Symbolic sizes, which are copied number by number, and known ones, 16 bytes at a time."""
    tf32, kind = dtype == "tf32", "float32" if dtype == "tf32" else dtype
    options = {"dtype": kind, "tf32": tf32, "transpose_b": transpose_b}
    functions = {
        "symbolic": matmul(("batch",), ("batch",), "m", "n", "k", **options),
        "known": matmul(("batch",), ("batch",), "m", n, k, **options),
    }
    run = CudaOnCpu(functions, directory)
    a, b = normal(kind, 2, m, k), normal(kind, 2, k, n, seed=2)
    for name in functions:
        given = np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose_b else b
        (got,) = run(name, a, given)
        assert_product(got, a, b, tf32=tf32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_weight_of_zero_takes_nothing(directory: Path, dtype: str) -> None:
    function = matmul(("b",), ("b",), "m", "n", "k", dtype=dtype, skip_zeros=True)
    run = CudaOnCpu({"weighted": function}, directory)
    weights, values = normal(dtype, 2, 66, 17), normal(dtype, 2, 17, 65, seed=2)
    weights[:, :, 3] = 0
    finite = values.copy()
    values[:, 3] = [[np.nan], [np.inf]]
    (got,) = run("weighted", weights, values)
    assert_product(got, weights, finite)
    weights[0, 5, 7] = np.nan
    (got,) = run("weighted", weights, values)
    assert np.isnan(got[0, 5].astype(np.float32)).all()
    assert np.isfinite(got[1].astype(np.float32)).all()
