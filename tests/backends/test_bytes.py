"""How the bytes of inputs may lie: read right, without a copy where they can be, or refused; the
same words on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.contract import WEIGHTS, compile_small, contract_graph, feeds
from helpers.foreign import Broken, Foreign, NeedsGradient, NoDevice, Older

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.runtime import jit
from tfgraph.runtime.jit import ALIGNMENT, aligned_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tfgraph.backends.base import Executable

NDArray = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=["numpy", "cpu"])
def model(request: pytest.FixtureRequest) -> Iterator[Executable]:
    with tfgraph.compile(contract_graph(), request.param, weights=WEIGHTS) as executable:
        yield executable


X = feeds(2, 3)["x"]
IDS = feeds(2, 3)["ids"]
KEEP = feeds(2, 3)["keep"]


def aligned(x: NDArray) -> NDArray:
    y = aligned_empty(x.shape, x.dtype)
    y[...] = x
    return y


def read_only(x: NDArray) -> NDArray:
    y = x.copy()
    y.flags.writeable = False
    return y


def aligned_offset(x: NDArray) -> NDArray:
    y = aligned_empty((x.size + 1,), x.dtype)[1:].reshape(x.shape)
    y[...] = x
    return y


# Taken, besides those of test_contract.py: how the input lies, the name of the input


TAKEN: list[tuple[str, Callable[[NDArray], Any], str]] = [
    ("aligned", aligned, "x"),
    ("one element beside alignment", aligned_offset, "x"),
    ("a matrix", lambda x: np.asmatrix(x), "ids"),
    ("a record array", lambda x: x.view(np.recarray), "x"),
    ("a memory map", lambda x: x.view(np.memmap), "x"),
    ("a dtype with metadata", lambda x: x.astype(np.dtype("f4", metadata={"a": 1})), "x"),
    ("a dtype of the same size", lambda x: x.astype(np.longlong), "ids"),
    ("DLPack", Foreign, "x"),
    ("DLPack of ids", Foreign, "ids"),
    ("DLPack of bools", Foreign, "keep"),
    ("DLPack, strided", lambda x: Foreign(np.repeat(x, 2, axis=1)[:, ::2]), "x"),
    ("DLPack, negative strides", lambda x: Foreign(x[::-1].copy()[::-1]), "x"),
    ("DLPack, transposed", lambda x: Foreign(np.asfortranarray(x)), "x"),
    ("DLPack, repeated", lambda x: Foreign(np.broadcast_to(x[:1], x.shape)), "keep"),
    ("DLPack, read-only", lambda x: Foreign(read_only(x)), "x"),
    ("DLPack, pinned by CUDA", lambda x: Foreign(x, device=(3, 0)), "x"),
    ("DLPack before version 1", Older, "x"),
]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize(("layout", "name"), [t[1:] for t in TAKEN], ids=[t[0] for t in TAKEN])
def test_it_is_read_right(model: Executable, layout: Callable[[NDArray], Any], name: str) -> None:
    inputs = feeds(2, 3)
    given = layout(inputs[name])
    plain = np.array(given.x if isinstance(given, Foreign) else given)
    got = model(dims={"past": 1}, **{**inputs, name: given})
    want = model(dims={"past": 1}, **{**inputs, name: plain})
    for output, value in want.items():
        assert value.tobytes() == got[output].tobytes(), output


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_axes_of_one_element_may_have_any_stride(backend: str) -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", "a", "b", "c")
        g.output("y", ops.mul(x, 2))
    with tfgraph.compile(g.build(), backend) as run:
        memory = np.arange(64, dtype=np.float32)
        for shape, strides in (
            ((1, 1, 5), (-12, 100, 4)),
            ((3, 1, 1), (8, -4, 0)),
            ((1, 1, 1),) * 2,
        ):
            x_ = np.lib.stride_tricks.as_strided(memory[8:], shape, strides)
            np.testing.assert_array_equal(run(x=x_)["y"], 2 * x_)


# Without a copy


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of inputs that were copied for the kernels."""
    made: list[tuple[int, ...]] = []

    def counted(shape: tuple[int, ...], dtype: Any) -> NDArray:
        made.append(shape)
        return aligned_empty(shape, dtype)

    monkeypatch.setattr(jit, "aligned_empty", counted)
    return made


def test_what_is_aligned_is_not_copied(copies: list[tuple[int, ...]]) -> None:
    with tfgraph.compile(contract_graph(), "cpu", weights=WEIGHTS) as model:
        inputs = {name: aligned(x) for name, x in feeds(2, 3).items()}
        copies.clear()
        first = model(dims={"past": 1}, **inputs)
        assert copies == []
        tensors = {name: Foreign(x) for name, x in inputs.items()}
        model(dims={"past": 1}, **tensors)
        assert copies == []
        # What a model gives is aligned: the next takes it as it is.
        for value in first.values():
            assert value.ctypes.data % ALIGNMENT == 0
        model(dims={"past": 1}, **{**inputs, "x": first["hidden"]})
        assert copies == []
        for other in (aligned_offset(X), read_only(X), np.asfortranarray(X), X[::-1]):
            copies.clear()
            model(dims={"past": 1}, **{**inputs, "x": other})
            assert copies == [(2, 3, 8)]


def test_the_kernels_read_the_memory_of_the_caller(copies: list[tuple[int, ...]]) -> None:
    """Of an aligned array: its address is that of the tensor."""
    x = aligned(X)
    assert jit.as_tensor(x).data_ptr() == x.ctypes.data
    assert jit.as_tensor(aligned_offset(X)).data_ptr() != x.ctypes.data
    assert copies == [(2, 3, 8)]


# Refused


def convert(to: str) -> str:
    return f"convert it with .astype('{to}')"


MAKES = "numpy.asarray(x, 'float32') makes one"
ARRAYS = "NumPy arrays and DLPack tensors are taken"
AS_NUMPY = "pass it as a NumPy array"
UNREADABLE = "input 'x' cannot be read as an array: "
REFUSED: list[tuple[str, Any, str, str]] = [
    ("x", X.astype(object), "input 'x' is object, expected float32", convert("float32")),
    (
        "x",
        np.zeros((2, 3, 8), [("re", "f4")]),
        "input 'x' is [('re', '<f4')], expected float32",
        convert("float32"),
    ),
    ("x", X.astype("c8"), "input 'x' is complex64, expected float32", convert("float32")),
    ("x", X.astype("g"), "input 'x' is float128, expected float32", convert("float32")),
    ("x", X.astype("f2"), "input 'x' is float16, expected float32", convert("float32")),
    ("x", X.astype("i4"), "input 'x' is int32, expected float32", convert("float32")),
    ("ids", IDS.astype(">i8"), "input 'ids' is >i8, expected int64", convert("int64")),
    ("ids", IDS.astype("u8"), "input 'ids' is uint64, expected int64", convert("int64")),
    ("ids", IDS.astype("f8"), "input 'ids' is float64, expected int64", convert("int64")),
    ("ids", np.full((2, 3), np.nan), "input 'ids' is float64, expected int64", convert("int64")),
    ("ids", IDS.astype("U"), "input 'ids' is <U21, expected int64", convert("int64")),
    ("ids", IDS.astype("M8[s]"), "input 'ids' is datetime64[s], expected int64", convert("int64")),
    ("keep", KEEP.astype("i8"), "input 'keep' is int64, expected bool", convert("bool")),
    ("keep", KEEP.astype("u1"), "input 'keep' is uint8, expected bool", convert("bool")),
    ("keep", KEEP.astype("f4"), "input 'keep' is float32, expected bool", convert("bool")),
    (
        "keep",
        np.array([[1, 1, 0], [1, 2, 0]], np.uint8).view(bool),
        "input 'keep' holds a byte that is neither 0 nor 1, expected bool",
        "make it of the bytes by != 0, not by .view(bool)",
    ),
    ("x", X.tolist(), "input 'x' is a list, expected an array", MAKES),
    ("x", tuple(X), "input 'x' is a tuple, expected an array", MAKES),
    ("x", None, "input 'x' is a NoneType, expected an array", ARRAYS),
    ("x", 1.0, "input 'x' is a float, expected an array", MAKES),
    ("x", X.tobytes(), "input 'x' is a bytes, expected an array", ARRAYS),
    ("x", memoryview(X), "input 'x' is a memoryview, expected an array", ARRAYS),
    (
        "x",
        np.ma.masked_array(X, X > 0),
        "input 'x' is a masked array, whose mask would be lost",
        "fill it with .filled(VALUE), and pass the mask as an input of its own",
    ),
    (
        "x",
        Foreign(X, device=(2, 0)),
        "input 'x' is on a device, CUDA; expected memory of the CPU",
        "copy it first, in PyTorch by .cpu()",
    ),
    (
        "x",
        Foreign(X, device=(99, 0)),
        "input 'x' is on a device, DLPack type 99; expected memory of the CPU",
        "copy it first, in PyTorch by .cpu()",
    ),
    (
        "x",
        NeedsGradient(X),
        f"{UNREADABLE}Can't export tensors that require gradient, use tensor.detach()",
        AS_NUMPY,
    ),
    (
        "x",
        NoDevice(X),
        f"{UNREADABLE}'NoDevice' object has no attribute '__dlpack_device__'",
        AS_NUMPY,
    ),
    ("x", np.ndarray, "input 'x' is a type, expected an array", ARRAYS),
    *(
        ("x", Broken(X, error), f"{UNREADABLE}{said}", AS_NUMPY)
        for error, said in (
            (KeyError("boo"), "KeyError: 'boo'"),
            (IndexError("far"), "IndexError: far"),
            (ZeroDivisionError("by"), "ZeroDivisionError: by"),
            (NotImplementedError("no such device"), "no such device"),
        )
    ),
    ("x", Foreign(X, ()), f"{UNREADABLE}IndexError: tuple index out of range", AS_NUMPY),
    ("x", Foreign(X.astype("f8")), "input 'x' is float64, expected float32", convert("float32")),
]


@pytest.mark.parametrize(("name", "given", "message", "hint"), REFUSED)
def test_it_is_refused(model: Executable, name: str, given: Any, message: str, hint: str) -> None:
    with pytest.raises(TfgraphError) as error:
        model(dims={"past": 1}, **{**feeds(2, 3), name: given})
    assert error.value.message == message
    assert error.value.hint == hint


def test_a_read_only_tensor_of_an_older_library_is_refused(model: Executable) -> None:
    with pytest.raises(TfgraphError) as error:  # the reason is in NumPy's words
        model(dims={"past": 1}, **{**feeds(2, 3), "x": Older(read_only(X))})
    assert error.value.message.startswith(UNREADABLE)
    assert "readonly" in error.value.message
    assert error.value.hint == AS_NUMPY


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_scalar_input_may_be_any_array_without_axes(backend: str) -> None:
    run = compile_small(backend, lambda g: g.output("y", ops.mul(g.input("x", "f32"), 2)))
    two = np.array([1.5, 2.5], np.float32)
    frozen = np.broadcast_to(two[0], ())
    for x in (two[0], two[1:].reshape(()), np.asarray(two[0]), frozen, Foreign(np.array(two[1]))):
        assert run(x=x)["y"] in (3.0, 5.0)
    for wrong in (two[:1], two[:1].reshape(1, 1)):
        with pytest.raises(TfgraphError) as error:
            run(x=wrong)
        assert error.value.message == (
            f"input 'x' has shape {list(wrong.shape)}, expected x: float32[]"
        )
    run.close()


# Other libraries, where they are installed


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return pytest.importorskip("torch", reason="PyTorch is not installed")  # type: ignore[no-any-return]


def test_tensors_of_pytorch_go_in_and_out(model: Executable, torch: Any) -> None:
    inputs = feeds(2, 3)
    tensors = {name: torch.from_numpy(x) for name, x in inputs.items()}
    hidden = torch.zeros(2, 3, 8)
    got = model(dims={"past": 1}, out={"hidden": hidden}, **tensors)
    want = model(dims={"past": 1}, **inputs)
    assert got["hidden"] is hidden
    for name, value in want.items():
        assert torch.equal(torch.from_dlpack(got[name]), torch.from_numpy(value)), name


def test_outputs_are_given_to_others_without_a_copy(model: Executable) -> None:
    outputs = model(dims={"past": 1}, **feeds(2, 3))
    for name, value in outputs.items():
        assert np.shares_memory(np.from_dlpack(value), value), name
        value[...] = 1  # by __dlpack__ or not, it belongs to the caller
