"""The textual IR: golden text, round trips of random graphs, and expressions inside of YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from helpers.random_graphs import CONSTANTS, NAMES, SIZES, graphs
from helpers.text_samples import ENCODER, HERE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfgraph import ops
from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import (
    Constraint,
    Exact,
    Fill,
    Graph,
    Input,
    Node,
    Output,
    Param,
    Symbol,
    Value,
    as_dim,
    exact,
    rsqrt,
    sqrt,
    tensor,
)
from tfgraph.ir.mask import causal, padding
from tfgraph.ops import graph, verify
from tfgraph.text import (
    Ref,
    parse_call,
    parse_constant,
    parse_dim,
    parse_fill,
    parse_graph,
    parse_mask,
    parse_type,
    print_graph,
    print_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_graph_that_the_text_says() -> None:
    """Every part of a small graph, spelt out by hand."""
    text = """
    graph g(%x: f32[n,4], %m: i64[n,n] = prefix()) {   # the header
      symbol n: 1..16, example 3
      %0 = mul(%x, rsqrt(2)) : f32[n,4]
      return y=%0
    }
    weights { %w: f32[4] = zeros() }"""
    x, m, w = (
        Value("x", tensor("f32", "n", 4)),
        Value("m", tensor("i64", "n", "n")),
        Value("w", tensor("f32", 4)),
    )
    y = Value("0", tensor("f32", "n", 4))
    expected = Graph(
        name="g",
        inputs=(Input(x), Input(m, Fill("prefix"))),
        params=(Param(w, Fill("zeros")),),
        nodes=(Node("mul", (x, rsqrt(2)), (y,)),),
        outputs=(Output("y", y),),
        symbols=(Symbol("n", 1, 16, 3),),
    )
    found = parse_graph(text, "g.txt")
    assert found == expected
    assert found.nodes[0].location == Location("g.txt", 4, 12)


def test_printing_gives_the_text_that_was_parsed() -> None:
    parsed = parse_graph(ENCODER)
    verify(parsed)
    assert print_graph(parsed) == ENCODER


def test_what_the_dsl_builds_prints_as_written_by_hand() -> None:
    with graph("block") as g:
        seq = g.symbol("seq", 1, 512, example=128)
        g.constrain("past", "<=", 4 * seq)
        x = g.input("x", "f32", "batch", seq, 8)
        past = g.input("past.k", "f16", "batch", "past", 8)
        keep = g.input("keep", "i64", "batch", seq + "past", fill=Fill("prefix"))
        k = g.apply("concat", g.apply("cast", past, dtype="f32"), x, axis=1)
        scores = g.apply("matmul", x, g.apply("transpose", k, perm=(0, 2, 1)))
        scores = g.label(scores * rsqrt(8), "scores")
        g.output("y", g.apply("mask", scores, causal("past") & padding(keep)))
    assert (
        print_graph(g.build())
        == """\
graph block(%x: f32[batch,seq,8], %past.k: f16[batch,past,8], %keep: i64[batch,past + seq] = prefix\
()) {
  symbol seq: 1..512, example 128
  constraint past <= 4*seq
  %0 = cast(%past.k) {dtype=f32} : f32[batch,past,8]
  %1 = concat(%0, %x) {axis=1} : f32[batch,past + seq,8]
  %2 = transpose(%1) {perm=[0, 2, 1]} : f32[batch,8,past + seq]
  %3 = matmul(%x, %2) : f32[batch,seq,past + seq]
  %scores = mul(%3, rsqrt(8)) : f32[batch,seq,past + seq]
  %5 = mask(%scores, causal(offset=past) & padding(%keep)) : f32[batch,seq,past + seq]
  return y=%5
}
"""
    )


def test_an_attribute_is_written_unless_it_is_none_by_default() -> None:
    x = Value("x", tensor("f32", 2))
    attrs = {"b": None, "a": (True, (1, "q\n")), "k": as_dim("seq"), "v": exact(0.5)}
    node = Node("elsewhere", (x, None, exact(3)), (x,), attrs)
    assert print_node(node) == (
        '%x = elsewhere(%x, _, 3) {a=[true, [1, "q\\n"]], k=seq, v=0.5} : f32[2]'
    )
    assert print_node(Node("softmax", (x,), (x,), {"axis": None})).endswith("{axis=None} : f32[2]")


def test_types_may_be_left_out() -> None:
    short = "graph g(%x: f32[2,3]) { %0 = neg(%x) %1, %2 = topk(%0) {k=2} return %1 }"
    parsed = parse_graph(short)
    assert [str(v.type) for v in parsed.nodes[1].outputs] == ["f32[2,2]", "i64[2,2]"]


def test_without_inputs() -> None:
    text = "graph one() {\n  %0 = full() {shape=[2], value=1, dtype=f32} : f32[2]\n  return %0\n}\n"
    assert print_graph(parse_graph(text)) == text


def test_a_generator_that_was_not_given_is_not_printed() -> None:
    text = "graph g(%x: f32[2], %ids: i64[2] = ids(7)) {\n  return %x, %ids\n}\n"
    graph = parse_graph(text)
    assert [given.fill for given in graph.inputs] == [None, Fill("ids", exact(7))]
    assert print_graph(graph) == text
    assert parse_graph("graph g() { return %w }\nweights { %w: f32[2] }").params[0].fill == Fill(
        "normal", exact(0.02)
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_round_trip(built: Graph) -> None:
    text = print_graph(built)
    parsed = parse_graph(text)
    assert parsed == built
    assert print_graph(parsed) == text


WILD_NAMES = st.one_of(
    NAMES,
    st.sampled_from(["dims", "out", "self", "0", "y", "return", "weights", "%", "min", "a.b", "_"]),
    st.integers(470, 520).map(lambda n: "n" * n),
)
WILD_SIZES = st.one_of(
    SIZES,
    st.integers(-3, 3),
    st.integers(2**39, 2**41),
    st.sampled_from(["min", "max", "true", "None", "s", "größe", "a b", "", "x" * 500, 2.5]),
)


WILD_NUMBERS = st.integers(-1, 2**41)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_builds_is_read_back(data: st.DataObject) -> None:
    """The builder refuses, with an error of ours, what the text could not hold."""
    draw = data.draw

    def tried(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except TfgraphError:
            return None

    def fill() -> Fill | None:
        kinds = ["normal", "ids", "lengths", "prefix", "sinusoidal", "odd"]
        arguments = st.none() | CONSTANTS | SIZES | st.integers(-1, 9)
        made = st.builds(Fill, st.sampled_from(kinds), arguments)
        return draw(st.none() | made)

    g = tried(lambda: graph(draw(WILD_NAMES)))
    with g or graph("g") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        pool = [x]
        tried(lambda: g.symbol(draw(WILD_NAMES), draw(WILD_NUMBERS), draw(WILD_NUMBERS)))
        tried(lambda: g.constrain(draw(WILD_SIZES), draw(st.sampled_from(["<=", "<"])), 8))
        for add in (g.input, g.param):
            shape = draw(st.lists(WILD_SIZES, max_size=3))
            made = tried(lambda: add(draw(WILD_NAMES), "f32", *shape, fill=fill()))  # noqa: B023
            pool += [] if made is None else [made]
        for make in (
            lambda: x * draw(CONSTANTS),
            lambda: ops.full(shape=draw(st.lists(WILD_SIZES, max_size=3)), value=draw(CONSTANTS)),
            lambda: ops.slice_(x, axis=1, start=draw(WILD_SIZES), stop=draw(WILD_SIZES)),
            lambda: ops.iota(length=draw(WILD_SIZES)),
            lambda: ops.layer_norm(x, eps=draw(CONSTANTS)),
        ):
            made = tried(make)
            if made is not None:
                tried(lambda: g.label(made, draw(WILD_NAMES)))  # noqa: B023
                pool.append(made)
        tried(lambda: g.output(draw(WILD_NAMES), draw(st.sampled_from(pool))))
        g.output("last", pool[-1])
    built = tried(g.build)
    if built is not None:
        text = print_graph(built)
        assert print_graph(parse_graph(text)) == text
        assert parse_graph(text) == built


@settings(max_examples=300, deadline=None)
@given(SIZES)
def test_round_trip_of_sizes(size: object) -> None:
    assert parse_dim(str(size), HERE) == size


@settings(max_examples=300, deadline=None)
@given(CONSTANTS)
def test_round_trip_of_constants(value: object) -> None:
    assert parse_constant(str(value), HERE) == value


def test_arithmetic() -> None:
    a, b = as_dim("a"), as_dim("b")
    assert parse_dim("a + 2*b - 3", HERE) == a + 2 * b - 3
    assert parse_dim("(a + b)*(a - b)", HERE) == a * a - b * b
    assert parse_dim("6*a//4//b", HERE) == 6 * a // 4 // b
    assert parse_dim("-a//2", HERE) == -(a // 2)
    assert parse_dim("(-a)//2", HERE) == -a // 2
    assert parse_constant("2/6", HERE) == Exact(exact(1).factor / 3)
    assert parse_constant("-2*(sqrt(3)*1e-1)", HERE) == exact(-0.2) * sqrt(3)
    assert parse_fill(" ids(7)", HERE) == Fill("ids", exact(7))
    assert parse_type("bf16[]", HERE) == tensor("bfloat16")
    assert (
        Constraint(a, "<=", b)
        in parse_graph("graph g(%x: f32[a,b]) { constraint a <= b return %x }").constraints
    )


# Expressions in YAML: plain names are values.


def test_a_call_with_plain_names() -> None:
    call = parse_call("layer_norm(s, layers.0.scale, _) {eps=1e-6}", HERE)
    assert call.op.name == "layer_norm"
    assert call.attrs == {"eps": exact(1e-6)}
    assert call.location == HERE
    assert call.refs == (
        Ref("s", Location("model.yaml", 7, 17)),
        Ref("layers.0.scale", Location("model.yaml", 7, 20)),
    )
    assert call.bind({"s": 1, "layers.0.scale": 2}) == (1, 2)


def test_a_call_is_applied_to_values_being_built() -> None:
    with graph("g") as g:
        values = {"x": g.input("x", "f32", "batch", 4, "n", "n"), "m": g.input("m", "i64", "batch")}
        call = parse_call('mask(x, causal() & padding("m"))', HERE)
        with g.at(call.location):
            y = g.apply(call.op.name, *call.bind(values), **call.attrs)
        call = parse_call("linear_activation(y, w) {activation=relu}", HERE)
        assert call.attrs == {"activation": "relu"}
        g.output("y", y)
    node = g.build().nodes[0]
    assert print_node(node) == "%0 = mask(%x, causal() & padding(%m)) : f32[batch,4,n,n]"
    assert node.location == HERE


def test_a_mask_with_plain_names() -> None:
    assert parse_mask("causal(offset=past) & padding(m)", Location("model.yaml", 7, 1)) == (
        causal("past") & padding(Ref("m", Location("model.yaml", 7, 31)))
    )


CALL_MISTAKES = [
    ("add(x)", 1, "add: operand 'b' is missing"),
    ("add(x, y, z)", 11, "add takes 2 operands"),
    ("add(1, 2)", 1, "add: no operand is a value of the graph"),
    ("add(x, linear(x, w))", 8, "unknown mask 'linear'"),
    ("mask(x, padding())", 9, "padding: 'keep' is missing"),
    ("mask(x, causal(1, 2))", 19, "causal takes 1 arguments"),
    ("mask(x, causal(offset=1, offset=2))", 26, "causal: 'offset' is given twice"),
    ("add(x, y) z", 11, "expected nothing more, found 'z'"),
    ("softmax(x) {axis=1.5}", 18, "expected an integer, found '1.5'"),
    ("attention(q, k, v) {heads=2}", 1, "attention: attribute 'kv_heads' is missing"),
    ("sum(x) {keepdims=1}", 18, "expected true or false, found '1'"),
    ("", 1, "expected an op, found the end of the text"),
]


@pytest.mark.parametrize(("text", "column", "message"), CALL_MISTAKES)
def test_mistakes_in_a_call(text: str, column: int, message: str) -> None:
    with pytest.raises(TfgraphError) as caught:
        parse_call(text, Location("model.yaml", 7, 6))
    assert caught.value.message == message
    assert caught.value.location == Location("model.yaml", 7, 5 + column)


def test_a_name_that_stands_for_nothing() -> None:
    call = parse_call("add(x, hiden)", HERE)
    with pytest.raises(TfgraphError) as caught:
        call.bind({"x": 1, "hidden": 2})
    assert str(caught.value.location) == "model.yaml:7:13"
    assert caught.value.hint == "did you mean 'hidden'?"
