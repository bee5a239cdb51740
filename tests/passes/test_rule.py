"""Rules: what their functions are given, what they may return, and what the engine refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfgraph import ops
from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Exact, Graph, Mask, Node, as_dim
from tfgraph.ir.mask import causal, padding
from tfgraph.ops.infer import like_first
from tfgraph.passes import (
    Match,
    NoMatch,
    Rule,
    apply_rules,
    call,
    const,
    either,
    masked,
    opt,
    rule,
    var,
)
from tfgraph.text import print_graph

EXP_NEG = call("exp", call("neg", var("x"), name="neg"), name="exp")


def exp_neg(*outputs: str) -> Graph:
    """exp(-x), with those of "neg" and "exp" as outputs."""
    with ops.graph("g") as g:
        neg = -g.input("x", "f32", "n", 4)
        values = {"neg": neg, "exp": ops.exp(neg)}
        for name in outputs:
            g.output(name, values[name])
    return g.build()


def lines(graph: Graph) -> list[str]:
    """The nodes and the return of the text."""
    return [line.strip() for line in print_graph(graph).splitlines() if line.startswith("  ")]


def test_the_function_gets_what_it_names() -> None:
    seen: dict[str, Any] = {}

    @rule(
        call(
            "layer_norm",
            call("mask", call("mul", var("x"), const("c"), name="mul"), masked("m")),
            opt("scale"),
            opt("bias"),
        )
    )
    def look(x: Any, c: Exact, m: Mask, mul: Node, scale: Any, bias: Any, match: Match) -> Any:
        """First line.

        Second line.
        """
        seen.update(x=x, c=c, m=m, mul=mul, scale=scale, bias=bias, match=match)
        raise NoMatch("seen")

    with ops.graph("g") as g:
        x, keep = g.input("x", "f32", 2, 4), g.input("keep", "i64", 2, 4)
        x3 = g.input("x3", "f32", 2, 4, 4)
        y = ops.mask(x3 * 2, padding(keep))
        g.output("y", ops.layer_norm(y, g.param("s", "f32", 4)))
        g.output("z", x)
    graph = g.build()
    result = apply_rules(graph, [look])
    assert result.graph is graph
    assert [d.reason for d in result.declined] == ["seen"]
    assert str(seen["x"].value) == "%x3"
    assert seen["c"] == Exact(2)  # type: ignore[arg-type]
    assert str(seen["m"].keep.value) == "%keep"  # a mask of traced values
    assert seen["mul"] is graph.nodes[0]
    assert (str(seen["scale"].value), seen["bias"]) == ("%s", None)
    assert seen["match"].root is graph.nodes[2]
    assert look.doc == "First line."


def test_a_name_that_no_alternative_bound_is_none() -> None:
    @rule(call("exp", var("x")))
    def look(x: Any, other: Any) -> Any:
        raise NoMatch(f"other is {other}")

    assert [d.reason for d in apply_rules(exp_neg("exp"), [look]).declined] == ["other is None"]


def test_a_rule_knows_its_name_and_place() -> None:
    @rule(call("exp", var("x")))
    def some_rule(x: Any) -> Any:
        return x

    @rule(call("exp", var("x")), name="other", near=3)
    def another(x: Any) -> Any:
        return x

    assert (some_rule.name, some_rule.near) == ("some-rule", 1)
    assert (another.name, another.near, another.doc) == ("other", 3, "")
    assert some_rule.location.file == __file__
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert "@rule" in source[some_rule.location.line - 1]


def test_the_root_is_a_call() -> None:
    with pytest.raises(TypeError, match="the root of a rule's pattern is a call"):
        rule(var("x"))


def test_new_nodes_come_from_the_place_of_the_root() -> None:
    @rule(EXP_NEG)
    def reciprocal(x: Any) -> Any:
        return ops.div(1, ops.exp(x))

    graph = exp_neg("exp")
    result = apply_rules(graph, [reciprocal]).graph
    place = graph.nodes[-1].location
    assert isinstance(place, Location)
    assert place.file == __file__
    assert [node.location for node in result.nodes] == [place, place]


def test_a_matched_value_that_is_read_elsewhere_is_not_swallowed() -> None:
    @rule(EXP_NEG)
    def fold(x: Any) -> Any:
        return ops.div(1, ops.exp(x))

    (declined,) = apply_rules(exp_neg("neg", "exp"), [fold]).declined
    assert declined.reason == "%0 = neg is also read by the graph's outputs"

    with ops.graph("g") as g:
        neg = -g.input("x", "f32", 4)
        g.output("y", ops.exp(neg))
        g.output("z", ops.tanh(neg))
    (declined,) = apply_rules(g.build(), [fold]).declined
    assert declined.reason == "%0 = neg is also read by %2 = tanh"


def test_a_root_that_is_read_elsewhere_is_replaced_everywhere() -> None:
    @rule(EXP_NEG)
    def fold(x: Any) -> Any:
        return ops.div(1, ops.exp(x))

    with ops.graph("g") as g:
        exp = ops.exp(-g.input("x", "f32", 4))
        g.output("y", exp)
        g.output("z", ops.tanh(exp))
    result = apply_rules(g.build(), [fold])
    assert lines(result.graph) == [
        "%1~1 = exp(%x) : f32[4]",
        "%1 = div(1, %1~1) : f32[4]",
        "%2 = tanh(%1) : f32[4]",
        "return y=%1, z=%2",
    ]


def test_a_shared_node_stays_for_its_other_readers() -> None:
    @rule(call("exp", call("neg", var("x"), shared=True)))
    def fold(x: Any) -> Any:
        return ops.div(1, ops.exp(x))

    assert lines(apply_rules(exp_neg("neg", "exp"), [fold]).graph) == [
        "%0 = neg(%x) : f32[n,4]",
        "%1~1 = exp(%x) : f32[n,4]",
        "%1 = div(1, %1~1) : f32[n,4]",
        "return neg=%0, exp=%1",
    ]


def test_a_replaced_node_may_be_read_elsewhere() -> None:
    @rule(EXP_NEG)
    def both(x: Any, neg: Node, exp: Node) -> Any:
        """Two nodes at once, each by a value."""
        return {neg: ops.mul(x, -1), exp: ops.div(1, ops.exp(x))}

    assert lines(apply_rules(exp_neg("neg", "exp"), [both]).graph) == [
        "%0 = mul(%x, -1) : f32[n,4]",
        "%1~2 = exp(%x) : f32[n,4]",
        "%1 = div(1, %1~2) : f32[n,4]",
        "return neg=%0, exp=%1",
    ]


def test_a_match_tells_who_reads_a_value() -> None:
    said: list[tuple[str | None, bool]] = []

    @rule(EXP_NEG)
    def look(neg: Node, exp: Node, match: Match) -> Any:
        said.extend((match.outside_user(n), match.escapes(n)) for n in (neg, exp))
        raise NoMatch

    apply_rules(exp_neg("exp"), [look])
    assert said == [(None, False), ("the graph's outputs", True)]


def test_several_results_replace_a_node_with_several() -> None:
    @rule(call("topk", call("neg", var("x")), name="top"))
    def swap(x: Any, top: Node) -> Any:
        values, indices = ops.topk(ops.abs_(x), k=top.attrs["k"])  # type: ignore[arg-type]
        return values, indices

    with ops.graph("g") as g:
        values, indices = ops.topk(-g.input("x", "f32", 2, 4), k=2)  # type: ignore[arg-type]
        g.output("values", values)
        g.output("indices", indices)
    assert lines(apply_rules(g.build(), [swap]).graph) == [
        "%2~2 = abs(%x) : f32[2,4]",
        "%1, %2 = topk(%2~2) {k=2} : f32[2,2], i64[2,2]",
        "return values=%1, indices=%2",
    ]


def wrong(result: Any) -> Rule:
    @rule(EXP_NEG)
    def wrong(x: Any, neg: Node, exp: Node) -> Any:
        return result(x, neg, exp)

    return wrong


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda x, neg, exp: ops.reshape(x, shape=("n", 2, 2)),
            "rule wrong replaces %1: f32[n,4] by f32[n,2,2]",
        ),
        (lambda x, neg, exp: {}, "rule wrong replaces nothing"),
        (lambda x, neg, exp: None, "rule wrong replaces %1: f32[n,4] by None"),
        (lambda x, neg, exp: (x, x), "rule wrong replaces %1: f32[n,4] by f32[n,4], f32[n,4]"),
        (
            lambda x, neg, exp: {neg: x, exp: ops.cast(x, dtype="f16")},  # type: ignore[arg-type]
            "rule wrong replaces %1: f32[n,4] by f16[n,4]",
        ),
    ],
)
def test_a_replacement_of_another_type_is_the_rules_mistake(result: Any, message: str) -> None:
    bad = wrong(result)
    with pytest.raises(TfgraphError) as caught:
        apply_rules(exp_neg("exp"), [bad])
    assert caught.value.message == message
    assert caught.value.location == bad.location


def test_a_value_is_not_replaced_by_one_that_is_replaced() -> None:
    @rule(call("exp", call("neg", var("x"), name="neg"), name="exp"))
    def wrong(x: Any, neg: Node, exp: Node, match: Match) -> Any:
        return {neg: x, exp: ops.Traced(x.builder, neg.output)}

    with pytest.raises(TfgraphError) as caught:
        apply_rules(exp_neg("exp"), [wrong])
    assert caught.value.message == "rule wrong replaces %1 by %0, which it also replaces"
    assert caught.value.location == wrong.location


def test_an_op_that_refuses_its_operands_declines_the_rule() -> None:
    @rule(EXP_NEG)
    def fold(x: Any) -> Any:
        return ops.reshape(x, shape=("n", 3))

    (declined,) = apply_rules(exp_neg("exp"), [fold]).declined
    assert declined.reason == (
        "reshape: cannot reshape f32[n,4] to f32[n,3]: 4*n elements against 3*n"
    )


def in_a_rule(use: Any) -> Rule:
    @rule(EXP_NEG)
    def mistaken(x: Any, neg: Node) -> Any:
        return use(x, neg)

    return mistaken


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x, neg: causal() or x, "causal() and ...: masks intersect with &"),
        (lambda x, neg: ~causal(), "~causal(): masks only intersect, with &"),
        (lambda x, neg: x or neg, "a value of a graph is neither true nor false"),
        (lambda x, neg: as_dim("n") < 3, "TypeError: '<' not supported between"),
        (lambda x, neg: neg.attrs["alpha"], "KeyError: 'alpha'"),
        (lambda x, neg: ops.add(x), "add: "),
        (lambda x, neg: ops.softmax(x, axes=1), "softmax has no attribute 'axes'"),
    ],
)
def test_a_mistake_in_a_rule_is_no_reason_to_decline(use: Any, message: str) -> None:
    mistaken = in_a_rule(use)
    with pytest.raises(TfgraphError) as caught:
        apply_rules(exp_neg("exp"), [mistaken])
    assert caught.value.message.startswith(f"rule mistaken: {message}")
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert caught.value.__cause__ is not None


def test_a_fault_of_this_library_is_no_mistake_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of its own whose function fails is an internal error, with its traceback."""
    from tfgraph.passes import fuse_gated_linear

    def broken(*_: Any) -> Any:
        raise KeyError("broken")

    monkeypatch.setattr(fuse_gated_linear, "gated_linear", broken)
    with ops.graph("g") as g:
        x, gate = g.input("x", "f32", "n", 4), g.input("gate", "f32", "n", 8)
        g.output("y", ops.mul(ops.linear(x, g.param("w", "f32", 4, 8)), gate))
    with pytest.raises(KeyError, match="broken"):
        apply_rules(g.build(), fuse_gated_linear.FuseGatedLinear.rules)


def test_an_unknown_op_in_a_pattern_is_reported_when_the_rule_first_runs() -> None:
    @rule(either_call := call("exp", either(var("x"), call("negg", var("x")))))
    def misspelt(x: Any) -> Any:
        """Never matches."""
        raise NoMatch("never")

    assert [part.ops for part in either_call.calls()] == [("exp",), ("negg",)]
    with pytest.raises(TfgraphError, match="rule misspelt: unknown op 'negg'") as caught:
        apply_rules(exp_neg("exp"), [misspelt])
    assert caught.value.hint == "did you mean 'neg'?"
    assert caught.value.location == misspelt.location
    assert misspelt.location.file == __file__


def test_a_pattern_may_name_an_op_that_is_registered_later() -> None:
    @rule(call("halve", var("x")))
    def unhalve(x: Any) -> Any:
        """halve(x) -> x * 0.5."""
        return x * 0.5

    @ops.op(infer=like_first)
    def halve(x: Any, /) -> Any:
        """x / 2."""
        return ops.xp.mul(x, 0.5)

    with ops.graph("g") as g:
        g.output("y", halve(g.input("x", "f32", 2)))
    assert apply_rules(g.build(), [unhalve]).applied == {"unhalve": 1}
