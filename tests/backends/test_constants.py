"""Constants at the edges of their types: what a graph computes with them, on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable

BACKENDS = ["numpy", "cpu"]
NDArray = np.ndarray[Any, Any]
INF = np.inf


def result(backend: str, make: Callable[[Any], Any], x: NDArray) -> NDArray:
    with tfgraph.graph("g") as g:
        g.output("y", make(g.input("x", str(x.dtype), *x.shape)))
    with tfgraph.compile(g.build(), backend) as model:
        found: NDArray = model(x=x)["y"]
    return found


def same(got: NDArray, want: Any) -> None:
    """The same bits, all NaNs being alike."""
    wanted = np.asarray(want, got.dtype)
    np.testing.assert_array_equal(got, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


def full(value: Any, dtype: str) -> Any:
    return ops.full(shape=(1,), value=value, dtype=dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("dtype", "make", "want"),
    [
        ("int8", lambda: full(100, "i8") + full(100, "i8"), -56),
        ("int8", lambda: full(-128, "i8") * -1, -128),
        ("int8", lambda: -full(-128, "i8"), -128),
        ("uint8", lambda: -full(1, "u8"), 255),
        ("uint8", lambda: full(3, "u8") - full(5, "u8"), 254),
        ("int32", lambda: full(2**31 - 1, "i32") + 1, -(2**31)),
        ("int64", lambda: full(2**62, "i64") * 4, 0),
        ("int64", lambda: full(2**62, "i64") * 2, -(2**63)),
        ("int64", lambda: full(2**62, "i64") - 1, 2**62 - 1),
    ],
)
def test_integers_wrap_around(backend: str, dtype: str, make: Any, want: int) -> None:
    got = result(backend, lambda x: x + make(), np.zeros(1, dtype))
    assert int(got[0]) == want


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda: full(3e38, "f32") * 10, INF),
        (lambda: full(3e38, "f32") + full(3e38, "f32"), INF),
        (lambda: full(3e38, "f32") * 10 / 10, INF),
        (lambda: full(1e-30, "f32") * 1e-30, 0.0),
        (lambda: full(1, "f32") / full(0, "f32"), INF),
        (lambda: -full(0, "f32"), -0.0),
        (lambda: full(0, "f32") * -3, -0.0),
        (lambda: full(0, "f32") / -3, -0.0),
        (lambda: full(3, "f32") - 3, 0.0),
    ],
)
def test_floats_overflow_and_keep_their_sign(backend: str, make: Any, want: float) -> None:
    x = np.ones(1, np.float32)  # times it, since x + -0 is no -0
    same(result(backend, lambda x: x * make(), x), [want])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("make", "want"),
    [
        # A scalar is what the tensors' type holds of it: here 0, ...
        (lambda x: x * 1e-60, [0, -0.0, np.nan, np.nan]),
        (lambda x: x / 1e-60, [np.nan, -INF, INF, np.nan]),
        # ... and here the float32 nearest to 0.1.
        (lambda x: ops.cast(ops.equal(ops.minimum(x, 0.1), 0.1), dtype="f32"), [0, 0, 1, 0]),
        (lambda x: x * 3.4028235e38, [0, -3.4028235e38, INF, np.nan]),
        (lambda x: x * 3.4028235677973362e38, [0, -3.4028235e38, INF, np.nan]),
    ],
)
def test_a_scalar_is_rounded_once(backend: str, make: Any, want: list[float]) -> None:
    same(result(backend, make, np.array([0, -1, INF, np.nan], np.float32)), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tenth_is_that_of_the_type(backend: str) -> None:
    x = np.array([0.1, 0.3, 1 / 3], np.float32)
    for value, want in ((0.1, [1, 0, 0]), (0.3, [0, 1, 0])):
        got = result(backend, lambda x, v=value: ops.cast(ops.equal(x, v), dtype="f32"), x)
        same(got, want)
        got = result(backend, lambda x, v=value: ops.cast(ops.less(v, x), dtype="f32"), x)
        same(got, [1.0 if n > np.float32(value) else 0.0 for n in x])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["scalar", "tensor", "column"])
def test_a_power_of_one_half_is_no_root(backend: str, form: str) -> None:
    """IEEE 754: pow(-inf, 0.5) is inf, pow(-0, 0.5) is 0; the root of them is NaN and -0."""

    def power(x: Any) -> Any:
        if form == "scalar":
            return ops.pow_(x, 0.5)
        shape = (1, 7) if form == "tensor" else (1, 1)
        return ops.pow_(x, ops.full(shape=shape, value=0.5))

    x = np.array([[-INF, -0.0, 0.0, INF, 4, -4, np.nan]], np.float32)
    same(result(backend, power, x), [[INF, 0.0, 0.0, INF, 2, np.nan, np.nan]])


@pytest.mark.parametrize(
    ("write", "message", "hint"),
    [
        (lambda x: full(300, "u8"), "full: 300 does not fit u8", "u8 holds 0 to 255"),
        (lambda x: full(-129, "i8"), "full: -129 does not fit i8", "i8 holds -128 to 127"),
        (lambda x: full(2, "bool"), "full: 2 does not fit bool", "bool holds 0 to 1"),
        (lambda x: full(0.5, "i64"), "full: 0.5 is not an integer, but i64 holds them",
         "cast(x, dtype=...)"),
        (lambda x: full(70000, "f16"), "full: 70000 does not fit f16", "the largest f16 is 65504"),
        (lambda x: x * 1e300, "mul: 1e+300 does not fit f32",
         "the largest f32 is 3.4028235e+38"),
        (lambda x: 1e39 - x, "sub: 1e+39 does not fit f32", "the largest f32 is 3.4028235e+38"),
        (lambda x: ops.layer_norm(x, eps=1e300), "layer_norm: 1e+300 does not fit f32",
         "the largest f32 is 3.4028235e+38"),
        (lambda x: ops.rms_norm(x, eps=1e-50), "rms_norm: eps is 1e-50, which is 0 in f32", None),
        (lambda x: ops.add_layer_norm(x, x, eps=1e-46),
         "add_layer_norm: eps is 1e-46, which is 0 in f32", None),
    ],
)  # fmt: skip
def test_what_the_type_does_not_hold_is_refused(
    write: Callable[[Any], Any], message: str, hint: str | None
) -> None:
    with pytest.raises(TfgraphError) as caught, tfgraph.graph("g") as g:
        write(g.input("x", "f32", 2, 3))
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", ["s", "s + 3", "(s + 1)//2", 4])
def test_examples_of_lengths_go_up_to_a_size(backend: str, length: str | int) -> None:
    text = f"graph g(%x: f32[s,2], %n: i64[b] = lengths({length})) {{ return %x, %n }}"
    graph = tfgraph.parse_graph(text)
    assert tfgraph.parse_graph(tfgraph.print_graph(graph)) == graph
    with tfgraph.compile(graph, backend) as model:
        found = model.example({"s": 6, "b": 500})["n"]
    most = eval(str(length), {"s": 6})
    assert (found.min(), found.max()) == (1, most)
