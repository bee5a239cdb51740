"""How examples of inputs are made: as their uses tell, unless the declaration says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tfgraph
from tfgraph import ops
from tfgraph.backends.base import input_ports
from tfgraph.ir import Fill, exact
from tfgraph.ir.mask import causal, dense, padding, prefix, segments

if TYPE_CHECKING:
    from pathlib import Path


def test_each_use_asks_for_examples_that_tell_wrong_from_right() -> None:
    with ops.graph("g") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        ids = g.input("ids", "i64", "batch", "seq")
        rows = g.input("rows", "i32", 3)
        keep, lengths = g.input("keep", "i64", "batch", "seq"), g.input("lengths", "i64", "batch")
        first, kinds = g.input("first", "i64", "batch"), g.input("kinds", "i64", "batch", "seq")
        pairs = g.input("pairs", "bool", "seq", "seq")
        g.input("unused", "i64", 4)
        given = g.input("given", "i64", "batch", "seq", fill=Fill("ones"))
        h = x + ops.embedding(ids, g.param("table", "f32", 11, 8))
        h = h + ops.embedding(ids, g.param("small", "f32", 5, 8))
        mask = causal() & padding(keep) & padding(lengths) & padding(given)
        scores = ops.mask(ops.matmul(h, ops.transpose(h, perm=(0, 2, 1))), mask)
        g.output("scores", scores)
        mask = prefix(first) & segments(kinds) & dense(pairs)
        g.output("y", ops.attention(h, h, h, mask, heads=2, kv_heads=2, scale=1))
        g.output("rows", ops.take(g.param("long", "f32", 4, 9), rows, axis=1))
    found = {port.name: port.fill for port in input_ports(g.build())}
    assert found == {
        "x": "normal(1)",
        "ids": "ids(5)",
        "rows": "ids(9)",
        "keep": "prefix()",
        "lengths": "lengths(seq)",
        "first": "lengths(seq)",
        "kinds": "ids(2)",
        "pairs": "ids(2)",
        "unused": "ones()",
        "given": "ones()",
    }
    assert g.build().inputs[-1].fill == Fill("ones")
    assert g.build().inputs[0].fill is None


@pytest.mark.parametrize("kind", [padding, segments])
def test_a_mask_that_is_lost_fails_verification(kind: object) -> None:
    """An example of ones would hide nothing, and prove nothing."""
    with tfgraph.graph("g") as g:
        x, keep = g.input("x", "f32", "batch", "seq", 8), g.input("keep", "i64", "batch", "seq")
        g.output("y", ops.attention(x, x, x, kind(keep), heads=1, kv_heads=1, scale=exact(1)))
        g.output("z", x)
    with tfgraph.graph("g") as lost:
        x, keep = (
            lost.input("x", "f32", "batch", "seq", 8),
            lost.input("keep", "i64", "batch", "seq"),
        )
        lost.output("y", ops.attention(x, x, x, heads=1, kv_heads=1, scale=exact(1)))
        lost.output("z", x)
    right, wrong = g.build(), lost.build()
    with tfgraph.compile(wrong, "numpy") as model:
        assert tfgraph.verify(model, right, {}).ok is False
        assert tfgraph.verify(model, wrong, {}).ok


def test_an_artifact_keeps_the_generator_of_an_input_that_a_pass_drops(tmp_path: Path) -> None:
    with tfgraph.graph("g") as g:
        x, ids = g.input("x", "f32", "n", 8), g.input("ids", "i64", "n")
        ops.add(x, ops.embedding(ids, g.param("table", "f32", 11, 8)))  # nobody reads it
        g.output("y", x * 2)
    built = tfgraph.build(g.build(), "cpu", tmp_path / "g.tfgraph", passes="dce", check=False)
    assert built.artifact is not None
    with tfgraph.load(built.artifact) as model:
        assert {port.name: port.fill for port in model.inputs} == {
            "x": "normal(1)",
            "ids": "ids(11)",
        }
