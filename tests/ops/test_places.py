"""Nodes know the user's file, line and column; mistakes in the DSL, and while a graph runs, are
reported there."""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfgraph import blocks
from tfgraph.blocks import Layer
from tfgraph.cost import cost
from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Fill, Graph, exact, rsqrt
from tfgraph.ir.mask import alibi, bias, causal, dense, padding, relative, window
from tfgraph.ops import (
    FloatArray,
    add,
    add_layer_norm,
    attention,
    evaluate,
    expand,
    full,
    graph,
    iota,
    layer_norm,
    less,
    mask,
    matmul,
    mul,
    reshape,
    slice_,
    softmax,
    sum_,
    take,
    verify,
    where,
)
from tfgraph.passes import parse_pipeline
from tfgraph.text import print_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Mask


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_node_knows_the_users_file_line_and_column() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 2, 2)
        a = softmax(x); b = x @ a; c = -b; d = 1 - c  # fmt: skip  # noqa: E702
        line = _line() - 1
        e = add(
            d,
            mul(c, 2),
        )
        g.output("e", e)
    source = "        a = softmax(x); b = x @ a; c = -b; d = 1 - c"
    places = [n.location for n in g.build().nodes]
    assert all(p is not None and p.file == __file__ for p in places)
    found = [(p.line - line, p.column) for p in places if p is not None]
    columns = [source.index(s) + 1 for s in ("softmax(x)", "x @ a", "-b", "1 - c")]
    assert found[:4] == [(0, c) for c in columns]
    assert found[4:] == [(4, 13), (2, 13)]


def test_the_library_is_skipped_and_helpers_of_the_user_are_not() -> None:
    def block(x: Any) -> Any:
        return x + 1

    with graph("g") as g:
        g.output("y", block(g.input("x", "f32", 2)))
    (node,) = g.build().nodes
    assert node.location is not None
    assert node.location.line == inspect.getsourcelines(block)[1] + 1


def test_a_place_can_be_given() -> None:
    place = Location("model.yaml", 7, 3)
    with graph("g") as g, g.at(place):
        x = g.input("x", "f32", 2)
        y = softmax(x)
        with pytest.raises(TfgraphError) as inferred:
            x @ x
        with pytest.raises(TfgraphError) as bound:
            x @ 2
        g.output("y", y)
    assert [n.location for n in g.build().nodes] == [place]
    assert inferred.value.location == bound.value.location == place


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, g: x @ x, "matmul: the number of rows of f32[2,3] is 2, expected 3"),
        (lambda x, g: matmul(x, 3), "matmul: 'b' must be a tensor, not a number"),
        (lambda x, g: x @ 3, "matmul: 'b' must be a tensor, not a number"),
        (lambda x, g: x + float("nan"), "add: b: nan is not a finite constant"),
        (lambda x, g: x + "one", "add: an operand is 'one', expected a value of the graph"),
        (lambda x, g: x + np.ones(3),
         "add: an operand is an ndarray, expected a value of the graph"),
        (lambda x, g: np.ones(3) - x,
         "sub: an operand is an ndarray, expected a value of the graph"),
        (lambda x, g: x + graph("h").input("y", "f32", 3),
         "add: an operand belongs to another graph, h, not to g"),
        (lambda x, g: mask(x, "causal"), "mask: 'mask' is 'causal', expected a mask"),
        (lambda x, g: mask(x, padding(np.ones(2))),
         "mask: an operand is an ndarray, expected a value of the graph"),
        (lambda x, g: softmax(causal()), "softmax: 'x' is the mask causal, expected a tensor"),
        (lambda x, g: g.input("x", "f32", 2), "there is an input 'x' already"),
        (lambda x, g: g.param("x", "f32", 2), "there is an input 'x' already"),
        (lambda x, g: g.input(g.param("w", "f32", 2).value.name, "f32", 2),
         "there is a parameter 'w' already"),
        (lambda x, g: [g.output("y", x), g.output("y", x)], "there is an output 'y' already"),
        (lambda x, g: g.output("y", causal()),
         "output 'y' is the mask causal, expected a value of the graph"),
        (lambda x, g: g.build(), "graph g has no outputs"),
        (lambda x, g: Layer(placement="middle"),
         "placement is 'middle', expected post, pre, sandwich, inner or parallel"),
        (lambda x, g: x + None, "add: 'b' must be given"),
        (lambda x, g: softmax(x, axis=2), "softmax: axis 2 is out of range for rank 2"),
        (lambda x, g: softmax(x, axes=1), "softmax has no attribute 'axes'"),
        (lambda x, g: sum_(x, axis=None), "sum: axis: expected int, got None"),
        (lambda x, g: slice_(x, axis=0), "slice: attribute 'stop' is missing"),
        (lambda x, g: softmax(), "softmax: operand 'x' is missing"),
        (lambda x, g: softmax(x, x), "softmax takes 1 operands"),
        (lambda x, g: g.apply("sofmax", x), "unknown op 'sofmax'"),
        (lambda x, g: g.apply("softmax", 3), "softmax: 'x' must be a tensor, not a number"),
        (lambda x, g: g.input("w", "f33", 2), "unknown dtype 'f33'"),
        (lambda x, g: g.input("w", "f32", "a b"), "w: 'a b' is not a symbol's name"),
        (lambda x, g: g.input("w", "f32", "min"), "w: 'min' is not a symbol's name"),
        (lambda x, g: g.input("w", "f32", 2, 0), "w: a size of 0 in [2,0]: sizes are at least 1"),
        (lambda x, g: g.input("w", "f32", -1), "w: a size of -1 in [-1]: sizes are at least 1"),
        (lambda x, g: g.param("w", "f32", 0), "w: a size of 0 in [0]: sizes are at least 1"),
        (lambda x, g: g.input("w", "f32", 2**41), "w: a size above 1099511627776"),
        (lambda x, g: g.input("w", "i8", 2**28, 2**29),
         "w: more than 72057594037927936 elements: [268435456,536870912]"),
        (lambda x, g: g.input("w", "f32", *[1] * 33), "w: 33 sizes: at most 32"),
        (lambda x, g: g.input("dims", "f32", 2),
         "an input cannot be called 'dims', as an argument of every call is"),
        (lambda x, g: g.input("out", "f32", 2),
         "an input cannot be called 'out', as an argument of every call is"),
        (lambda x, g: g.param("0", "f32", 2), "parameter '0': results have numbers for names"),
        (lambda x, g: g.input("w" * 481, "f32", 2),
         f"input: a name of 481 characters, at most 480: '{'w' * 40}...'"),
        (lambda x, g: g.output("w" * 481, x),
         f"output: a name of 481 characters, at most 480: '{'w' * 40}...'"),
        (lambda x, g: g.label(x, "w" * 481),
         f"label: a name of 481 characters, at most 480: '{'w' * 40}...'"),
        (lambda x, g: graph("w" * 481),
         f"graph: a name of 481 characters, at most 480: '{'w' * 40}...'"),
        (lambda x, g: graph("a b"), "graph name 'a b' is not an identifier"),
        (lambda x, g: g.input("w", "i64", 2, fill=Fill("idz", 3)), "unknown generator 'idz'"),
        (lambda x, g: g.symbol("a-b"), "'a-b' is not a symbol's name"),
        (lambda x, g: g.symbol("s", 5, 2),
         "symbol s: the lowest size, 5, is above the highest, 2"),
        (lambda x, g: g.symbol("s", 0, 2), "symbol s: the lowest size is 0: sizes are at least 1"),
        (lambda x, g: g.symbol("s", 1, 8, 20), "symbol s: the example 20 is not from 1 to 8"),
        (lambda x, g: g.symbol("s", high=2**41),
         "symbol s: the highest size is above 1099511627776"),
        (lambda x, g: g.constrain("s", "<", 8), "constraint s < 8: the relation is not == or <="),
        (lambda x, g: g.constrain("s + 1", "<=", 8), "'s + 1' is not a symbol's name"),
        (lambda x, g: slice_(x, axis=0, start=1, stop=1),
         "slice: the result has a size of 0 in [0,3]: sizes are at least 1"),
        (lambda x, g: iota(length=0),
         "iota: the result has a size of 0 in [0]: sizes are at least 1"),
        (lambda x, g: reshape(x, shape=(-2, -3)),
         "reshape: the result has a size of -2 in [-2,-3]: sizes are at least 1"),
        (lambda x, g: full(shape=(0,), value=1),
         "full: the result has a size of 0 in [0]: sizes are at least 1"),
        (lambda x, g: full(shape=("a + b",), value=1),
         "full: shape: 'a + b' is not a symbol's name"),
        (lambda x, g: add(x, exact(1) * Fraction(1, 3**2000)),
         "add: the number is out of the range of float64"),
        (lambda x, g: g.param("w", "f32", 2.5),
         "w: 2.5 is no size: expected an integer, a symbol's name or a Dim"),
        (lambda x, g: attention(x, x, x, heads=1, kv_heads=1, scale=1),
         "attention: expected q, k, v of [batch, length, width], got f32[2,3]"),
        (lambda x, g: layer_norm(x, x), "layer_norm: the scale is f32[2,3], expected f32[3]"),
        (lambda x, g: layer_norm(x, eps=-1), "layer_norm: eps is -1, expected at least 0"),
        (lambda x, g: add(x, g.input("i", "i64", 3)), "add: dtypes differ: f32 and i64"),
        (lambda x, g: add(x, g.input("s", "f32", "s")),
         "add: shapes [2,3] and [s] do not broadcast: 3 against s"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_a_mistake_is_reported_at_the_users_line(wrong: Any, message: str) -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 2, 3)
        with pytest.raises(TfgraphError) as caught:
            wrong(x, g)
    assert caught.value.message == message
    place = caught.value.location
    assert place is not None
    assert place.file == __file__
    lines, first = inspect.getsourcelines(wrong)
    assert first <= place.line < first + len(lines)
    assert place.column > 1


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (lambda x: blocks.attention(x, x, x, heads=5),
         "attention: 5 heads do not divide the width 8", None),
        (lambda x: blocks.attention(x, x, x, mask=causal),
         "attention: mask= is the function causal, expected a mask", "call it: causal()"),
        (lambda x: blocks.attention(x, x, x, mask="padding"),
         "attention: mask= is 'padding', expected a mask", "call it: padding(tensor)"),
        (lambda x: blocks.encoder(x, 1, Layer(), mask=x),
         "mask= is a tensor f32[2,3,8], expected a mask",
         "causal(), or padding(t), dense(t) or bias(t) of a tensor"),
        (lambda x: blocks.decoder(x, 1, Layer(), memory=x, memory_mask="casual"),
         "memory_mask= is 'casual', expected a mask", "did you mean 'causal'?"),
        (lambda x: causal() & x, "causal() & a Traced: both must be masks",
         "dense(t) makes a mask of a bool tensor"),
        (lambda x: blocks.attention(x, x, x, mask=causal("t - s")),
         "causal: offset: 't - s' is not a symbol's name", 'write tfgraph.ir.as_dim("t") - "s"'),
        (lambda x: causal(1.5),
         "causal: offset: 1.5 is no size: expected an integer, a symbol's name or a Dim", None),
        (lambda x: window(1.5, 2),
         "window: left: 1.5 is no size: expected an integer, a symbol's name or a Dim", None),
        (lambda x: blocks.attention(x, x, x, head_size=0),
         "attention: head_size is 0, expected an integer of at least 1", None),
        (lambda x: blocks.attention(x, x, x, heads=2.0),
         "attention: heads is 2.0, expected an integer of at least 1", None),
        (lambda x: blocks.attention(x, x, x, heads=2, kv_heads=-2),
         "attention: kv_heads is -2, expected an integer of at least 1", None),
        (lambda x: blocks.attention(x, x, x, softcap=0),
         "attention: softcap is 0, expected a positive rational", None),
        (lambda x: blocks.attention(x, x, x, softcap=-5),
         "attention: softcap is -5, expected a positive rational", None),
        (lambda x: blocks.attention(x, x, x, softcap=rsqrt(2)),
         "attention: softcap is rsqrt(2), expected a positive rational", None),
        (lambda x: blocks.attention(x, x, x, softcap=float("inf")),
         "attention: softcap: inf is not a finite constant", None),
        (lambda x: blocks.feed_forward(x, 0),
         "ffn: the width of the middle is 0, expected an integer of at least 1", None),
        (lambda x: blocks.feed_forward(x, -4),
         "ffn: the width of the middle is -4, expected an integer of at least 1", None),
        (lambda x: blocks.linear(x, 2.5),
         "linear: the width is 2.5, expected an integer of at least 1", None),
        (lambda x: blocks.token_table(9, 0),
         "embeddings.tokens: the width is 0, expected an integer of at least 1", None),
        (lambda x: blocks.learned(2, 8, positions=0),
         "embeddings.positions: the number of positions is 0, expected an integer of at least 1",
         None),
        (lambda x: blocks.classifier(blocks.first_token(x), 0),
         "classifier: the number of labels is 0, expected an integer of at least 1", None),
        (lambda x: parse_pipeline(["dce"]), "passes: expected a text, got a list",
         "names with commas between them, such as passes='simplify,cse'"),
        (lambda x: blocks.encoder(x, 0, Layer()),
         "the number of layers is 0, expected an integer of at least 1", None),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_an_error_that_leaves_the_graph_has_the_line_inside(
    wrong: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(TfgraphError) as caught, graph("g") as g:
        wrong(g.input("x", "f32", 2, 3, 8))
    assert (caught.value.message, caught.value.hint) == (message, hint)
    place = caught.value.location
    assert place is not None
    assert place.file == __file__
    lines, first = inspect.getsourcelines(wrong)
    assert first <= place.line < first + len(lines)


def test_a_builder_is_no_graph() -> None:
    with graph("g") as g:
        g.output("y", g.input("x", "f32", 2))
    for use in (print_graph, verify, cost):
        with pytest.raises(TfgraphError, match="graph g is still being built") as caught:
            use(g)  # type: ignore[operator]
        assert caught.value.hint == "call build() for the graph"
    assert not hasattr(g, "ouput")


def test_outside_of_a_graph() -> None:
    with pytest.raises(TfgraphError, match="no graph is being built") as caught:
        iota(length=3)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert caught.value.hint == "with tfgraph.graph('name') as g:"


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"heads": 3, "kv_heads": 1}, "3 heads do not divide the width 8"),
        ({"heads": 4, "kv_heads": 3}, "4 query heads are not a multiple of 3 key/value heads"),
        ({"heads": 4, "kv_heads": 0}, "4 query heads are not a multiple of 0 key/value heads"),
        ({"heads": 0, "kv_heads": 1}, "0 heads do not divide the width 8"),
        ({"heads": 4, "kv_heads": 2}, "head sizes differ: 2 of q, 4 of k"),
        ({"heads": 4, "kv_heads": 4, "softcap": 0}, "softcap is 0, expected a positive rational"),
        ({"heads": 4, "kv_heads": 4, "softcap": rsqrt(2)},
         "softcap is rsqrt(2), expected a positive rational"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_heads_must_fit(attrs: dict[str, Any], message: str) -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "b", "s", 8)
        with pytest.raises(TfgraphError) as caught:
            attention(x, x, x, **attrs, scale=1)
    assert caught.value.message == f"attention: {message}"


def test_expansions_keep_the_place_and_make_new_names() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "b", 4)
        y = g.label(add_layer_norm(x, x), "y")
        place = Location(__file__, _line(), 13)
        g.label(y + 1, "y.0")  # taken
        g.output("y", y)
    expanded = expand(g.build())
    verify(expanded)
    first, second, _ = expanded.nodes
    assert (first.op, second.op) == ("add", "layer_norm")
    assert second.output.name == "y"
    assert first.output.name not in ("y", "y.0", "x")
    for node in (first, second):
        assert node.location is not None
        assert (node.location.file, node.location.line) == (__file__, place.line - 1)


# While running.


def _run(g: Graph, given: dict[str, Any], sizes: dict[str, int]) -> None:
    arrays = {name: FloatArray(array) for name, array in given.items()}
    for _ in evaluate(g, arrays, sizes, FloatArray(np.zeros(1))):
        pass


def test_an_index_out_of_range_is_reported_at_the_node() -> None:
    with graph("g") as g:
        table, ids = g.input("table", "f32", 3, 2), g.input("ids", "i64", "n")
        g.output("y", take(table, ids))
        line = _line() - 1
    for index in (3, -1):
        with pytest.raises(TfgraphError, match=f"take: index {index} is out of range") as caught:
            _run(g.build(), {"table": np.ones((3, 2), np.float32), "ids": np.array([0, index])}, {})
        assert caught.value.location is not None
        assert caught.value.location.line == line


def test_sizes_that_do_not_fit_are_reported_at_the_node() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "n")
        g.output("y", slice_(x, axis=0, start=2, stop="n"))
        line = _line() - 1
    with pytest.raises(TfgraphError, match="is not a window of axis 0") as caught:
        _run(g.build(), {"x": np.ones(1, np.float32)}, {"n": 1})
    assert caught.value.location is not None
    assert caught.value.location.line == line


@pytest.mark.parametrize("given", [np.ones(2), [0.5, 0.25], (1, 2), 8, 0.5, exact(2)], ids=repr)
@pytest.mark.parametrize("make", [alibi, bias, padding, dense, relative])
def test_numbers_in_place_of_a_masks_tensor_get_a_hint(
    make: Callable[[Any], Mask], given: Any
) -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "b", 2, "s", "s")
        with pytest.raises(TfgraphError, match=r"mask: an operand is an?") as caught:
            mask(x, make(given))
    assert caught.value.hint == (
        "make it an input, given when the model runs, or a weight: g.param(...), and "
        "weights={...} when it is compiled"
    )


@pytest.mark.parametrize(("number", "hides"), [(-1e9, True), (-10000, True), (0, False)])
def test_a_number_in_place_of_a_tensor_gets_a_hint(number: float, hides: bool) -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 4)
        with pytest.raises(TfgraphError, match="'no' must be a tensor, not a number") as caught:
            where(less(x, 0), x, number)  # type: ignore[arg-type]
    assert caught.value.hint is not None
    assert "tfgraph.ops.full(shape=(), value=..., dtype='f32')" in caught.value.hint
    assert ("tfgraph.ops.mask(scores, tfgraph.dense(allowed))" in caught.value.hint) is hides
