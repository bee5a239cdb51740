"""GEMM, norms and softmax for CUDA against float64, by running the emitted source on the CPU."""

from __future__ import annotations

from math import erf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.tolerance import UNIT, assert_close, assert_within

from tfgraph.backends.tvm.cuda.activations import ACTIVATIONS
from tfgraph.backends.tvm.cuda.kernels import CudaKernels
from tfgraph.backends.tvm.cuda.linear import linear
from tfgraph.backends.tvm.cuda.matmul import matmul
from tfgraph.backends.tvm.cuda.norm import layer_norm, rms_norm
from tfgraph.backends.tvm.cuda.softmax import softmax

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REFERENCE: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.where(x < 0, 0, x),
    "relu2": lambda x: np.where(x < 0, 0, x) ** 2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def columns(weight: np.ndarray) -> np.ndarray:
    """A weight as the kernels read it."""
    return CudaKernels().pack(weight)


@pytest.fixture(scope="module")
def products(directory: Path) -> CudaOnCpu:
    rows = ("batch", "seq")
    functions = {
        "plain": linear(rows, 50, 70),
        "all": linear(rows, 50, 70, bias=True, activation="silu", gate=True),
        "aligned": linear(("rows",), 64, 64, bias=True),
        "deep": linear((3,), 300, 1, bias=True),
        "batched": matmul(("batch",), ("batch",), "m", "n", "depth"),
        "transposed": matmul(("batch", 2), ("batch", 2), "m", "n", 20, transpose_b=True),
        "broadcast": matmul((1, "b"), ("a", 1), "m", 5, 7),
        "weighted": matmul(("b",), ("b",), "m", "n", "depth", skip_zeros=True),
        "right_alone": matmul(("a", "b"), (), 3, 4, "depth"),
    }
    return CudaOnCpu(functions, directory)


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (1, 64), (2, 65), (3, 43)])
def test_linear(products: CudaOnCpu, rng: np.random.Generator, batch: int, seq: int) -> None:
    x, weight = normal(rng, batch, seq, 50), normal(rng, 50, 70)
    bias, gate = normal(rng, 70), normal(rng, batch, seq, 70)
    want = x.astype(np.float64) @ weight
    assert_close(products("plain", x, columns(weight))[0], want, length=50)
    want = REFERENCE["silu"](want + bias)
    size = float(np.sqrt(np.mean(want**2)) * np.abs(gate).max())
    got = products("all", x, columns(weight), bias, gate)[0]
    assert_close(got, want * gate, length=55, scale=size)


def test_linear_of_other_shapes(products: CudaOnCpu, rng: np.random.Generator) -> None:
    for name, m, k, n in (("aligned", 128, 64, 64), ("deep", 3, 300, 1)):
        x, weight, bias = normal(rng, m, k), normal(rng, k, n), normal(rng, n)
        want = x.astype(np.float64) @ weight + bias
        assert_close(products(name, x, columns(weight), bias)[0], want, length=k)


def test_matmul(products: CudaOnCpu, rng: np.random.Generator) -> None:
    a, b = normal(rng, 3, 66, 17), normal(rng, 3, 17, 65)
    assert_close(products("batched", a, b)[0], a.astype(np.float64) @ b, length=17)
    a, b = normal(rng, 2, 2, 5, 20), normal(rng, 2, 2, 70, 20)
    want = a.astype(np.float64) @ b.swapaxes(-1, -2)
    assert_close(products("transposed", a, b)[0], want, length=20)
    a, b = normal(rng, 1, 3, 4, 7), normal(rng, 2, 1, 7, 5)
    assert_close(products("broadcast", a, b)[0], a.astype(np.float64) @ b, length=7)
    a, b = normal(rng, 2, 3, 3, 9), normal(rng, 9, 4)
    assert_close(products("right_alone", a, b)[0], a.astype(np.float64) @ b, length=9)


def test_a_weight_of_zero_takes_nothing(products: CudaOnCpu, rng: np.random.Generator) -> None:
    weights, values = normal(rng, 2, 66, 17), normal(rng, 2, 17, 65)
    weights[:, :, 3] = 0
    weights[0, 5, 7] = np.nan
    want = weights.astype(np.float64) @ values
    values[:, 3] = [[np.nan], [np.inf]]
    assert_close(products("weighted", weights, values)[0], want, length=17)


def test_activations(directory: Path, rng: np.random.Generator) -> None:
    assert set(REFERENCE) == set(ACTIVATIONS)
    functions = {name: linear(("m",), 8, 8, activation=name) for name in ACTIVATIONS}
    run = CudaOnCpu(functions, directory)
    x, weight = 2 * normal(rng, 9, 8), normal(rng, 8, 8)
    for name, reference in REFERENCE.items():
        want = reference(x.astype(np.float64) @ weight)
        assert_close(run(name, x, columns(weight))[0], want, length=8 + 8, name=name)


WIDTHS = [1, 8, 128, 300, 1100]


@pytest.fixture(scope="module")
def norms(directory: Path) -> CudaOnCpu:
    rows, eps = ("batch", "seq"), 1e-5
    functions: dict[str, Any] = {}
    for width in WIDTHS:
        functions[f"layer_norm{width}"] = layer_norm(rows, width, eps=eps)
        functions[f"rms_norm{width}"] = rms_norm(rows, width, eps=eps)
        functions[f"add_layer_norm{width}"] = layer_norm(
            rows, width, eps=eps, add=True, shift=True, keep_sum=True
        )
        functions[f"add_rms_norm{width}"] = rms_norm(rows, width, eps=eps, add=True, keep_sum=True)
    functions["bare"] = layer_norm(("rows",), 40, eps=eps, scale=False, bias=False)
    return CudaOnCpu(functions, directory)


def reference_layer_norm(t: np.ndarray) -> np.ndarray:
    t = t.astype(np.float64)
    variance = ((t - t.mean(-1, keepdims=True)) ** 2).mean(-1, keepdims=True)
    return (t - t.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-5)


def reference_rms_norm(t: np.ndarray) -> np.ndarray:
    t = t.astype(np.float64)
    return t / np.sqrt((t**2).mean(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("width", WIDTHS)
def test_norms(norms: CudaOnCpu, rng: np.random.Generator, width: int) -> None:
    a, b = 3 + normal(rng, 2, 3, width), normal(rng, 2, 3, width)
    scale, bias, shift = normal(rng, width), normal(rng, width), normal(rng, width)
    want = reference_layer_norm(a) * scale + bias
    assert_close(norms(f"layer_norm{width}", a, scale, bias)[0], want, length=width + 8)
    want = reference_rms_norm(a) * scale
    assert_close(norms(f"rms_norm{width}", a, scale)[0], want, length=width + 8)

    total, out = norms(f"add_layer_norm{width}", a, b, scale, bias, shift)
    want = a.astype(np.float64) + shift + b
    assert_close(total, want, length=2)
    assert_close(out, reference_layer_norm(want) * scale + bias, length=width + 8)
    total, out = norms(f"add_rms_norm{width}", a, b, scale)
    want = a.astype(np.float64) + b
    assert_close(total, want, length=2)
    assert_close(out, reference_rms_norm(want) * scale, length=width + 8)


def test_norm_of_a_large_mean_loses_nothing(norms: CudaOnCpu, rng: np.random.Generator) -> None:
    x = (1000 + normal(rng, 4, 40)).astype(np.float32)
    (got,) = norms("bare", x)
    # The mean, near 1,000, is rounded: so much of the result, of size 1, is not the kernel's.
    assert_within(got, reference_layer_norm(x), 2 * 1000 * UNIT["float32"])


@pytest.fixture(scope="module")
def softmaxes(directory: Path) -> CudaOnCpu:
    functions = {"symbolic": softmax(("b", "h", "s"), "t"), "known": softmax(("rows",), 129)}
    return CudaOnCpu(functions, directory)


def reference_softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("width", [1, 31, 128, 300])
def test_softmax(softmaxes: CudaOnCpu, rng: np.random.Generator, width: int) -> None:
    x = 5 * normal(rng, 2, 3, 2, width)
    assert_close(softmaxes("symbolic", x)[0], reference_softmax(x), length=width + 8)


def test_softmax_of_masked_and_broken_rows(softmaxes: CudaOnCpu, rng: np.random.Generator) -> None:
    x = normal(rng, 4, 129)
    x[0, 5:] = -np.inf
    x[1] = -np.inf
    x[2, 77] = np.nan
    (got,) = softmaxes("known", x)
    assert_close(got[[0, 3]], reference_softmax(x[[0, 3]]), length=129)
    assert not got[0, 5:].any()
    assert not got[1].any(), "a row that is masked fully is zeros"
    assert np.isnan(got[2]).all(), "NaN stays visible"
