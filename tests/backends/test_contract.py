"""What every backend promises its callers: the same on all of them, down to the words of errors.

A backend joins by its name in BACKENDS, also one that a plugin registered. One executable serves
all sizes here, as it does for users.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.contract import WEIGHTS, compile_small, contract_graph, feeds, meaning
from helpers.contract_refused import MEANINGLESS, REFUSED
from helpers.foreign import Foreign
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Fill, as_dim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.backends.base import Executable
    from tfgraph.ops import Builder

BACKENDS = ("numpy", "cpu")
SIZES = (1, 2, 3, 7, 63, 64, 65, 129)
NDArray = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(backend: str) -> Iterator[Executable]:
    executable = tfgraph.compile(contract_graph(), backend, weights=WEIGHTS)
    yield executable
    executable.close()


# Results


@pytest.mark.parametrize("size", SIZES)
def test_outputs_have_names_dtypes_shapes_and_values(model: Executable, size: int) -> None:
    for batch, seq in ((1, size), (3, size), (min(size, 16), 5)):
        inputs = feeds(batch, seq)
        got = model(dims={"past": 9}, **inputs)
        want = meaning(9, **inputs)
        assert list(got) == list(want) == [port.name for port in model.outputs]
        for port in model.outputs:
            value = got[port.name]
            assert type(value) is np.ndarray
            assert str(value.dtype) == port.dtype
            assert value.shape == want[port.name].shape
            if port.dtype == "float32":
                scale = float(np.abs(want[port.name]).max())  # what scores are rounded to
                length = 3 * 8 + seq
                assert_close(value, want[port.name], length=length, scale=scale, name=port.name)
            else:
                np.testing.assert_array_equal(value, want[port.name])


def test_dims_give_the_sizes_that_no_shape_tells(model: Executable) -> None:
    inputs = feeds(2, 4)
    for past in (1, 2, 77, 300):
        got = model(dims={"past": past}, **inputs)["positions"]
        np.testing.assert_array_equal(got, meaning(past, **inputs)["positions"])
    also = model(dims={"past": np.int64(3), "seq": 4}, **inputs)["positions"]
    np.testing.assert_array_equal(also, [3, 4, 5, 6])


def test_ports_describe_the_call(model: Executable) -> None:
    assert [str(port) for port in model.inputs] == [
        "ids: int64[batch, seq]",
        "keep: bool[batch, seq]",
        "x: float32[batch, seq, 8]",
    ]
    assert "flat: float32[batch*seq, 8]" in [str(port) for port in model.outputs]
    ranges = {name: (s.low, s.high) for name, s in model.symbols.items()}
    assert ranges == {"batch": (1, 16), "past": (1, 300), "seq": (1, 200)}


def test_what_every_executable_offers_besides_the_call(backend: str) -> None:
    with tfgraph.compile(contract_graph(), backend, weights=WEIGHTS) as model:
        assert model.name == "contract"
        assert repr(model).startswith(f"<contract for {backend}: ids: int64[batch, seq], ")
        assert model.sizes() == {"batch": 8, "past": 8, "seq": 8}
        sizes = model.sizes({"seq": np.int64(5)})
        assert sizes == {"batch": 8, "past": 8, "seq": 5}
        inputs = model.example({"seq": 5}, seed=1)
        assert {name: x.shape for name, x in inputs.items()} == {
            "ids": (8, 5),
            "keep": (8, 5),
            "x": (8, 5, 8),
        }
        assert model(dims={"past": 8}, **inputs)["hidden"].shape == (8, 5, 8)
        with pytest.raises(TfgraphError, match="the model has no symbol 'sqe'"):
            model.example({"sqe": 1})
        with pytest.raises(TfgraphError, match="dims: seq is '5', expected an integer"):
            model.sizes({"seq": "5"})  # type: ignore[dict-item]
        for ask in (model.example, model.sizes):
            for size in (0, 201):
                with pytest.raises(TfgraphError) as error:
                    ask({"seq": size})
                assert error.value.message == f"seq is {size} in dims, expected 1 to 200"


BY_NAME = "call it as model(ids=..., keep=..., x=...)"
MISTAKEN: list[tuple[Callable[[Any], object], str, str | None]] = [
    (lambda model: model(feeds(2, 3)["ids"]), "inputs go by name", BY_NAME),
    (lambda model: model(1, 2, **feeds(2, 3)), "inputs go by name", BY_NAME),
    (
        lambda model: model(feeds(2, 3)),
        "inputs go by name, not as a mapping",
        "call it as model(**inputs)",
    ),
    (
        lambda model: model.example(seq=3, batch=2),
        "example has no argument 'seq'",
        "sizes are given as model.example({'seq': 3, 'batch': 2})",
    ),
    (
        lambda model: model.example(3),
        "dims is a int, expected a mapping from symbols to sizes",
        "such as {'batch': 5}",
    ),
    (
        lambda model: model(dims=[("past", 3)], **feeds(2, 3)),
        "dims is a list, expected a mapping from symbols to sizes",
        "such as {'batch': 5}",
    ),
    (
        lambda model: model(dims={3: 3}, **feeds(2, 3)),
        "the model has no symbol '3'",
        "it has batch, past, seq",
    ),
]


@pytest.mark.parametrize(("call", "message", "hint"), MISTAKEN)
def test_a_mistaken_call_is_explained(
    model: Executable, call: Callable[[Any], object], message: str, hint: str | None
) -> None:
    with pytest.raises(TfgraphError) as error:
        call(model)
    assert error.value.message == message
    assert error.value.hint == hint


def test_the_same_inputs_give_the_same_bits(model: Executable) -> None:
    inputs = feeds(3, 65)
    first = model(dims={"past": 1}, **inputs)
    for _ in range(3):
        again = model(dims={"past": 1}, **inputs)
        for name, value in first.items():
            assert value.tobytes() == again[name].tobytes(), name


def test_a_row_has_the_same_bits_whatever_its_batch_mates() -> None:
    # Of the compiled backend alone: NumPy's matmul picks other kernels for other sizes.
    model = tfgraph.compile(contract_graph(), "cpu", weights=WEIGHTS)
    for seq in (1, 7, 65):
        inputs = feeds(9, seq)
        together = model(dims={"past": 1}, **inputs)
        for rows in (slice(0, 1), slice(4, 5), slice(8, 9), slice(2, 7)):
            some = model(dims={"past": 1}, **{k: v[rows] for k, v in inputs.items()})
            for name in ("hidden", "context"):
                assert some[name].tobytes() == together[name][rows].tobytes(), (name, seq, rows)
    model.close()


# Who owns what


def test_outputs_belong_to_the_caller(model: Executable) -> None:
    inputs = feeds(3, 7)
    first = model(dims={"past": 1}, **inputs)
    kept = {name: value.copy() for name, value in first.items()}
    for name, value in first.items():
        assert value.flags.writeable, name
        for other in (*inputs.values(), *WEIGHTS.values()):
            assert not np.shares_memory(value, other), name
        for also, other in first.items():
            assert also == name or not np.shares_memory(value, other), (name, also)
    model(dims={"past": 2}, **feeds(3, 7, seed=5))
    model(dims={"past": 2}, **feeds(16, 129, seed=6))
    for name, value in first.items():
        np.testing.assert_array_equal(value, kept[name], err_msg=name)
        value[...] = 1  # were it a weight's memory, the next call would see it
    again = model(dims={"past": 1}, **inputs)
    for name, value in again.items():
        np.testing.assert_array_equal(value, kept[name], err_msg=name)


def test_inputs_are_left_as_they_are(model: Executable) -> None:
    inputs = feeds(2, 65)
    before = {name: value.copy() for name, value in inputs.items()}
    model(dims={"past": 1}, **inputs)
    for name, value in inputs.items():
        np.testing.assert_array_equal(value, before[name])


def test_one_array_may_be_two_inputs(backend: str) -> None:
    def build(g: Builder) -> None:
        a, b = (g.input(name, "f32", "n") for name in ("a", "b"))
        g.output("y", ops.sub(a, b))

    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(compile_small(backend, build)(a=x, b=x)["y"], np.zeros(9))


def test_outputs_outlive_the_executable(backend: str) -> None:
    run = compile_small(backend, lambda g: g.output("y", ops.add(g.input("x", "f32", "n"), 1)))
    y = run(x=np.zeros(1000, np.float32))["y"]
    run.close()
    del run
    np.testing.assert_array_equal(y, np.ones(1000))


# How an input may lie in memory


def strided(x: NDArray) -> NDArray:
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def reversed_(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x[::-1])[::-1]


def transposed(x: NDArray) -> NDArray:
    return np.asfortranarray(x)


def read_only(x: NDArray) -> NDArray:
    y = x.copy()
    y.flags.writeable = False
    return y


def unaligned(x: NDArray) -> NDArray:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    y = memory[1:].view(x.dtype).reshape(x.shape)
    y[...] = x
    assert y.ctypes.data % 2 or not memory.ctypes.data % 2
    return y


def offset(x: NDArray) -> NDArray:
    """A window that starts at an element's boundary, but not at a cache line's."""
    memory = np.zeros(x.size + 3, x.dtype)
    y = memory[3:].reshape(x.shape)
    y[...] = x
    return y


def repeated(x: NDArray) -> NDArray:
    """The first row, repeated with a stride of 0."""
    return np.broadcast_to(x[:1], x.shape)


class Matrix(np.ndarray):  # type: ignore[type-arg]
    """A subclass, whose results must be plain arrays all the same."""


LAYOUTS = [strided, reversed_, transposed, read_only, unaligned, offset, repeated]
LAYOUTS += [lambda x: x.view(Matrix), Foreign]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_may_lie_anywhere_in_memory(
    model: Executable, layout: Callable[[NDArray], Any]
) -> None:
    inputs = {name: layout(x) for name, x in feeds(3, 7).items()}
    plain = {n: np.array(x.x if isinstance(x, Foreign) else x) for n, x in inputs.items()}
    got = model(dims={"past": 1}, **inputs)
    want = model(dims={"past": 1}, **plain)
    for name, value in want.items():
        assert value.tobytes() == got[name].tobytes(), name
        assert type(got[name]) is np.ndarray


def test_a_scalar_input(backend: str) -> None:
    run = compile_small(backend, lambda g: g.output("y", ops.mul(g.input("x", "f32"), 2)))
    for x in (np.array(1.5, np.float32), np.float32(1.5)):
        y = run(x=x)["y"]
        assert y.shape == ()
        assert y == 3.0


# What is refused, and in which words


@pytest.mark.parametrize(("inputs", "past", "message", "hint"), REFUSED, ids=lambda x: str(x)[:60])
def test_bad_calls_are_refused_in_the_same_words(
    model: Executable, inputs: dict[str, Any], past: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(TfgraphError) as error:
        model(dims=None if past is None else {"past": past}, **inputs)
    assert error.value.message == message
    assert error.value.hint == hint
    good = feeds(2, 3)  # and the executable still works
    assert model(dims={"past": 1}, **good)["input"].tobytes() == good["x"].tobytes()


def test_bad_dims_are_refused(model: Executable) -> None:
    with pytest.raises(TfgraphError) as error:
        model(dims={"past": 1, "sek": 3}, **feeds(2, 3))
    assert error.value.message == "the model has no symbol 'sek'"
    assert error.value.hint == "did you mean 'seq'?"
    with pytest.raises(TfgraphError, match=r"seq is 4 in dims, but 3 in axis 1 of 'ids'"):
        model(dims={"past": 1, "seq": 4}, **feeds(2, 3))


def test_ids_of_a_symbolic_table_are_checked(backend: str) -> None:
    def build(g: Builder) -> None:
        x, at = g.input("x", "f32", "rows", 2), g.input("at", "i32", "n", fill=Fill("zeros"))
        g.output("y", ops.take(x, at, axis=0))

    run, x = compile_small(backend, build), np.zeros((5, 2), np.float32)
    assert run(x=x, at=np.array([4, 0], np.int32))["y"].shape == (2, 2)
    for wrong in (5, -1):
        with pytest.raises(TfgraphError) as error:
            run(x=x, at=np.array([0, wrong], np.int32))
        assert error.value.message == f"input 'at' holds {wrong}, expected 0 to 4"


def test_derived_sizes_are_checked(backend: str) -> None:
    def build(g: Builder) -> None:
        total = as_dim("past") + "seq"
        a, b = g.input("a", "f32", "seq"), g.input("b", "f32", total)
        g.output("y", ops.add(ops.slice_(b, axis=0, start="past", stop=total), a))

    run = compile_small(backend, build)
    a, b = np.ones(3, np.float32), np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(run(a=a, b=b, dims={"past": 4})["y"], [5, 6, 7])
    with pytest.raises(TfgraphError) as error:
        run(a=a, b=b, dims={"past": 5})
    assert error.value.message == (
        "axis 0 of 'b' is 7, expected past + seq = 8: past = 5 (dims), seq = 3 (axis 0 of 'a')"
    )


@pytest.mark.parametrize(("build", "good", "bad", "message"), MEANINGLESS)
def test_sizes_for_which_an_op_has_no_meaning_are_refused(
    backend: str, build: Callable[[Builder], Any], good: int, bad: int, message: str
) -> None:
    run = compile_small(backend, lambda g: g.output("y", build(g)))
    also = {"also": np.zeros((2, 2), np.float32)} if "also" in str(run.inputs) else {}
    assert run(x=np.ones((good, 2), np.float32), **also)["y"].size
    with pytest.raises(TfgraphError) as error:
        run(x=np.ones((bad, 2), np.float32), **also)
    assert error.value.message == message


def test_results_that_are_not_finite_raise_no_warning(backend: str) -> None:
    def build(g: Builder) -> None:
        x = g.input("x", "f32", "n")
        g.output("y", ops.exp(x))
        g.output("z", ops.div(ops.mul(x, 0), 0.0))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = compile_small(backend, build)(x=np.array([1e4, -1e4, np.nan], np.float32))
    np.testing.assert_array_equal(got["y"], np.array([np.inf, 0, np.nan], np.float32))
    np.testing.assert_array_equal(got["z"], np.full(3, np.nan, np.float32))
