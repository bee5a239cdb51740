"""The engine, one rewrite: names, order, cycles, dead nodes."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.rewrites import double, drop_double, nodes, reciprocal

from tfgraph import ops
from tfgraph.ir import Node
from tfgraph.passes import apply_rules, call, rule, var
from tfgraph.passes.draft import prune


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
