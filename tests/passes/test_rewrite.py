"""The engine: names, order, cycles, dead nodes, near-misses, and rules that never end."""

from __future__ import annotations

from typing import Any

import pytest

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph, Node, verify_structure
from tfgraph.ops import verify
from tfgraph.passes import NoMatch, Rule, apply_rules, call, const, rule, var
from tfgraph.passes.draft import Draft, prune
from tfgraph.text import print_graph


def nodes(graph: Graph) -> list[str]:
    """The nodes and the return of the text, types left out."""
    verify(graph)
    text = print_graph(graph).partition("weights {")[0]
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    return [line.partition(" : ")[0] for line in lines]


@rule(call("exp", call("neg", var("x")), name="exp"))
def reciprocal(x: Any) -> Any:
    """exp(-x) -> 1 / exp(x)."""
    return ops.div(1, ops.exp(x))


@rule(call("neg", call("neg", var("x"), shared=True)))
def drop_double(x: Any) -> Any:
    """-(-x) -> x."""
    return x


def double(x: Any) -> Any:
    """-(-x)."""
    return ops.neg(ops.neg(x))


class TestNames:
    def test_a_replacement_keeps_the_name(self) -> None:
        with ops.graph("g") as g:
            y = ops.exp(-g.input("x", "f32", 4))
            g.output("y", g.label(y, "y"))
        assert nodes(apply_rules(g.build(), [reciprocal]).graph) == [
            "%y~1 = exp(%x)",
            "%y = div(1, %y~1)",
            "return %y",
        ]

    def test_names_made_before_are_passed_over(self) -> None:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            for name in ("0~1", "0~3"):
                g.output(name, g.param(name, "f32", 4))
            g.output("y", ops.tanh(x))

        @rule(call("tanh", var("x")))
        def longer(x: Any) -> Any:
            return ops.sqrt(ops.exp(ops.abs_(ops.neg(x))))

        assert nodes(apply_rules(g.build(), [longer]).graph)[:4] == [
            "%0~2 = neg(%x)",
            "%0~4 = abs(%0~2)",
            "%0~5 = exp(%0~4)",
            "%0 = sqrt(%0~5)",
        ]

    def test_a_made_name_makes_no_longer_one(self) -> None:
        @rule(call("tanh", var("x")))
        def first(x: Any) -> Any:
            return ops.neg(ops.sqrt(x))

        @rule(call("sqrt", var("x")))
        def second(x: Any) -> Any:
            return ops.exp(ops.log(x))

        with ops.graph("g") as g:
            g.output("y", ops.tanh(g.input("x", "f32", 4)))
        assert nodes(apply_rules(g.build(), [first, second]).graph)[:3] == [
            "%0~2 = log(%x)",
            "%0~1 = exp(%0~2)",
            "%0 = neg(%0~1)",
        ]

    @pytest.mark.parametrize(
        ("inner", "outer", "kept"),
        [
            (None, None, "0"),
            (None, "b", "b"),
            ("a", None, "a"),
            ("a", "b", "a"),
            ("0~1", None, "2"),
            ("0~1", "b", "b"),
            ("0~1", "0~2", "0~1"),
        ],
    )
    def test_an_old_value_takes_the_name_that_says_more(
        self, inner: str | None, outer: str | None, kept: str
    ) -> None:
        with ops.graph("g") as g:
            y = ops.tanh(g.input("x", "f32", 4))
            z = double(y)
            for value, name in ((y, inner), (z, outer)):
                if name is not None:
                    g.label(value, name)
            g.output("y", y)
            g.output("z", ops.exp(z))
        assert nodes(apply_rules(g.build(), [drop_double]).graph) == [
            f"%{kept} = tanh(%x)",
            f"%3 = exp(%{kept})",
            f"return y=%{kept}, z=%3",
        ]

    def test_an_input_keeps_its_name(self) -> None:
        with ops.graph("g") as g:
            x, w = g.input("x~1", "f32", 4), g.param("w~1", "f32", 4)
            g.output("y", g.label(double(x), "label"))
            g.output("z", g.label(double(w), "another"))
        graph = apply_rules(g.build(), [drop_double]).graph
        assert nodes(graph)[-1] == "return y=%x~1, z=%w~1"
        assert [p.value.name for p in graph.params] == ["w~1"]

    def test_one_new_value_in_place_of_two(self) -> None:
        @rule(call("add", call("exp", var("x"), name="a"), call("tanh", var("x"), name="b")))
        def join(x: Any, a: Node, b: Node) -> Any:
            z = ops.sqrt(x)
            return {a: z, b: z}

        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            a, b = ops.exp(x), ops.tanh(x)
            g.output("b", b)
            g.output("y", a + b)
        assert nodes(apply_rules(g.build(), [join]).graph) == [
            "%0 = sqrt(%x)",
            "%2 = add(%0, %0)",
            "return b=%0, y=%2",
        ]

    def test_one_old_value_in_place_of_two(self) -> None:
        @rule(call("add", call("exp", var("x"), name="a"), call("tanh", var("x"), name="b")))
        def join(x: Any, a: Node, b: Node) -> Any:
            return {a: x, b: x}

        with ops.graph("g") as g:
            x = g.label(ops.sqrt(g.input("x", "f32", 4)), "old~1")
            g.output("y", ops.exp(x) + ops.tanh(x))
        assert nodes(apply_rules(g.build(), [join]).graph) == [
            "%1 = sqrt(%x)",
            "%3 = add(%1, %1)",
            "return y=%3",
        ]


class TestOrder:
    def test_new_nodes_stand_where_the_root_stood(self) -> None:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            before, y, after = ops.tanh(x), ops.exp(-x), ops.sqrt(x)
            for name, value in {"a": before, "b": y, "c": after}.items():
                g.output(name, value)
        assert nodes(apply_rules(g.build(), [reciprocal]).graph)[:-1] == [
            "%0 = tanh(%x)",
            "%2~1 = exp(%x)",
            "%2 = div(1, %2~1)",
            "%3 = sqrt(%x)",
        ]

    def test_readers_of_a_replaced_value_move_behind_it(self) -> None:
        """The sum is read before the norm that is fused with it."""

        @rule(call("add", call("neg", var("x"), name="neg"), var("y"), name="add"))
        def together(x: Any, y: Any, neg: Node, add: Node) -> Any:
            z = ops.mul(x, y)
            return {neg: z, add: ops.exp(z)}

        with ops.graph("g") as g:
            x, y = g.input("x", "f32", 4), g.input("y", "f32", 4)
            neg = -x
            early, late = ops.sqrt(y), ops.tanh(neg)
            g.output("early", early)
            g.output("later", ops.abs_(late))
            g.output("add", neg + y)
        assert nodes(apply_rules(g.build(), [together]).graph)[:-1] == [
            "%1 = sqrt(%y)",
            "%0 = mul(%x, %y)",
            "%2 = tanh(%0)",
            "%3 = abs(%2)",
            "%4 = exp(%0)",
        ]

    def test_a_rewrite_that_would_make_a_cycle_is_refused(self) -> None:
        @rule(call("add", call("neg", var("x"), name="neg"), var("y"), name="add"))
        def together(x: Any, y: Any, neg: Node, add: Node) -> Any:
            return {neg: ops.mul(x, y), add: ops.exp(y)}

        with ops.graph("g") as g:
            neg = -g.input("x", "f32", 4)
            g.output("y", neg + ops.sqrt(ops.tanh(neg)))
        graph = g.build()
        result = apply_rules(graph, [together])
        assert result.graph is graph
        assert [d.reason for d in result.declined] == [
            "the fused op would need its own result: %1 -> %2 -> %0 -> %1"
        ]

    def test_a_refused_rewrite_leaves_no_trace(self) -> None:
        """The same match, declined for a cycle, then applied in another way."""

        @rule(call("add", call("neg", var("x"), name="neg"), var("y"), name="add"))
        def together(x: Any, y: Any, neg: Node, add: Node) -> Any:
            return {neg: ops.mul(x, y), add: ops.exp(y)}

        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            neg = -x
            y = -ops.tanh(neg)
            g.output("y", y)
            g.output("z", neg + y)
        assert nodes(apply_rules(g.build(), [together]).graph) == [
            "%0 = neg(%x)",
            "%1 = tanh(%0)",
            "%2 = mul(%1, %0)",
            "%3 = exp(%0)",
            "return y=%2, z=%3",
        ]


class TestDeadNodes:
    def test_what_only_the_old_nodes_read_goes(self) -> None:
        @rule(call("add", var("x"), call("tanh", var("w"))))
        def drop(x: Any, w: Any) -> Any:
            return ops.exp(x)

        with ops.graph("g") as g:
            x, w, kept = g.input("x", "f32", 4), g.param("w", "f32", 4), g.param("k", "f32", 4)
            g.output("y", x + ops.tanh(ops.sqrt(w)))
            g.output("k", kept)
        graph = apply_rules(g.build(), [drop]).graph
        assert nodes(graph) == ["%2 = exp(%x)", "return y=%2, %k"]
        assert [p.value.name for p in graph.params] == ["k"]
        assert [i.value.name for i in graph.inputs] == ["x"]

    def test_what_a_rule_made_in_vain_goes(self) -> None:
        @rule(call("tanh", var("x")))
        def wasteful(x: Any) -> Any:
            ops.exp(ops.sqrt(x))
            return ops.abs_(x)

        with ops.graph("g") as g:
            g.output("y", ops.tanh(g.input("x", "f32", 4)))
        assert nodes(apply_rules(g.build(), [wasteful]).graph) == ["%0 = abs(%x)", "return y=%0"]

    def test_dead_readers_do_not_hinder(self) -> None:
        with ops.graph("g") as g:
            neg = -g.input("x", "f32", 4)
            ops.tanh(neg)
            ops.exp(ops.sqrt(neg))
            g.output("y", ops.exp(neg))
        result = apply_rules(g.build(), [reciprocal])
        assert result.applied == {"reciprocal": 1}
        assert [n.op for n in result.graph.nodes] == ["exp", "div"]

    def test_dead_nodes_are_no_near_misses(self) -> None:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            ops.exp(ops.sqrt(x))
            g.output("y", ops.tanh(x))
        assert not apply_rules(g.build(), [reciprocal]).declined

    def test_a_graph_in_which_nothing_applies_is_returned_as_it_is(self) -> None:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 4)
            ops.tanh(x)
            g.output("y", ops.sqrt(x))
        graph = g.build()
        assert apply_rules(graph, [reciprocal]).graph is graph

    def test_prune(self) -> None:
        with ops.graph("g") as g:
            x = g.input("x", "f32", 2, 4)
            values, indices = ops.topk(x, k=2)  # type: ignore[arg-type]
            ops.exp(values)
            ops.add(x, g.param("w", "f32", 4))
            g.output("indices", indices)
        graph = g.build()
        pruned = prune(graph)
        assert [n.op for n in pruned.nodes] == ["topk"]
        assert pruned.params == ()
        assert prune(pruned) is pruned


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
