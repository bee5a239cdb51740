"""The pattern language: what matches, in which order, and the exact reason where nothing does."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph, exact, rsqrt
from tfgraph.ir.mask import causal
from tfgraph.ops import Builder
from tfgraph.passes import apply_rules, call, const, either, masked, opt, rule, var
from tfgraph.passes.draft import Draft
from tfgraph.passes.pattern import Pattern, Search, State


def build(make: Callable[[Builder, Any, Any], Any]) -> Graph:
    """The graph of `make(g, x, y)` over two inputs f32[2,4,4]."""
    with ops.graph("pattern") as g:
        g.output("out", make(g, g.input("x", "f32", 2, 4, 4), g.input("y", "f32", 2, 4, 4)))
    return g.build()


def search(pattern: Pattern, graph: Graph) -> tuple[list[dict[str, str]], Search]:
    """All matches at the first output, values and nodes by name; and what the search saw."""
    found = Search(Draft(graph))
    states = list(pattern.match(graph.outputs[0].value, State(), found))
    return [{k: shown(v) for k, v in state.bindings.items()} for state in states], found


def shown(bound: Any) -> str:
    return f"{bound.outputs[0]} = {bound.op}" if hasattr(bound, "op") else str(bound)


def matches(pattern: Pattern, graph: Graph) -> list[dict[str, str]]:
    return search(pattern, graph)[0]


def reason(pattern: Pattern, graph: Graph) -> tuple[int, str]:
    """How many nodes matched before the furthest mismatch, and its reason."""
    found, seen = search(pattern, graph)
    assert not found
    return seen.depth, seen.reason


def test_a_variable_binds_a_value_or_a_constant() -> None:
    graph = build(lambda g, x, y: ops.sub(x, 2))
    assert matches(call("sub", var("a"), var("b")), graph) == [{"a": "%x", "b": "2"}]


def test_a_repeated_variable_means_the_same_value() -> None:
    pattern = call("sub", var("a"), var("a"))
    assert matches(pattern, build(lambda g, x, y: x - x)) == [{"a": "%x"}]
    assert reason(pattern, build(lambda g, x, y: x - y)) == (
        1,
        "the input %y is not the input %x, which a is elsewhere",
    )


def test_a_repeated_constant_means_the_same_number() -> None:
    pattern = call("sub", call("sub", var("x"), const("c")), const("c"))
    assert matches(pattern, build(lambda g, x, y: (x - 2) - 2)) == [{"x": "%x", "c": "2"}]
    assert reason(pattern, build(lambda g, x, y: (x - 3) - 2)) == (
        2,
        "the constant 2 is not the constant 3, which c is elsewhere",
    )


def test_a_repeated_call_means_the_same_node() -> None:
    pattern = call("sub", call("exp", var("x"), name="e"), call("exp", var("x"), name="e"))

    def twice(g: Builder, x: Any, y: Any) -> Any:
        e = ops.exp(x)
        return e - e

    assert matches(pattern, build(twice)) == [{"e": "%0 = exp", "x": "%x"}]
    assert reason(pattern, build(lambda g, x, y: ops.exp(x) - ops.exp(x))) == (
        3,
        "%1 = exp is not %0 = exp, which e is elsewhere",
    )


def test_a_repeated_mask_means_the_same_mask() -> None:
    pattern = call("mask", call("mask", var("x"), masked("m")), masked("m"))

    def masked_by(first: Any, second: Any) -> Graph:
        return build(lambda g, x, y: ops.mask(ops.mask(x, first), second))

    assert matches(pattern, masked_by(causal(), causal())) == [{"x": "%x", "m": "causal()"}]
    assert reason(pattern, masked_by(causal(1), causal())) == (
        2,
        "the mask causal() is not the mask causal(offset=1), which m is elsewhere",
    )


def test_a_mask_is_no_tensor_and_a_tensor_no_mask() -> None:
    graph = build(lambda g, x, y: ops.mask(x, causal()))
    assert reason(call("mask", var("x"), var("m")), graph) == (
        1,
        "the mask causal() stands where a tensor is expected",
    )
    assert reason(call("mask", masked("x"), masked("m")), graph) == (
        1,
        "the input %x stands where a mask is expected",
    )


def test_a_constant_is_any_or_a_given_one() -> None:
    graph = build(lambda g, x, y: x * rsqrt(2))
    assert matches(call("mul", var("x"), const("c")), graph) == [{"x": "%x", "c": "rsqrt(2)"}]
    assert matches(call("mul", var("x"), const("c", rsqrt(2))), graph) != []
    assert reason(call("mul", var("x"), const("c", exact(1))), graph) == (
        1,
        "the constant rsqrt(2) is not 1",
    )
    assert reason(call("sub", var("x"), const("c")), build(lambda g, x, y: x - y)) == (
        1,
        "the input %y is not a constant",
    )


@pytest.mark.parametrize("one", [1, 1.0, Fraction(1), exact(1)], ids=repr)
def test_a_number_in_a_pattern_is_that_constant(one: Any) -> None:
    graph = build(lambda g, x, y: ops.add(1, x))
    assert matches(call("add", one, var("x")), graph) == [{"x": "%x"}]
    assert matches(call("add", var("x"), either(2, one)), graph) == [{"x": "%x"}]
    assert matches(call("add", var("x"), const("c", one)), graph) == [{"x": "%x", "c": "1"}]
    assert reason(call("sub", var("x"), one), build(lambda g, x, y: x - 2)) == (
        1,
        "the constant 2 is not 1",
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: call("add", "x", var("y")), "'x' is no pattern"),
        (lambda: call("add", None, var("y")), "None is no pattern"),
        (lambda: either(var("x"), [var("y")]), "[Var(name='y')] is no pattern"),
        (lambda: call("add", float("nan"), var("y")), "nan is no constant"),
        (lambda: const("c", float("inf")), "inf is no constant"),
        (lambda: const("c", "1.5x"), "'1.5x' is no constant"),
    ],
)
def test_what_is_no_pattern(make: Callable[[], Pattern], message: str) -> None:
    with pytest.raises(TfgraphError) as caught:
        make()
    assert caught.value.message == message
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_attributes_are_read_as_those_of_the_op() -> None:
    graph = build(lambda g, x, y: ops.layer_norm(ops.transpose(x, perm=(0, 2, 1)), eps=1e-6))
    moved = call("transpose", var("x"), attrs={"perm": [0, 2, 1]})
    assert matches(call("layer_norm", moved, attrs={"eps": 1e-6}), graph) == [{"x": "%x"}]
    assert matches(call("layer_norm", moved, attrs={"eps": 1e-5}), graph) == []


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"epsilon": 1}, "rule never: layer_norm has no attribute 'epsilon'"),
        ({"eps": "small"}, "rule never: layer_norm: eps: expected a number, got 'small'"),
    ],
)
def test_an_attribute_that_no_node_has(attrs: dict[str, Any], message: str) -> None:
    @rule(call("layer_norm", var("x"), attrs=attrs))
    def never(x: Any) -> Any:
        return x

    with pytest.raises(TfgraphError) as caught:
        apply_rules(build(lambda g, x, y: x + y), [never])
    assert caught.value.message == message
    assert caught.value.location == never.location


def test_advice_stands_beside_what_was_found() -> None:
    pattern = call("exp", call("mul", var("x"), var("x"), advice={"add": "multiply it"}))
    assert reason(pattern, build(lambda g, x, y: ops.exp(x + x)))[1].endswith(" = add; multiply it")
    assert reason(pattern, build(lambda g, x, y: ops.exp(x - x)))[1].endswith(" = sub")


def test_commutative_operands_match_in_both_orders() -> None:
    pattern = call("add", call("exp", var("a")), var("b"))
    want = [{"a": "%x", "b": "%y"}]
    assert matches(pattern, build(lambda g, x, y: ops.exp(x) + y)) == want
    assert matches(pattern, build(lambda g, x, y: y + ops.exp(x))) == want
    assert matches(call("add", var("a"), var("b")), build(lambda g, x, y: x + y)) == [
        {"a": "%x", "b": "%y"},
        {"a": "%y", "b": "%x"},
    ]
    assert len(matches(call("add", var("a"), var("b")), build(lambda g, x, y: x + x))) == 1


def test_other_operands_match_in_their_order_only() -> None:
    pattern = call("sub", call("exp", var("a")), var("b"))
    assert matches(pattern, build(lambda g, x, y: ops.exp(x) - y)) == [{"a": "%x", "b": "%y"}]
    assert reason(pattern, build(lambda g, x, y: y - ops.exp(x))) == (
        1,
        "expected exp, found the input %y",
    )


def test_an_optional_operand_may_be_left_out() -> None:
    def norm(*rows: str) -> Graph:
        def make(g: Builder, x: Any, y: Any) -> Any:
            return ops.layer_norm(x, *(g.param(row, "f32", 4) if row else None for row in rows))

        return build(make)

    pattern = call("layer_norm", var("x"), opt("scale"), opt("bias"))
    assert matches(pattern, norm()) == [{"x": "%x", "scale": "None", "bias": "None"}]
    assert matches(pattern, norm("s")) == [{"x": "%x", "scale": "%s", "bias": "None"}]
    assert matches(pattern, norm("", "b")) == [{"x": "%x", "scale": "None", "bias": "%b"}]
    assert reason(call("layer_norm", var("x"), var("scale"), var("bias")), norm("s")) == (
        1,
        "nothing stands where a tensor is expected",
    )
    assert reason(call("layer_norm", var("x"), opt("scale")), norm("s", "b")) == (
        1,
        "layer_norm has 3 operands",
    )
    # The same optional operand twice: given once, it is not the other time.
    assert reason(call("layer_norm", var("x"), opt("r"), opt("r")), norm("s")) == (
        1,
        "nothing is not the weight %s, which r is elsewhere",
    )


def test_either_goes_back_where_a_later_operand_does_not_fit() -> None:
    # a may be the operand of exp or its result; only the second leaves b equal to it.
    pattern = call("sub", either(call("exp", var("a")), var("a")), var("a"))

    def twice(g: Builder, x: Any, y: Any) -> Any:
        e = ops.exp(x)
        return e - e

    assert matches(pattern, build(twice)) == [{"a": "%0"}]
    assert matches(pattern, build(lambda g, x, y: ops.exp(x) - x)) == [{"a": "%x"}]


def test_either_gives_all_matches_in_the_order_of_its_patterns() -> None:
    pattern = either(call("exp", call("neg", var("a"))), call("exp", var("a")), var("a"))
    assert matches(pattern, build(lambda g, x, y: ops.exp(-x))) == [
        {"a": "%x"},
        {"a": "%0"},
        {"a": "%1"},
    ]


def test_what_an_alternative_lacked_is_no_reason_once_another_matched() -> None:
    scaled = either(call("mul", call("exp", var("x")), const("c")), var("x"))
    pattern = call("sub", scaled, call("tanh", var("y")))
    graph = build(lambda g, x, y: (x * 2) - y)
    # The first alternative got as far (two nodes), but the second matched: only `y` is at fault.
    assert reason(pattern, graph) == (1, "expected tanh, found the input %y")


def test_the_furthest_mismatch_is_the_reason() -> None:
    pattern = either(
        call("neg", var("x")), call("exp", call("tanh", call("neg", var("x")))), call("tanh")
    )
    graph = build(lambda g, x, y: ops.exp(ops.tanh(ops.sqrt(x))))
    assert reason(pattern, graph) == (2, "expected neg, found %0 = sqrt")


def test_of_equally_far_mismatches_the_first_is_the_reason() -> None:
    pattern = either(call("neg", var("x")), call("exp", var("x")))
    graph = build(lambda g, x, y: ops.sqrt(x))
    assert reason(pattern, graph) == (0, "expected neg, found %0 = sqrt")


def test_one_of_several_ops() -> None:
    pattern = call(("exp", "tanh"), var("x"), name="f")
    assert matches(pattern, build(lambda g, x, y: ops.tanh(x))) == [{"f": "%0 = tanh", "x": "%x"}]
    assert reason(pattern, build(lambda g, x, y: ops.sqrt(x))) == (
        0,
        "expected exp or tanh, found %0 = sqrt",
    )


def test_attributes() -> None:
    graph = build(lambda g, x, y: ops.transpose(x, perm=(0, 2, 1)))
    assert matches(call("transpose", var("x"), attrs={"perm": (0, 2, 1)}), graph) == [{"x": "%x"}]
    other = {"perm": (1, 0, 2)}
    assert reason(call("transpose", var("x"), attrs=other), graph) == (
        1,
        "transpose has perm=[0,2,1], expected [1,0,2]",
    )
    assert reason(call("transpose", var("x"), attrs=other, why="not turned"), graph) == (
        1,
        "not turned: transpose has perm=[0,2,1], expected [1,0,2]",
    )
    softmax = build(lambda g, x, y: ops.softmax(x, axis=1))
    assert reason(call("softmax", var("x"), attrs={"axis": -1}), softmax) == (
        1,
        "softmax has axis=1, expected -1",
    )


def test_why_is_said_instead_of_the_ops() -> None:
    pattern = call("exp", call("transpose", var("x"), why="K is not transposed"))
    assert reason(pattern, build(lambda g, x, y: ops.exp(x))) == (
        1,
        "K is not transposed, found the input %x",
    )


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda g, x, y: x - y, "the input %y"),
        (lambda g, x, y: x - 2, "the constant 2"),
        (lambda g, x, y: x - g.param("w", "f32", 4), "the weight %w"),
        (lambda g, x, y: x - ops.tanh(y), "%0 = tanh"),
    ],
)
def test_what_was_found_is_named(make: Any, found: str) -> None:
    pattern = call("sub", var("x"), call("exp", var("y")))
    assert reason(pattern, build(make)) == (1, f"expected exp, found {found}")


def test_nodes_are_collected_with_those_that_may_stay() -> None:
    pattern = call("exp", call("tanh", call("neg", var("x")), shared=True))
    graph = build(lambda g, x, y: ops.exp(ops.tanh(-x)))
    (state,) = pattern.match(graph.outputs[0].value, State(), Search(Draft(graph)))
    assert [(node.op, shared) for node, shared in state.nodes] == [
        ("exp", False),
        ("tanh", True),
        ("neg", False),
    ]
