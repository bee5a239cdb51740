"""Every op with an ONNX counterpart against `onnx.reference`, on each dtype that both take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  NumPy learns bfloat16
import numpy as np
import pytest
from helpers.onnx_oracle import EPS, Case, check, close, run_onnx, run_ours
from helpers.op_samples import takes
from helpers.tolerance import relative
from onnx import helper

from tfgraph.fuzz.schema import own_ops
from tfgraph.ir import DType
from tfgraph.ops import REGISTRY
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    NDArray = np.ndarray[Any, Any]

DTYPES = [
    DType(d) for d in ["float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool"]
]
TENSOR = helper.np_dtype_to_tensor_dtype


class Values:
    """Random and special elements of one dtype."""

    def __init__(self, kind: DType) -> None:
        self.dtype = numpy_dtype(kind)
        self.is_float = kind.is_float
        self.rng = np.random.default_rng(7)

    def __call__(self, *shape: int) -> NDArray:
        if self.is_float:
            return np.asarray(self.rng.normal(0, 2, shape)).astype(self.dtype)
        if self.dtype == np.bool_:
            return np.asarray(self.rng.random(shape) < 0.5)
        return np.asarray(self.rng.integers(0, 6, shape)).astype(self.dtype)

    def special(self) -> NDArray:
        """Zeros, ones, the ends of the range; of floats also inf, NaN and denormals."""
        if self.dtype == np.bool_:
            return np.array([False, True])
        if not self.is_float:
            info = np.iinfo(self.dtype)
            return np.array([0, 1, 2, 5, info.min, info.max, info.max - 1], self.dtype)
        f = np.finfo(self.dtype)
        ends = [f.max, f.tiny, f.smallest_subnormal, 3 * f.smallest_subnormal, np.inf]
        plain = [0.0, 0.5, 1.0, 1.5, 3.0, 10.25, 88.0, 1e-3, 1e4]
        signed = [s * v for v in (*plain, *ends) for s in (1, -1)]
        return np.array([*signed, np.nan], self.dtype)

    def finite(self) -> NDArray:
        special = self.special()
        return special[np.isfinite(special)] if self.is_float else special


Cases = "Iterator[Case]"


def binary(v: Values) -> Cases:
    shapes = [((3, 4), (3, 4)), ((1,), (5,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((2, 3), ())]
    for a, b in [*shapes, ((1, 1), (1,)), ((2, 3, 1, 5), (4, 5)), ((1, 3), (1, 3))]:
        yield Case((v(*a), v(*b)))
    yield Case((v.special()[:, None], v.special()))


def floats_power(v: Values) -> Cases:
    yield Case((np.abs(v(3, 4)), v(4)))
    # Bases and exponents of every kind, but none between whose float32 and float64 results a
    # rounded exponent makes more than some units of difference.
    yield Case((v.special()[:, None], np.array([-2, -1, 0, 0.5, 1, 2, 3], v.dtype)))


def unary(v: Values) -> Cases:
    for shape in [(3, 4), (1,), (), (2, 1, 3)]:
        yield Case((v(*shape),))
    yield Case((v.special(),))


def gelu(v: Values) -> Cases:
    for case in unary(v):
        size = np.abs(np.nan_to_num(case.inputs[0].astype(np.float64), posinf=0, neginf=0))
        yield Case(case.inputs, terms=size)


def where(v: Values) -> Cases:
    for c, a, b in [((3, 4), (3, 4), (3, 4)), ((4,), (2, 1, 4), (3, 1)), ((), (2,), (1, 2))]:
        yield Case((v.rng.random(c) < 0.5, v(*a), v(*b)))
    yield Case((np.array([[True], [False]]), v.special(), v.special()[::-1].copy()))


def cast(v: Values) -> Cases:
    for target in [*DTYPES, DType.bfloat16]:
        values = v.special()
        if v.is_float and target.is_int:  # out of range, the result is anything
            values = np.array([0.0, -0.0, 0.9, 1.5, 2.5, 100.7, 126.99], v.dtype)
            values = values if target == DType.uint8 else np.concatenate([values, -values])
        to = numpy_dtype(target)
        yield Case((values,), {"dtype": target.value}, {"to": TENSOR(to)})


def reshape(v: Values) -> Cases:
    for old, new in [((2, 6), (3, 4)), ((6,), (1, 6, 1)), ((1,), ()), ((2, 3, 4), (24,))]:
        yield Case((v(*old),), {"shape": new}, shape_inputs=(np.array(new, np.int64),))


def transpose(v: Values) -> Cases:
    for shape, perm in [((2, 3), (1, 0)), ((2, 1, 3, 4), (0, 2, 1, 3)), ((5,), (0,))]:
        yield Case((v(*shape),), {"perm": perm}, {"perm": perm})
    yield Case((v(2, 3, 4),), {"perm": (2, 0, 1)}, {"perm": (2, 0, 1)})


def expand(v: Values) -> Cases:
    for old, new in [((3, 1), (2, 3, 4)), ((), (2,)), ((1,), (1,)), ((2, 3), (2, 3))]:
        yield Case((v(*old),), {"shape": new}, shape_inputs=(np.array(new, np.int64),))


def concat(v: Values) -> Cases:
    for axis in (0, 1, -1):
        parts = [[2, 3, 2], [2, 3, 2], [2, 3, 2]]
        parts[1][axis], parts[2][axis] = 1, 4
        yield Case(tuple(v(*p) for p in parts), {"axis": axis}, {"axis": axis})
    yield Case((v.special(),), {"axis": 0}, {"axis": 0})


def gather(v: Values) -> Cases:
    for axis, shape in [(0, ()), (0, (3,)), (1, (2, 2)), (-1, (1,)), (2, (2, 1))]:
        indices = v.rng.integers(0, 3, shape).astype([np.int64, np.int32][axis % 2])
        yield Case((v(3, 4, 5), np.asarray(indices)), {"axis": axis}, {"axis": axis})


def reduce(v: Values) -> Cases:
    for axis in (0, 1, -1):
        for keep in (False, True):
            for x in (v(3, 4, 65), v(1, 1, 1), *([v.finite()[None] // 64] if v.is_float else [])):
                if axis == 1 and x.ndim < 3:
                    continue
                sizes = np.abs(x.astype(np.float64)).sum(axis).max(initial=0)
                yield Case(
                    (x,), {"axis": axis, "keepdims": keep}, {"keepdims": int(keep)},
                    (np.array([axis], np.int64),), n=x.shape[axis], terms=sizes,
                )  # fmt: skip
    for x in np.stack([v.special(), v.special()[::-1]], -1) if v.is_float else []:
        yield Case((x,), {"keepdims": True}, {}, (np.array([0], np.int64),), n=2)


def cumsum(v: Values) -> Cases:
    for axis in (0, -1):
        x = v(3, 65)
        sizes = np.abs(x.astype(np.float64)).sum(axis).max()
        axes = (np.array(axis, np.int64),)
        yield Case((x,), {"axis": axis}, shape_inputs=axes, n=x.shape[axis], terms=sizes)


def topk(v: Values) -> Cases:
    ties = np.array([[2, 1, 2, 2, 0, 1], [1, 1, 1, 1, 1, 1]], v.dtype)
    special = v.special()
    one_nan = np.concatenate([special, special[~np.isnan(special)]])
    for x in (v(2, 3, 7), ties, one_nan, v(1)):
        for k in (1, x.shape[-1] // 2 or 1, x.shape[-1]):
            yield Case((x,), {"k": k}, {"axis": -1}, (np.array([k], np.int64),))


def matmul(v: Values) -> Cases:
    for a, b in [
        ((3, 4), (4, 5)),
        ((2, 1, 3, 65), (4, 65, 2)),
        ((1, 1), (1, 1)),
        ((5, 2, 3), (3, 2)),
    ]:
        x, y = v(*a), v(*b)
        sizes = np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64))
        yield Case((x, y), n=a[-1], terms=sizes)


def softmax(v: Values) -> Cases:
    for axis in (-1, 0, 1):
        x = v(3, 65)
        x[1, :5] = -np.inf
        yield Case((x,), {"axis": axis % 2}, {"axis": axis % 2}, n=65, terms=10)
    large = np.array([[1e4, 1e4 - 8, -1e4], [-1e4, -1e4, -1e4 - 8]], v.dtype)
    for x in (large, v(1, 1), np.array([[np.nan, 1], [np.inf, 1], [-np.inf, np.nan]], v.dtype)):
        yield Case((x,), {}, {"axis": -1}, n=2, terms=10)


def norm(v: Values, bias: bool) -> Cases:
    for shape in [(2, 3, 64), (5, 1), (7,), (1, 65)]:
        row = shape[-1]
        rows = (v(row), v(row)) if bias else (v(row),)
        for eps in (1e-5, 1e-12 if EPS[v.dtype.name] < 1e-4 else 1e-3):
            # A row of one element, less its mean, is 0 / sqrt(eps).
            yield Case(
                (v(*shape), *rows), {"eps": eps}, {"epsilon": eps, "axis": -1}, n=row, terms=10
            )


def constant(v: Values) -> Cases:
    for shape in [(2, 3), (6,), (1, 6, 1)]:
        x = v(*shape)
        numbers = [n if v.is_float else int(n) for n in x.ravel().tolist()]
        yield Case(
            (), {"values": numbers, "shape": shape, "dtype": v.dtype.name},
            {"value": helper.make_tensor("v", TENSOR(v.dtype), shape, x)},
        )  # fmt: skip


def full(v: Values) -> Cases:
    for shape in [(2, 3), (1,), ()]:
        value = np.array([3 if v.dtype != np.bool_ else 1], v.dtype)
        yield Case(
            (), {"shape": shape, "value": int(value[0]), "dtype": v.dtype.name},
            {"value": helper.make_tensor("v", TENSOR(v.dtype), [1], value)},
            (np.array(shape, np.int64),),
        )  # fmt: skip


BINARY = "add sub mul div maximum minimum equal less logical_and logical_or"
UNARY = "logical_not neg abs exp log sqrt sin cos tanh erf floor relu sigmoid"
CASES: dict[str, Callable[[Values], Cases]] = {
    **dict.fromkeys(["add", "sub", "mul", "div", "maximum", "minimum", "equal", "less"], binary),
    **dict.fromkeys(("logical_and", "logical_or"), binary),
    **dict.fromkeys(
        ["logical_not", "neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "floor"],
        unary,
    ),
    **dict.fromkeys(("relu", "sigmoid"), unary),
    **dict.fromkeys(("sum", "mean", "max"), reduce),
    "gelu": gelu,
    "pow": floats_power,
    "where": where,
    "cast": cast,
    "reshape": reshape,
    "transpose": transpose,
    "broadcast_to": expand,
    "concat": concat,
    "take": gather,
    "cumsum": cumsum,
    "topk": topk,
    "matmul": matmul,
    "softmax": softmax,
    "layer_norm": lambda v: norm(v, bias=True),
    "rms_norm": lambda v: norm(v, bias=False),
    "full": full,
    "constant": constant,
}
WITH_ONNX = [name for name in own_ops() if REGISTRY[name].onnx]


def test_every_op_with_an_onnx_name_has_cases() -> None:
    assert set(CASES) == set(WITH_ONNX)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in WITH_ONNX for kind in takes(REGISTRY[name]) if kind in DTYPES],
    ids=lambda v: v.short if isinstance(v, DType) else v,
)
def test_agrees_with_onnx(name: str, kind: DType) -> None:
    cases = list(CASES[name](Values(kind)))
    assert cases
    for case in cases:
        check(name, case)


# Ops whose ONNX form is another operator, or several.

v32 = Values(DType.float32)


@pytest.mark.parametrize("kind", [DType.float64, DType.float32, DType.float16], ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 65), (1, 65), (2, 65)], ids=str)
def test_linear_is_matmul_and_add(kind: DType, shape: tuple[int, ...]) -> None:
    v = Values(kind)
    x, weight, bias = v(*shape), v(65, 7), v(7)
    terms = np.abs(x.astype(np.float64)) @ np.abs(weight.astype(np.float64)) + 8
    (product,) = run_onnx("MatMul", [x, weight])
    (total,) = run_onnx("Add", [product, bias])
    close(run_ours("linear", [x, weight])[0], product, 70 * EPS[kind.value], terms)
    close(run_ours("linear", [x, weight, bias])[0], total, 70 * EPS[kind.value], terms)


@pytest.mark.parametrize("kind", [DType.float32, DType.int64, DType.bool_], ids=str)
@pytest.mark.parametrize(
    ("axis", "start", "stop"), [(0, 0, 2), (1, 1, 3), (-1, 2, 5), (2, 0, 5), (1, 2, 3)]
)
def test_slice(kind: DType, axis: int, start: int, stop: int) -> None:
    x = Values(kind)(3, 4, 5)
    ends = [np.array([n], np.int64) for n in (start, stop, axis)]
    (want,) = run_onnx("Slice", [x, *ends])
    (got,) = run_ours("slice", [x], axis=axis, start=start, stop=stop)
    np.testing.assert_array_equal(got, want)
    assert got.shape == want.shape


@pytest.mark.parametrize("ids", [np.int64, np.int32])
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (1, 1)], ids=str)
def test_embedding_is_gather(ids: Any, shape: tuple[int, ...]) -> None:
    indices = np.asarray(v32.rng.integers(0, 9, shape)).astype(ids)
    table = v32(9, 4)
    (want,) = run_onnx("Gather", [table, indices], axis=0)
    (got,) = run_ours("embedding", [indices, table])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("length", [1, 7])
def test_iota_is_range(length: int) -> None:
    ends = [np.array(n, np.int64) for n in (0, length, 1)]
    np.testing.assert_array_equal(run_ours("iota", [], length=length)[0], *run_onnx("Range", ends))


def test_gelu_tanh_is_gelu_with_approximation() -> None:
    x = v32(100).astype(np.float64)
    (want,) = run_onnx("Gelu", [x], approximate="tanh")
    # ONNX holds sqrt(2/pi) in float32.
    close(run_ours("gelu_tanh", [x])[0], want, relative("float32"), np.abs(x))


def test_silu_is_swish_of_one() -> None:
    x = v32(100).astype(np.float64)
    (want,) = run_onnx("Swish", [x], alpha=1.0)
    close(run_ours("silu", [x])[0], want, relative("float64", 4))


def test_quick_gelu_is_swish_of_1_702() -> None:
    x = v32(100).astype(np.float64)
    (want,) = run_onnx("Swish", [x], alpha=1.702)
    close(run_ours("quick_gelu", [x])[0], want, relative("float32"))  # so ONNX holds alpha


# Where we differ from ONNX, on purpose.


def test_softmax_of_a_row_of_minus_inf_is_zeros_where_onnx_gives_nan() -> None:
    x = np.full((2, 3), -np.inf, np.float32)
    x[1, 1] = 0
    (got,) = run_ours("softmax", [x])
    np.testing.assert_array_equal(got, [[0, 0, 0], [0, 1, 0]])
    (want,) = run_onnx("Softmax", [x])
    assert np.isnan(want[0]).all()
    np.testing.assert_array_equal(want[1], got[1])
