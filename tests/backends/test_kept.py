"""What a step is given at every call is looked at once. When it is another array, or has become
another, it is looked at again: a call says and gives what one on all inputs would."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.generating import VOCABULARY, compiled

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Fill, as_dim, exact
from tfgraph.runtime.arrays import aligned_empty

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.runtime.kept import Kept
    from tfgraph.runtime.runnable import Runnable

    Array = np.ndarray[Any, Any]
    Change = Callable[[Kept], None]

MODELS = ["learned", "encoder-decoder"]
K = "layers.1.k"


def step_of(name: str) -> Runnable:
    return compiled(name).functions["step"]


def arrays_of(step: Runnable, batch: int = 2, capacity: int = 16) -> dict[str, Array]:
    """All inputs but the tokens."""
    rng = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for port in step.inputs:
        if port.name != "input_ids":
            sizes = {"batch": batch, "capacity": capacity, "source": 5}
            shape = tuple(d if isinstance(d, int) else sizes[d] for d in port.shape)
            made[port.name] = aligned_empty(shape, port.dtype)
            made[port.name][...] = rng.integers(0, 2, shape) * (port.dtype != "int64")
    if "attention_mask" in made:
        made["attention_mask"][...] = 1
    return made


def ids(count: int = 1, batch: int = 2) -> Array:
    return np.arange(batch * count).reshape(batch, count) % VOCABULARY


def fresh(step: Runnable, arrays: dict[str, Array], end: int, tokens: Array) -> dict[str, Array]:
    """A call on all inputs, of copies in the same layout."""
    copies = {name: array.copy() for name, array in arrays.items()}
    return step(dims={"end": end}, input_ids=tokens, **copies)


def begun(name: str) -> tuple[Runnable, Kept]:
    """After two calls, of which the second has looked at nothing that stays."""
    step = step_of(name)
    kept = step.keep(arrays_of(step))
    step.resume(kept, {"end": 2}, input_ids=ids(2))
    step.resume(kept, {"end": 3}, input_ids=ids())
    return step, kept


def narrow(array: Array) -> Array:
    """The same elements in a layout that kernels don't read."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def one_row(array: Array) -> Array:
    strides = (0, *array.strides[1:])
    return np.lib.stride_tricks.as_strided(array, array.shape, strides)


WRONG: dict[str, tuple[str, Callable[[Array], Any]]] = {
    "another capacity": (K, lambda a: a[:, :7].copy()),
    "another batch": (K, lambda a: a[:1].copy()),
    "another width": (K, lambda a: a[..., :-1].copy()),
    "another rank": (K, lambda a: a[0].copy()),
    "another dtype": (K, lambda a: a.astype(np.float64)),
    "another byte order": (K, lambda a: a.astype(">f4")),
    "no array": (K, lambda a: a.tolist()),
    "read-only": (K, read_only),
    "one row for all": (K, one_row),
    "an input of another dtype": ("first", lambda a: a.astype(np.int32)),
    "an input of another batch": ("first", lambda a: np.zeros(3, np.int64)),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", MODELS)
def test_an_array_that_is_replaced_by_a_wrong_one_is_refused(name: str, wrong: str) -> None:
    """In the words of a call on all inputs; and what was there before goes on."""
    step, kept = begun(name)
    which, change = WRONG[wrong]
    before = kept.arrays[which]
    kept.arrays[which] = change(before)
    with pytest.raises(TfgraphError) as want:
        step(dims={"end": 4}, input_ids=ids(), **kept.arrays)
    with pytest.raises(TfgraphError) as got:
        step.resume(kept, {"end": 4}, input_ids=ids())
    assert str(got.value) == str(want.value)
    kept.arrays[which] = before
    expected = fresh(step, kept.arrays, 4, ids())["logits"]
    assert (step.resume(kept, {"end": 4}, input_ids=ids())["logits"] == expected).all()


@pytest.mark.parametrize("wrong", WRONG)
def test_an_array_that_is_wrong_from_the_start_is_refused(wrong: str) -> None:
    """At once or at the first call."""
    step = step_of("learned")
    arrays = arrays_of(step)
    which, change = WRONG[wrong]
    arrays[which] = change(arrays[which])
    with pytest.raises(TfgraphError) as want:
        step(dims={"end": 4}, input_ids=ids(), **arrays)
    with pytest.raises(TfgraphError) as got:
        step.resume(step.keep(arrays), {"end": 4}, input_ids=ids())
    assert type(got.value) is type(want.value)


def in_place(which: str, change: Callable[[Array], Any]) -> Change:
    return lambda kept: change(kept.arrays[which])


def replaced(which: str, change: Callable[[Array], Any]) -> Change:
    def replace(kept: Kept) -> None:
        kept.arrays[which] = change(kept.arrays[which])

    return replace


def all_grown(kept: Kept) -> None:
    for name, array in kept.arrays.items():
        if name.startswith("layers"):
            kept.arrays[name] = np.concatenate([array, array], axis=1)


RIGHT: dict[str, Change] = {
    "nothing": lambda kept: None,
    "a state of other values": replaced(K, lambda a: a + 1),
    "a state in a layout that kernels don't read": replaced(K, narrow),
    "an input of other values": replaced("first", lambda a: a + 1),
    "an input's values": in_place("first", lambda a: a.__setitem__(0, 1)),
    "a read-only input": replaced("first", read_only),
    "all states of more room": all_grown,
}


@pytest.mark.parametrize("what", RIGHT)
@pytest.mark.parametrize("name", MODELS)
def test_an_array_that_is_replaced_is_the_one_that_is_read_and_written(
    name: str, what: str
) -> None:
    step, kept = begun(name)
    RIGHT[what](kept)
    given = dict(kept.arrays)
    for end in (4, 5, 6):
        want = fresh(step, kept.arrays, end, ids())
        got = step.resume(kept, {"end": end}, input_ids=ids())
        assert (got["logits"] == want["logits"]).all()
        for port in step.inputs:
            if port.is_state:
                assert np.array_equal(given[port.name], want[port.name]), port.name


def test_values_that_a_kernel_reads_from_a_copy_are_those_of_the_call() -> None:
    """An array that kernels don't read where it lies is copied at every call, not at the first."""
    step = step_of("encoder-decoder")
    arrays = arrays_of(step)
    memory = arrays["memory.1"] = narrow(arrays["memory.1"])
    state = arrays[K] = narrow(arrays[K])
    kept = step.keep(arrays)
    for end in (2, 3, 4):
        memory += 1
        state += 1
        want = fresh(step, arrays, end, ids())
        got = step.resume(kept, {"end": end}, input_ids=ids())
        assert (got["logits"] == want["logits"]).all()
        assert np.array_equal(state, want[K])


def test_an_array_that_changes_its_own_size_is_looked_at_again() -> None:
    """NumPy lets go of the memory that it had."""
    step, kept = begun("learned")
    array = kept.arrays[K] = np.zeros(kept.arrays[K].shape, np.float32)
    step.resume(kept, {"end": 4}, input_ids=ids())
    array.resize((2, 5, 12), refcheck=False)
    with pytest.raises(TfgraphError, match=r"capacity is 16 in axis 1 of 'layers.0.k', but 5 in"):
        step.resume(kept, {"end": 5}, input_ids=ids())


@pytest.mark.parametrize(
    ("dims", "tokens"),
    [
        ({"end": 4, "capacity": 1000}, ids()),
        ({"end": 4, "batch": 1}, ids()),
        ({"end": 17}, ids()),
        ({"end": 4}, ids(batch=3)),
        ({"end": 4}, ids(5)),
        ({"end": 4, "Capacity": 3}, ids()),
        ({}, ids()),
        ({"end": 4}, ids().astype(np.int32)),
        ({"end": 4}, ids() + VOCABULARY),
    ],
)
def test_other_inputs_and_sizes_must_agree_with_what_stays(
    dims: dict[str, int], tokens: Array
) -> None:
    step, kept = begun("learned")
    with pytest.raises(TfgraphError) as want:
        step(dims=dims, input_ids=tokens, **kept.arrays)
    with pytest.raises(TfgraphError) as got:
        step.resume(kept, dims, input_ids=tokens)
    assert str(got.value) == str(want.value)


@cache
def others_decide() -> Runnable:
    """Inputs whose shapes, ids or bools cannot be settled without looking at each call."""
    with ops.graph("others_decide") as g:
        x = g.input("x", "f32", "batch", "new", 4)
        both = g.input("both", "f32", "batch", as_dim("room") + "new", 4)
        table = g.input("table", "f32", "room", 4)
        at = g.input("at", "i64", "batch", fill=Fill("ids", exact(1)))
        flag = g.input("flag", "bool", "batch")
        g.output("x", ops.mul(x, 2))
        g.output("both", ops.mul(both, 2))
        g.output("row", ops.embedding(at, table))
        g.output("flag", ops.logical_not(flag))
    return tfgraph.compile(g.build(), "cpu")


def of_others() -> tuple[Kept, Array]:
    """Called once with what is then refused or not; and the last input."""
    kept = others_decide().keep(
        {
            "both": np.zeros((2, 8, 4), np.float32),
            "table": np.ones((5, 4), np.float32),
            "at": np.array([0, 4]),
            "flag": np.array([True, False]),
        }
    )
    x = np.zeros((2, 3, 4), np.float32)
    others_decide().resume(kept, {}, x=x)
    return kept, x


def longer(kept: Kept, x: Array) -> Array:
    return np.concatenate([x, x], axis=1)


def out_of_the_table(kept: Kept, x: Array) -> Array:
    kept.arrays["at"][1] = 5
    return x


def no_bool(kept: Kept, x: Array) -> Array:
    kept.arrays["flag"].view(np.uint8)[0] = 2
    return x


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (longer, "axis 1 of 'both' is 8, expected new + room = 11"),
        (out_of_the_table, "input 'at' holds 5, expected 0 to 4"),
        (no_bool, "input 'flag' holds a byte that is neither 0 nor 1"),
    ],
)
def test_what_others_decide_and_elements_are_looked_at_each_time(
    change: Callable[[Kept, Array], Array], error: str
) -> None:
    kept, x = of_others()
    x = change(kept, x)
    with pytest.raises(TfgraphError) as want:
        others_decide()(x=x, **kept.arrays)
    assert error in str(want.value)
    with pytest.raises(TfgraphError) as got:
        others_decide().resume(kept, {}, x=x)
    assert str(got.value) == str(want.value)
