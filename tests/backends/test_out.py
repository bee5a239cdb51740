"""`out=`: results written to the caller's arrays, or refused; the same words on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.contract import WEIGHTS, contract_graph, feeds
from helpers.foreign import Foreign

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.runtime import overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.backends.base import Executable

NDArray = np.ndarray[Any, Any]
PAST = {"past": 3}


@pytest.fixture(scope="module", params=["numpy", "cpu"])
def model(request: pytest.FixtureRequest) -> Iterator[Executable]:
    with tfgraph.compile(contract_graph(), request.param, weights=WEIGHTS) as executable:
        yield executable


def test_results_are_written_and_given_back(model: Executable) -> None:
    inputs = feeds(2, 7)
    want = model(dims=PAST, **inputs)
    out = {name: np.full_like(value, 1) for name, value in want.items()}
    got = model(dims=PAST, out=out, **inputs)
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name] is out[name]
        assert out[name].tobytes() == value.tobytes(), name


def test_some_may_be_given(model: Executable) -> None:
    inputs = feeds(2, 7)
    want = model(dims=PAST, **inputs)
    hidden = np.empty_like(want["hidden"])
    for _ in range(2):
        got = model(dims=PAST, out={"hidden": hidden}, **inputs)
        assert got["hidden"] is hidden
        for name, value in want.items():
            assert got[name].tobytes() == value.tobytes(), name
            assert name == "hidden" or not np.shares_memory(got[name], hidden)
    assert model(dims=PAST, out={}, **inputs).keys() == want.keys()


def test_one_array_serves_call_after_call(model: Executable) -> None:
    hidden = np.empty((2, 7, 8), np.float32)
    for seed in range(3):
        inputs = feeds(2, 7, seed)
        want = model(dims=PAST, **inputs)["hidden"]
        model(dims=PAST, out={"hidden": hidden}, **inputs)
        assert hidden.tobytes() == want.tobytes()


def unaligned(shape: tuple[int, ...]) -> NDArray:
    return np.zeros(4 * int(np.prod(shape)) + 1, np.uint8)[1:].view(np.float32).reshape(shape)


LAYOUTS: dict[str, Callable[[tuple[int, ...]], NDArray]] = {
    "unaligned": unaligned,
    "strided": lambda shape: np.zeros((*shape, 2), np.float32)[..., 1],
    "reversed": lambda shape: np.zeros(shape, np.float32)[::-1, :, ::-1],
    "transposed": lambda shape: np.zeros(shape[::-1], np.float32).T,
    "a window": lambda shape: np.zeros((9, 9, 9), np.float32)[: shape[0], : shape[1], : shape[2]],
    "crossed strides": lambda shape: np.lib.stride_tricks.as_strided(
        np.zeros(999, np.float32), shape, (36, 32, 4 * 67)
    ),
    "a subclass": lambda shape: np.zeros(shape, np.float32).view(np.recarray),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_array_may_lie_anywhere_in_memory(model: Executable, layout: str) -> None:
    inputs = feeds(2, 7)
    array = LAYOUTS[layout]((2, 7, 8))
    got = model(dims=PAST, out={"hidden": array}, **inputs)
    assert got["hidden"] is array
    assert array.tobytes() == model(dims=PAST, **inputs)["hidden"].tobytes()


def test_interleaved_arrays_share_nothing(model: Executable) -> None:
    """Also where their bounds cross, as columns of one matrix do."""
    inputs = feeds(2, 7)
    table = np.zeros((3, 2, 7, 8), np.float32)
    both = np.moveaxis(table, 0, -1)
    x, hidden, context = (both[..., i] for i in range(3))
    x[...] = inputs["x"]
    out = {"hidden": hidden, "context": context}
    got = model(dims=PAST, out=out, **{**inputs, "x": x})
    want = model(dims=PAST, **inputs)
    for name in out:
        assert got[name].tobytes() == want[name].tobytes()
    assert x.tobytes() == inputs["x"].tobytes()


def test_a_tensor_of_another_library(model: Executable) -> None:
    inputs = feeds(2, 7)
    tensor = Foreign(np.zeros((2, 7, 8), np.float32))
    got: Any = model(dims=PAST, out={"hidden": tensor}, **inputs)
    assert got["hidden"] is tensor
    assert tensor.x.tobytes() == model(dims=PAST, **inputs)["hidden"].tobytes()


def frozen(array: NDArray) -> NDArray:
    array.flags.writeable = False
    return array


GOOD = (2, 3, 8)
SHARED = np.zeros((4, 3, 8), np.float32)
READ_ONLY = "out 'hidden' is read-only"
OUTPUTS = ", ".join(o.name for o in contract_graph().outputs)
NEW = "pass numpy.empty((2, 3, 8), 'float32')"
REFUSED: list[tuple[Any, str, str | None]] = [
    (
        np.zeros(GOOD, np.float32),
        "out is a ndarray, expected a mapping from output names to arrays",
        None,
    ),
    ({"hiden": np.zeros(GOOD, "f4")}, "the model has no output 'hiden'", "did you mean 'hidden'?"),
    (
        {"hidden": None},
        "out 'hidden' is a NoneType, expected an array",
        NEW,
    ),
    (
        {"hidden": [1.0]},
        "out 'hidden' is a list, expected an array",
        NEW,
    ),
    (
        {"hidden": np.float32(1)},
        "out 'hidden' is a scalar, expected an array",
        NEW,
    ),
    (
        {"hidden": np.zeros(GOOD)},
        "out 'hidden' is float64, expected float32",
        NEW,
    ),
    (
        {"hidden": np.zeros(GOOD, ">f4")},
        "out 'hidden' is >f4, expected float32",
        NEW,
    ),
    (
        {"hidden": np.zeros((2, 4, 8), np.float32)},
        "out 'hidden' has shape [2, 4, 8], expected [2, 3, 8]",
        "it is hidden: float32[batch, seq, 8]",
    ),
    (
        {"hidden": np.zeros(48, np.float32)},
        "out 'hidden' has shape [48], expected [2, 3, 8]",
        "it is hidden: float32[batch, seq, 8]",
    ),
    (
        {"flat": np.zeros((5, 8), np.float32)},
        "out 'flat' has shape [5, 8], expected [6, 8]",
        "it is flat: float32[batch*seq, 8]",
    ),
    (
        {"hidden": frozen(np.zeros(GOOD, np.float32))},
        READ_ONLY,
        "pass an array that may be written",
    ),
    (
        {"hidden": np.broadcast_to(np.zeros((1, 3, 8), np.float32), GOOD)},
        READ_ONLY,
        "pass an array that may be written",
    ),
    (
        {"hidden": np.lib.stride_tricks.as_strided(np.zeros((3, 8), "f4"), GOOD, (0, 32, 4))},
        "out 'hidden' has elements that share memory, by its strides [0, 32, 4]",
        NEW,
    ),
    (
        {"hidden": np.lib.stride_tricks.as_strided(np.zeros(64, "f4"), GOOD, (64, 16, 4))},
        "out 'hidden' has elements that share memory, by its strides [64, 16, 4]",
        NEW,
    ),
    (
        {"hidden": SHARED[:2], "context": SHARED[1:3]},
        "out 'context' shares memory with out 'hidden'",
        "pass an array of its own",
    ),
    (
        {"hidden": np.ma.masked_array(np.zeros(GOOD, np.float32))},
        "out 'hidden' is a masked array, whose mask would be lost",
        NEW,
    ),
    (
        {1: np.zeros(GOOD, np.float32)},
        "the model has no output '1'",
        f"it has {OUTPUTS}",
    ),
    (
        {"hidden": np.lib.stride_tricks.as_strided(np.zeros(64, "f4"), GOOD, (48, 24, 4))},
        "out 'hidden' has elements that share memory, by its strides [48, 24, 4]",
        NEW,
    ),
    (
        {"hidden": Foreign(np.zeros(GOOD, np.float32), device=(2, 0))},
        "out 'hidden' is on a device, CUDA; expected memory of the CPU",
        "copy it first, in PyTorch by .cpu()",
    ),
]


@pytest.mark.parametrize(("out", "message", "hint"), REFUSED, ids=[r[1][:60] for r in REFUSED])
def test_what_does_not_fit_is_refused(
    model: Executable, out: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(TfgraphError) as error:
        model(dims=PAST, out=out, **feeds(2, 3))
    assert error.value.message == message
    assert error.value.hint == hint


def test_an_input_is_not_written_over(model: Executable) -> None:
    inputs = feeds(2, 3)
    for array in (inputs["x"], inputs["x"].reshape(6, 8).reshape(2, 3, 8), inputs["x"][::-1]):
        with pytest.raises(TfgraphError) as error:
            model(dims=PAST, out={"input": array}, **inputs)
        assert error.value.message == "out 'input' shares memory with input 'x'"


def test_a_call_that_is_refused_writes_nothing(model: Executable) -> None:
    inputs = feeds(2, 3)
    kept = np.full((2, 3, 8), 5, np.float32)
    wrong: list[dict[str, Any]] = [
        {"out": {"hidden": kept, "context": kept[0]}},
        {"out": {"hidden": kept}, "ids": inputs["ids"] + 50},
        {"out": {"hidden": kept}, "dims": {"past": 301}},
    ]
    for call in wrong:
        with pytest.raises(TfgraphError):
            model(**{"dims": PAST, **inputs, **call})
    assert (kept == 5).all()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_scalar_result(backend: str) -> None:
    with tfgraph.graph("g") as g:
        g.output("y", ops.sum_(g.input("x", "f32", "n"), axis=0))
    place = np.zeros((), np.float32)
    with tfgraph.compile(g.build(), backend) as model:
        assert model(x=np.ones(5, np.float32), out={"y": place})["y"] is place
    assert place == 5


@pytest.mark.parametrize("name", ["dims", "out"])
def test_an_input_cannot_have_the_name_of_an_argument(name: str) -> None:
    with tfgraph.graph("g") as g, pytest.raises(TfgraphError) as error:
        g.input(name, "f32", "n")
    assert error.value.message == (
        f"an input cannot be called '{name}', as an argument of every call is"
    )


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_an_input_may_be_called_self(backend: str) -> None:
    with tfgraph.graph("g") as g:
        g.output("out", ops.relu(g.input("self", "f32", "n")))
    with tfgraph.compile(g.build(), backend) as model:
        found: Any = model(self=np.array([-1, 2], np.float32))
    np.testing.assert_array_equal(found["out"], [0, 2])


def test_what_cannot_be_told_apart_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not taken for apart: two windows whose overlap NumPy would have to search for."""
    monkeypatch.setattr(overlap, "_PATIENCE", 1)
    memory = np.zeros(4096, np.float32)
    strides = [tuple(4 * n for n in steps) for steps in ((299, 37, 5), (293, 41, 7))]
    first, second = (
        np.lib.stride_tricks.as_strided(memory[start:], (3, 4, 5), s)
        for start, s in zip((0, 3), strides, strict=True)
    )
    with ops.graph("g") as g:
        x = g.input("x", "f32", 3, 4, 5)
        g.output("y", x * 2)
        g.output("z", x * 3)
    with tfgraph.compile(g.build(), "numpy") as two, pytest.raises(TfgraphError) as caught:
        two(x=np.ones((3, 4, 5), np.float32), out={"y": first, "z": second})
    assert "may share" in str(caught.value)
    assert not memory.any()
