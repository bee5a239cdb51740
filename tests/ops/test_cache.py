"""`cache_append`: its meaning against plain NumPy, and who may read a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Fill, Graph, as_dim
from tfgraph.text import parse_graph, print_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ops import Traced

WIDTH = 5


def caching(fill: str = "state") -> Graph:
    """What a step does with a cache: new rows end - seq .. end - 1."""
    with ops.graph("caching") as g:
        state = g.input("c", "f32", "batch", "capacity", WIDTH, fill=Fill(fill))
        new = g.input("x", "f32", "batch", "seq", WIDTH)
        end = g.symbol("end", 1, 300)
        g.constrain("seq", "<=", end)
        g.constrain(end, "<=", "capacity")
        g.output("c", ops.cache_append(state, new, at=end - "seq"))
    return g.build()


@pytest.mark.parametrize("target", ["numpy", "numpy, expanded", "cpu", "cpu, expanded"])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_new_rows_replace_the_old_ones(target: str, data: st.DataObject) -> None:
    batch, seq, before, behind = (data.draw(st.integers(n, 70)) for n in (1, 1, 0, 0))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    cache = rng.standard_normal((batch, before + seq + behind, WIDTH), np.float32)
    new = rng.standard_normal((batch, seq, WIDTH), np.float32)
    cache[0, before] = np.nan
    want = cache.copy()
    want[:, before : before + seq] = new
    got = compiled(target)(c=cache, x=new, dims={"end": before + seq})["c"]
    np.testing.assert_array_equal(got, want)


_COMPILED: dict[str, Any] = {}


def compiled(target: str) -> Any:
    if target not in _COMPILED:
        name, _, expanded = target.partition(", ")
        graph = ops.expand(caching("normal")) if expanded else caching()
        _COMPILED[target] = tfgraph.compile(graph, name, passes="dce")
    return _COMPILED[target]


def test_the_text_says_that_an_input_is_a_state() -> None:
    graph = caching()
    ops.verify(graph)
    text = print_graph(graph)
    assert "%c: f32[batch,capacity,5] = state()" in text
    assert parse_graph(text, "t.tfg") == graph


def read_twice(c: Traced, x: Traced) -> dict[str, Any]:
    return {"c": ops.cache_append(c, x, at=0), "d": ops.cache_append(c, x, at=1)}


REFUSED: dict[str, tuple[Callable[[Traced, Traced], dict[str, Any]], str]] = {
    "by an add": (
        lambda c, x: {"c": ops.cache_append(c, x, at=0), "y": ops.add(c, 1)},
        "state %c is read by %1 = add: one cache_append reads a state, and only that",
    ),
    "by two": (read_twice, "state %c is read by %1 = cache_append: "),
    "by nothing": (lambda c, x: {"c": x}, "state %c is read by nothing: "),
    "as the new rows": (
        lambda c, x: {"c": ops.cache_append(c, c, at=0)},
        "state %c is read by %0 = cache_append: ",
    ),
    "as an output": (
        lambda c, x: {"c": ops.cache_append(c, x, at=0), "old": c},
        "state %c is an output itself",
    ),
    "without its output": (
        lambda c, x: {"d": ops.cache_append(c, x, at=0)},
        "state %c: the output 'c' is not what cache_append makes of it",
    ),
    "with another output": (
        lambda c, x: {"c": ops.add(ops.cache_append(c, x, at=0), 1)},
        "state %c: the output 'c' is not what cache_append makes of it",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_state_is_read_by_one_cache_append(how: str) -> None:
    make, message = REFUSED[how]
    with ops.graph("wrong") as g:
        c = g.input("c", "f32", "batch", 9, WIDTH, fill=Fill("state"))
        x = g.input("x", "f32", "batch", 2, WIDTH)
        for name, value in make(c, x).items():
            g.output(name, value)
    with pytest.raises(TfgraphError) as error:
        ops.verify(g.build())
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("rows", "at", "message"),
    [
        ((1, 2, WIDTH), 8, "cache_append: rows 8 to 10 are not rows of f32[1,9,5]"),
        ((1, 2, WIDTH), -1, "cache_append: rows -1 to 1 are not rows of f32[1,9,5]"),
        ((1, 2, 4), 0, "cache_append: the width of f32[1,2,4] is 4, expected 5"),
        ((2, 2, WIDTH), 0, "cache_append: the batch of f32[2,2,5] is 2, expected 1"),
    ],
)
def test_rows_that_do_not_fit(rows: tuple[int, ...], at: int, message: str) -> None:
    with ops.graph("wrong") as g:
        c, x = g.input("c", "f32", 1, 9, WIDTH), g.input("x", "f32", *rows)
        with pytest.raises(TfgraphError) as error:
            ops.cache_append(c, x, at=as_dim(at))
    assert error.value.message == message


def test_a_parameter_is_no_state() -> None:
    text = "graph g(%x: f32[2]) {\n  %y = add(%x, %w) : f32[2]\n  return y=%y\n}\n"
    text += "weights {\n  %w : f32[2] = state()\n}\n"
    with pytest.raises(TfgraphError, match="%w: a parameter is no state: inputs are"):
        ops.verify(parse_graph(text, "t.tfg"))
