"""What looks like something that exporters write out, and is not."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tfgraph
import tfgraph.ops as ops
from tfgraph.ir import Graph
from tfgraph.ir import mask as masks
from tfgraph.passes import IMPORTED_PIPELINE, PassReport, parse_pipeline, run_pipeline


def reports_of(graph: Graph, passes: str) -> list[PassReport]:
    return run_pipeline(graph, parse_pipeline(passes))[1]


def scores(g: Any) -> Any:
    """Q K^T of four-dimensional inputs."""
    q, k = (g.input(n, "f32", "batch", 2, "seq", 4) for n in "qk")
    return q @ ops.transpose(k, perm=(0, 1, 3, 2))


def line(size: Any, *shape: Any) -> Any:
    return ops.reshape(ops.iota(length=size), shape=shape)


def test_ordinary_arithmetic_is_no_near_miss() -> None:
    with tfgraph.graph("g") as g:
        x, y = g.input("x", "f32", 2, 4, 4), g.input("y", "f32", 2, 4, 4)
        made = [x * y, x / y, x + y, x - y, x @ y, ops.softmax(x), ops.concat(x, y, axis=-1)]
        made += [ops.transpose(x, perm=(0, 2, 1)) * 2, ops.layer_norm(x) * y + x, x * 2 @ y]
        made += [ops.mask(x, masks.causal()), x * ops.sigmoid(y), ops.erf(x) * y, x * ops.tanh(y)]
        made += [ops.attention(x, y, y, heads=2, kv_heads=2, scale=1)]
        made += [ops.where(g.input("c", "bool", 2, 4, 4), x, y)]
        made += [x @ g.param("w3", "f32", 2, 4, 4), ops.reshape(x, shape=(8, 4))]
        for i, value in enumerate(made):
            g.output(f"y{i}", value)
    reports = reports_of(g.build(), IMPORTED_PIPELINE)
    recovering = [report for report in reports if report.name.startswith("recover")]
    assert [d for report in recovering for d in report.declined] == []


def test_rotary_in_pairs_needs_one_table_for_all_rows() -> None:
    """What looks like pairs but is not: read along another axis, or another one for each row."""
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", 2, 2, 2, 4)
        even, odd = (ops.take(x, ops.iota(length=2) * 2 + i, axis=-1) for i in (0, 1))
        flat = (2, 2, 2, 2, 1)
        table = g.param("table", "f32", 2, 2)
        for name, inner, shape in (
            ("pairs", (1, 2, 1, 2, 1), (1, 2, 1, 4)),
            ("halves", (1, 2, 1, 1, 2), (1, 2, 1, 4)),
            ("rows", (1, 2, 1, 2, 1), (2, 1, 1, 4)),
        ):
            one = ops.broadcast_to(ops.reshape(table, shape=inner), shape=(1, 2, 1, 2, 2))
            t = ops.reshape(one, shape=shape)
            sides = (ops.reshape(side, shape=flat) for side in (-odd, even))
            swapped = ops.concat(*sides, axis=-1)
            g.output(name, x * t + ops.reshape(swapped, shape=(2, 2, 2, 4)) * t)
    reports = reports_of(g.build(), "recover-rotary")
    assert reports[0].applied["interleaved-rotary"] == 1


def test_a_part_of_other_heads_is_not_turned_as_a_whole() -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", 2, 2, 3, 4)
        first, rest = (ops.slice_(x, axis=-1, start=i, stop=i + 2) for i in (0, 2))
        cos, sin = (g.param(n, "f32", 3, 2) for n in ("cos", "sin"))
        turned = ops.rotary(ops.merge_heads(first), cos, sin, heads=1)
        g.output("y", ops.concat(ops.split_heads(turned, 2), rest, axis=-1))
    reports = reports_of(g.build(), "recover-rotary")
    assert "partial-rotary" not in reports[0].applied


def test_a_constant_added_to_hidden_scores_is_left_alone() -> None:
    with tfgraph.graph("g") as g:
        seen = ops.less(line("seq", 1, 1, 1, "seq"), line("seq", 1, 1, "seq", 1) + 1)
        least = ops.full(shape=(), value=-3.4e38, dtype="f32")
        g.output("y", ops.softmax(ops.where(seen, scores(g) + 3, least)))
    reports = reports_of(g.build(), "recover-masks")
    assert reports[0].applied == {}


@pytest.mark.parametrize(
    ("dtype", "ulp"), [("f64", 2.0**-23), ("f32", 2.0**-23), ("f16", 2.0**-10), ("bf16", 2.0**-7)]
)
def test_constants_of_activations_are_read_within_two_ulp(dtype: str, ulp: float) -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", dtype, 4)
        for i, far in enumerate((1.9, -1.9, 2.1, -2.1)):
            g.output(f"y{i}", x * ops.sigmoid(x * (1.702 * (1 + far * ulp))))
    (report,) = reports_of(g.build(), "recover-activations")
    assert report.applied == {"quick-gelu": 2}
    assert [d.rule for d in report.declined] == ["quick-gelu"] * 2


DENSE = "dense(%{}) has no structure that is known: "
BIAS = "bias(%{}) is no slopes and no buckets of distances: "
CONSTANT, COMPUTED = "its elements are constants", "it is computed from "


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (lambda g: masks.padding(g.input("ids", "i64", "batch", "seq")), ()),
        (lambda g: masks.bias(g.param("t", "f32", "seq", "seq")), (BIAS + CONSTANT,)),
        (lambda g: masks.dense(ops.less(rows(), columns())), (DENSE + CONSTANT,)),
        (lambda g: masks.bias(twice(given(g, "t"))), (BIAS + COMPUTED + "%t",)),
        (lambda g: masks.bias(ops.softmax(given(g, "t"))), (BIAS + COMPUTED + "%2",)),
        (
            lambda g: masks.bias(
                ops.abs_(given(g, "w") + given(g, "x")) * (given(g, "y") + given(g, "z"))
            ),
            (BIAS + COMPUTED + "%y, %z, %w, ...",),
        ),
        (
            lambda g: masks.dense(given(g, "c", "bool")) & masks.bias(given(g, "t")),
            (DENSE + COMPUTED + "%c", BIAS + COMPUTED + "%t"),
        ),
    ],
)
def test_why_a_mask_keeps_no_structure(mask: Any, reasons: tuple[str, ...]) -> None:
    with tfgraph.graph("g") as g:
        g.output("y", ops.softmax(ops.mask(scores(g), mask(g))))
    (report,) = reports_of(g.build(), "recover-masks")
    found = [d.reason for d in report.declined if d.rule == "structure"]
    assert [re.sub(r"\(%\w+\)", "(%{})", reason) for reason in found] == (
        ["; ".join(reasons)] if reasons else []
    )


def given(g: Any, name: str, dtype: str = "f32") -> Any:
    return g.input(name, dtype, "seq", "seq")


def twice(t: Any) -> Any:
    return t * ops.abs_(t)


def rows() -> Any:
    return line("seq", "seq", 1)


def columns() -> Any:
    return line("seq", 1, "seq")


def test_what_hides_is_read_with_what_is_added_behind_it() -> None:
    with tfgraph.graph("g") as g:
        keep, t = g.input("keep", "bool", "batch", 1, 1, "seq"), g.input("t", "f32", "seq", "seq")
        zero, least = (ops.full(shape=(), value=v, dtype="f32") for v in (0, -3.4e38))
        g.output("y", ops.softmax(scores(g) + (ops.where(keep, zero, least) + t)))
    assert reports_of(g.build(), "recover-masks")[0].applied == {"changes-empty-rows": 1}


def test_a_guard_of_empty_rows_is_needless_unless_masks_are_strict() -> None:
    with tfgraph.graph("g") as g:
        p, x = ops.softmax(scores(g)), g.input("x", "f32", 4)
        made = [(p, 0), (p, 1), (x, 0), (ops.exp(x), 0)]
        for i, (value, instead) in enumerate(made):
            other = ops.full(shape=(), value=instead, dtype="f32")
            g.output(f"y{i}", ops.where(ops.logical_not(ops.equal(value, value)), other, value))
    (report,) = reports_of(g.build(), "recover-masks")
    assert report.applied == {"guard-changes-nan-rows": 1}
    assert report.declined == ()
    assert reports_of(g.build(), "recover-masks{strict=true}")[0].applied == {}
