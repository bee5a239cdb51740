"""The engine, many rewrites: rules that apply again and again, never end, or nearly apply."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.rewrites import double, drop_double, nodes, reciprocal

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph, verify_structure
from tfgraph.passes import NoMatch, Rule, apply_rules, call, const, rule, var
from tfgraph.passes.draft import Draft


class TestRepetition:
    def test_rules_apply_until_none_does_and_are_counted(self) -> None:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            for _ in range(7):
                x = -x
            g.output("y", ops.exp(x))
        result = apply_rules(g.build(), [drop_double, reciprocal])
        assert result.applied == {"drop-double": 3, "reciprocal": 1}
        assert [n.op for n in result.graph.nodes] == ["exp", "div"]

    def test_a_change_may_let_a_rule_apply_further_up(self) -> None:
        """exp(-x) is not rewritten while -x has another reader; that one goes later on."""

        @rule(call("tanh", call("neg", var("x"), shared=True)))
        def odd(x: Any) -> Any:
            return ops.sqrt(x)

        with ops.graph("g") as g:
            neg = -g.input("x", "f32", 4)
            g.output("y", ops.exp(neg))
            g.output("z", ops.tanh(neg))
        result = apply_rules(g.build(), [reciprocal, odd])
        assert result.applied == {"odd": 1, "reciprocal": 1}
        assert [n.op for n in result.graph.nodes] == ["exp", "div", "sqrt"]

    def test_the_first_of_several_rules_wins(self) -> None:
        @rule(call("exp", var("x")))
        def general(x: Any) -> Any:
            return ops.tanh(x)

        with ops.graph("g") as g:
            g.output("y", ops.exp(-g.input("x", "f32", 4)))
        graph = g.build()
        assert apply_rules(graph, [general, reciprocal]).applied == {"general": 1}
        assert apply_rules(graph, [reciprocal, general]).applied == {"reciprocal": 1, "general": 1}

    def test_a_rule_that_applies_forever_is_named_with_its_place(self) -> None:
        @rule(call("exp", var("x")))
        def forth(x: Any) -> Any:
            return ops.exp(x)

        with ops.graph("g") as g:
            g.output("y", ops.exp(g.input("x", "f32", 4)))
        with pytest.raises(TfgraphError) as caught:
            apply_rules(g.build(), [forth])
        assert caught.value.message == "rule forth applies forever"
        assert caught.value.location == forth.location

    def test_a_long_chain_is_no_endless_one(self) -> None:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            for _ in range(2 * 1200):
                x = -x
            g.output("y", ops.exp(x))
        assert apply_rules(g.build(), [drop_double]).applied == {"drop-double": 1200}


class TestNearMisses:
    def graph(self) -> Graph:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            a = ops.exp(ops.tanh(x))
            b = ops.exp(ops.sqrt(a))
            g.output("y", g.label(b, "b"))
        return g.build()

    def test_each_is_reported_once_with_its_place(self) -> None:
        graph = self.graph()
        first, second = apply_rules(graph, [reciprocal]).declined
        assert (first.rule, first.at, first.reason) == (
            "reciprocal",
            "%1 = exp",
            "expected neg, found %0 = tanh",
        )
        assert (second.at, second.reason) == ("%b = exp", "expected neg, found %2 = sqrt")
        assert (first.location, second.location) == (
            graph.nodes[1].location,
            graph.nodes[3].location,
        )
        assert first.location is not None
        assert first.location.file == __file__

    def test_each_is_reported_once_though_rules_applied_in_between(self) -> None:
        @rule(call("sqrt", var("x")))
        def other(x: Any) -> Any:
            return ops.abs_(x)

        result = apply_rules(self.graph(), [reciprocal, other])
        assert result.applied == {"other": 1}
        assert [(d.at, d.reason) for d in result.declined] == [
            ("%1 = exp", "expected neg, found %0 = tanh"),
            ("%b = exp", "expected neg, found %2 = abs"),
        ]

    def test_near_says_how_many_nodes_must_match(self) -> None:
        def declined(near: int) -> int:
            @rule(call("exp", call("sqrt", call("neg", var("x")))), near=near)
            def never(x: Any) -> Any:
                return x

            return len(apply_rules(self.graph(), [never]).declined)

        assert [declined(near) for near in (0, 1, 2, 3)] == [2, 2, 1, 0]

    def test_a_rule_may_decline_in_silence(self) -> None:
        def declined(*reasons: str) -> list[str]:
            @rule(call("exp", var("x")), near=5)
            def never(x: Any) -> Any:
                raise NoMatch(*reasons)

            return [d.reason for d in apply_rules(self.graph(), [never]).declined]

        assert declined() == []
        assert declined("because") == ["because", "because"]

    @pytest.mark.parametrize(
        ("silent", "reason"), [("", "%x + %y"), ("x", "%y + %x"), ("y", "%x + %y")]
    )
    def test_the_first_reason_of_several_matches_counts(self, silent: str, reason: str) -> None:
        @rule(call("add", var("a"), var("b")))
        def never(a: Any, b: Any) -> Any:
            raise NoMatch(f"{a.value} + {b.value}" if a.value.name != silent else "")

        with ops.graph("g") as g:
            g.output("y", g.input("x", "f32", 4) + g.input("y", "f32", 4))
        assert [d.reason for d in apply_rules(g.build(), [never]).declined] == [reason]

    def test_a_later_match_may_apply_where_an_earlier_one_declined(self) -> None:
        @rule(call("add", var("a"), var("b")))
        def some(a: Any, b: Any) -> Any:
            if a.value.name == "x":
                raise NoMatch("not this way")
            return ops.mul(a, b)

        with ops.graph("g") as g:
            g.output("y", g.input("x", "f32", 4) + g.input("y", "f32", 4))
        result = apply_rules(g.build(), [some])
        assert result.applied == {"some": 1}
        assert not result.declined
        assert nodes(result.graph)[0] == "%0 = mul(%y, %x)"


def test_a_draft_stays_a_valid_graph_after_each_rewrite() -> None:
    @rule(call("mul", call("mul", var("x"), const("a")), const("b")))
    def merge(x: Any, a: Any, b: Any) -> Any:
        return x * (a * b)

    rules: list[Rule] = [drop_double, reciprocal, merge]
    with ops.graph("g") as g:
        x = g.input("x", "f32", 4)
        for i in range(5):
            x = ops.exp(-double(x * 2 * 3)) + g.param(f"w{i}", "f32", 4)
        g.output("y", x)
    result = apply_rules(g.build(), rules)
    assert result.applied == {"drop-double": 5, "reciprocal": 5, "merge": 5}
    verify_structure(result.graph)
    draft = Draft(result.graph)
    assert draft.graph() == result.graph
    assert draft.producer == result.graph.producer
    assert {v: tuple(u) for v, u in draft.users.items()} == result.graph.users
