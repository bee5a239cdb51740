"""fuse-attention: what fuses, with which scale and groups; and graphs that it must not fuse.

Each of those breaks one condition, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.reference import run_graph
from helpers.tolerance import assert_close

import tfgraph.ops as ops
from tfgraph.ir import Exact, Graph, exact, sqrt
from tfgraph.ir.mask import causal
from tfgraph.passes import PASSES, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Attention:
    """Scaled dot-product attention on heads, with one thing about it changed."""

    heads: int = 4
    k_heads: int = 4
    v_heads: int = 4
    transposed: bool = True
    perm: tuple[int, ...] = (0, 1, 3, 2)
    scale: str = "mul"
    cap: float | None = None
    inverse: Exact | None = None
    mask: str = "causal"
    axis: int = -1
    weights_read: bool = False
    scores_read: bool = False
    rank: int = 4
    batch: int = 2
    scores_of: Callable[..., Any] = ops.matmul
    values_by: Callable[..., Any] = ops.weighted_sum

    def graph(self) -> Graph:
        """Square sizes (length 8, head size 8), so that a wrong axis changes no shape."""
        with ops.graph("attention") as g:
            lead = (2,) if self.rank == 4 else ()
            q = g.input("q", "f32", *lead, self.heads, 8, 8)
            k = g.input("k", "f32", *((self.batch,) if lead else ()), self.k_heads, 8, 8)
            v = g.input("v", "f32", *lead, self.v_heads, 8, 8)
            perm = self.perm if self.rank == 4 else (0, 2, 1)
            scores = self.scores_of(q, ops.transpose(k, perm=perm) if self.transposed else k)
            raw = scores
            if self.scale == "mul":
                scores = scores * 0.25
            elif self.scale == "div":
                scores = scores / 4
            elif self.scale == "div 0":
                scores = scores / 0
            elif self.scale == "div sqrt":
                scores = scores / sqrt(8)
            elif self.scale == "by tensor":
                scores = scores * g.input("s", "f32")
            if self.cap is not None:
                inverse = self.inverse or Exact(Fraction(1) / Fraction(self.cap))
                scores = ops.tanh(scores * inverse) * self.cap
            if self.mask == "causal":
                scores = ops.mask(scores, causal())
            elif self.mask == "added":
                scores = scores + g.input("m", "f32", 2, 1, 8, 8)
            elif self.mask == "added before":
                scores = ops.mask(scores + g.input("m", "f32", 2, 1, 8, 8), causal())
            elif self.mask == "selected":
                low = ops.full(shape=(), value=-1e9, dtype="f32")
                scores = ops.where(g.input("keep", "bool", 2, 1, 8, 8), scores, low)
            elif self.mask == "twice":
                scores = ops.mask(ops.mask(scores, causal()), causal())
            if self.scale == "after":
                scores = scores * 0.25
            weights = ops.softmax(scores, axis=self.axis)
            g.output("out", self.values_by(weights, v))
            if self.weights_read:
                g.output("weights", weights)
            if self.scores_read:
                g.output("scores", raw)
        return g.build()


WHOLE = Attention()

ATTENTION = {
    "K not transposed": (
        replace(WHOLE, transposed=False),
        "K is not transposed, found the input %k",
    ),
    "K permuted otherwise": (
        replace(WHOLE, heads=8, k_heads=8, v_heads=8, perm=(0, 2, 1, 3)),
        "K is not transposed: perm is (0, 2, 1, 3), expected (0, 1, 3, 2)",
    ),
    "softmax over another axis": (
        replace(WHOLE, axis=2),
        "the softmax is over axis 2, not over the keys",
    ),
    "softmax over the heads": (
        replace(WHOLE, axis=1),
        "the softmax is over axis 1, not over the keys",
    ),
    "unknown mask": (
        replace(WHOLE, mask="added"),
        "unknown mask: expected mask or the scaled scores, found %3 = add; "
        "tfgraph.ops.mask(scores, tfgraph.bias(t)) fuses",
    ),
    "added before the mask": (
        replace(WHOLE, mask="added before"),
        "expected the scaled scores, found %3 = add; "
        "tfgraph.ops.mask(scores, tfgraph.bias(t)) fuses",
    ),
    "selected by hand": (
        replace(WHOLE, mask="selected"),
        "unknown mask: expected mask or the scaled scores, found %4 = where; "
        "tfgraph.ops.mask(scores, tfgraph.dense(t)) fuses",
    ),
    "scores that leave out queries of 0": (
        replace(WHOLE, scores_of=ops.weighted_sum),
        "expected the product of Q and K, found %1 = weighted_sum",
    ),
    "masked twice": (replace(WHOLE, mask="twice"), "expected the scaled scores, found %3 = mask"),
    "second consumer of the weights": (
        replace(WHOLE, weights_read=True),
        "%4 = softmax is also read by the graph's outputs",
    ),
    "second consumer of the scores": (
        replace(WHOLE, scores_read=True),
        "%1 = matmul is also read by the graph's outputs",
    ),
    "heads of V differ": (replace(WHOLE, v_heads=1), "K has 4 heads and V 1"),
    "scale is a tensor": (replace(WHOLE, scale="by tensor"), "the input %s is not a constant"),
    "softcap of a negative constant": (
        replace(WHOLE, cap=-30.0),
        "attention: softcap is -30, expected a positive rational",
    ),
    "scale over 0": (replace(WHOLE, scale="div 0"), "a constant is divided by 0"),
    "scaled after the mask": (
        replace(WHOLE, scale="after"),
        "expected the product of Q and K, found %2 = mask",
    ),
    "no batch": (
        replace(WHOLE, rank=3, mask="none"),
        "Q, K and V are f32[4,8,8], f32[4,8,8], f32[4,8,8], not [batch, heads, length, d]",
    ),
    "batch of K broadcasts": (
        replace(WHOLE, batch=1),
        "attention: batch or lengths differ: q f32[2,8,32], k f32[1,8,32], v f32[2,8,32]",
    ),
    "fewer heads of Q": (
        replace(WHOLE, heads=1),
        "attention: 1 query heads are not a multiple of 4 key/value heads",
    ),
}

FUSES = {
    "values by a matmul": replace(WHOLE, values_by=ops.matmul),
    "plain": WHOLE,
    "divided": replace(WHOLE, scale="div"),
    "divided by a root": replace(WHOLE, scale="div sqrt"),
    "no scale": replace(WHOLE, scale="none"),
    "no mask": replace(WHOLE, mask="none"),
    "softcap": replace(WHOLE, cap=30.0),
    "softcap with another constant inside": replace(WHOLE, cap=30.0, inverse=exact(0.5)),
    "softcap without a scale": replace(WHOLE, cap=30.0, scale="none"),
    "softmax over axis 3": replace(WHOLE, axis=3),
}


def fuse(graph: Graph, name: str) -> tuple[dict[str, int], list[str]]:
    """What a pass applied, and the reasons for what it declined."""
    _, (report,) = run_pipeline(graph, [PASSES[name]()])
    return report.applied, [d.reason for d in report.declined]


@pytest.mark.parametrize("case", FUSES.values(), ids=FUSES)
def test_attention_fuses(case: Attention) -> None:
    applied, declined = fuse(case.graph(), "fuse-attention")
    assert applied.get("fuse-attention") == 1
    assert not declined


@pytest.mark.parametrize(("case", "reason"), ATTENTION.values(), ids=ATTENTION)
def test_attention_declines(case: Attention, reason: str) -> None:
    applied, declined = fuse(case.graph(), "fuse-attention")
    assert "fuse-attention" not in applied
    assert declined == [reason]


@pytest.mark.parametrize("missing", ["q", "k", "v"])
def test_attention_declines_where_one_has_no_batch(missing: str) -> None:
    with ops.graph("g") as g:
        q, k, v = (
            g.input(n, "f32", *(() if n == missing else (1,)), 4, 8, 8) for n in ("q", "k", "v")
        )
        perm = (0, 2, 1) if missing == "k" else (0, 1, 3, 2)
        scores = ops.matmul(q, ops.transpose(k, perm=perm))
        g.output("o", ops.matmul(ops.softmax(scores), v))
    applied, declined = fuse(g.build(), "fuse-attention")
    assert not applied
    assert len(declined) == 1
    assert declined[0].endswith("not [batch, heads, length, d]")


def test_attention_declines_where_heads_are_symbolic() -> None:
    with ops.graph("g") as g:
        q, k, v = (g.input(n, "f32", 2, "heads", 8, 8) for n in ("q", "k", "v"))
        scores = ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2)))
        g.output("o", ops.matmul(ops.softmax(scores), v))
    applied, declined = fuse(g.build(), "fuse-attention")
    assert not applied
    assert declined == ["the number of heads is symbolic: heads"]


def repeated(x: Any, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """reshape, broadcast, reshape: all ways of repeating heads look like this."""
    one, wide, whole = shapes
    return ops.reshape(ops.broadcast_to(ops.reshape(x, shape=one), shape=wide), shape=whole)


def grouped(k_shapes: Any, v_shapes: Any, *, q_heads: int = 4, heads: int = 2) -> Graph:
    """Attention of 8 queries to 8 keys of 8, K and V repeated to 4 heads in the given ways."""
    with ops.graph("grouped") as g:
        q = g.input("q", "f32", 2, q_heads, 8, 8)
        k, v = g.input("k", "f32", 2, heads, 8, 8), g.input("v", "f32", 2, heads, 8, 8)
        k, v = repeated(k, k_shapes), repeated(v, v_shapes)
        scores = ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2)))
        g.output("o", ops.matmul(ops.softmax(scores), v))
    return g.build()


IN_PLACE = ((2, 2, 1, 8, 8), (2, 2, 2, 8, 8), (2, 4, 8, 8))
# Each repeats the heads in another order, or something else than the heads.
OTHERWISE = {
    "one after the other": ((2, 1, 2, 8, 8), (2, 2, 2, 8, 8), (2, 4, 8, 8)),
    "along an axis in front": ((2, 2, 1, 8, 8), (2, 2, 2, 1, 8, 8), (2, 4, 8, 8)),
    "batch and heads mixed": ((1, 4, 1, 8, 8), (1, 4, 2, 8, 8), (2, 4, 8, 8)),
    "rows instead": ((2, 2, 8, 1, 8), (2, 2, 8, 2, 8), (2, 4, 8, 8)),
}


@pytest.mark.parametrize("shapes", OTHERWISE.values(), ids=OTHERWISE)
@pytest.mark.parametrize("which", ["k", "v", "both"])
def test_heads_repeated_otherwise_are_no_groups(
    shapes: tuple[tuple[int, ...], ...], which: str
) -> None:
    """The repetition stays, and the attention reads what it gives."""
    k, v = (shapes if which in (n, "both") else IN_PLACE for n in ("k", "v"))
    graph = grouped(k, v)
    fused = fused_into(graph, heads=4, kv_heads=4)
    assert_equal(graph, fused)


def test_heads_repeated_into_rows_are_no_groups() -> None:
    """One head of 32 keys, which the four query heads share."""
    shapes = ((2, 2, 1, 8, 8), (2, 2, 2, 8, 8), (2, 1, 32, 8))
    graph = grouped(shapes, shapes)
    assert_equal(graph, fused_into(graph, heads=4, kv_heads=1))


def fused_into(graph: Graph, heads: int, kv_heads: int) -> Graph:
    """The fused graph, whose attention has so many heads."""
    fused, (report,) = run_pipeline(graph, [PASSES["fuse-attention"]()])
    assert report.applied["fuse-attention"] == 1
    (node,) = (n for n in fused.nodes if n.op == "attention")
    assert (node.attrs["heads"], node.attrs["kv_heads"]) == (heads, kv_heads)
    return fused


def assert_equal(graph: Graph, fused: Graph) -> None:
    """The output `o` of both is the same on random inputs."""
    rng = np.random.default_rng(0)
    shapes = {i.value.name: tuple(map(int, i.value.type.shape)) for i in graph.inputs}
    arrays = {k: rng.standard_normal(shape).astype(np.float32) for k, shape in shapes.items()}
    want, got = (run_graph(each, arrays)["o"] for each in (graph, fused))
    assert_close(got, want, length=8 + 8)


def test_query_heads_that_broadcast_are_no_groups() -> None:
    """One query head against one key head repeated to four: four heads of results."""
    shapes = ((2, 1, 1, 8, 8), (2, 1, 4, 8, 8), (2, 4, 8, 8))
    applied, declined = fuse(grouped(shapes, shapes, q_heads=1, heads=1), "fuse-attention")
    assert "fuse-attention" not in applied
    assert declined == ["the heads of Q broadcast: f32[2,1,8,8] to f32[2,4,8,8]"]


@pytest.mark.parametrize("read", ["one", "wide", "whole", "k_t"])
@pytest.mark.parametrize("which", ["k", "v"])
def test_what_only_moves_elements_may_be_read_elsewhere(which: str, read: str) -> None:
    """The repetition and the transpose stay for their other readers, and attention does without."""
    with ops.graph("g") as g:
        q = g.input("q", "f32", 2, 4, 8, 8)
        sides = {}
        for name in ("k", "v"):
            parts = {"one": ops.reshape(g.input(name, "f32", 2, 2, 8, 8), shape=IN_PLACE[0])}
            parts["wide"] = ops.broadcast_to(parts["one"], shape=IN_PLACE[1])
            parts["whole"] = ops.reshape(parts["wide"], shape=IN_PLACE[2])
            parts["k_t"] = ops.transpose(parts["whole"], perm=(0, 1, 3, 2))
            sides[name] = parts
        weights = ops.softmax(ops.matmul(q, sides["k"]["k_t"]))
        g.output("o", ops.matmul(weights, sides["v"]["whole"]))
        g.output("read", ops.exp(sides[which][read]))
    graph = g.build()
    assert_equal(graph, fused_into(graph, heads=4, kv_heads=2))


def test_heads_split_and_keys_transposed_in_one() -> None:
    with ops.graph("g") as g:
        q, v = g.input("q", "f32", 2, 4, 8, 8), g.input("v", "f32", 2, 4, 8, 8)
        k = ops.transpose(g.input("k", "f32", 2, 8, 4, 8), perm=(0, 2, 3, 1))
        g.output("o", ops.matmul(ops.softmax(ops.matmul(q, k)), v))
    graph = g.build()
    assert_equal(graph, fused_into(graph, heads=4, kv_heads=4))


@pytest.mark.parametrize(
    ("case", "scale", "cap"),
    [
        ("plain", "0.25", "None"),
        ("divided", "0.25", "None"),
        ("divided by a root", "rsqrt(8)", "None"),
        ("no scale", "1", "None"),
        ("softcap", "0.25", "30"),
        ("softcap with another constant inside", "3.75", "30"),
        ("softcap without a scale", "1", "30"),
    ],
)
def test_the_scale_is_the_product_of_all_constants(case: str, scale: str, cap: str) -> None:
    fused, _ = run_pipeline(FUSES[case].graph(), [PASSES["fuse-attention"]()])
    node = next(n for n in fused.nodes if n.op == "attention")
    assert (str(node.attrs["scale"]), str(node.attrs["softcap"])) == (scale, cap)


def test_softcap_divides_inside_too() -> None:
    with ops.graph("g") as g:
        q, k, v = (g.input(n, "f32", 2, 4, 8, 8) for n in ("q", "k", "v"))
        scores = ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2))) / 4
        g.output("o", ops.matmul(ops.softmax(ops.tanh(scores / 30) * 30), v))
    fused, _ = run_pipeline(g.build(), [PASSES["fuse-attention"]()])
    node = next(n for n in fused.nodes if n.op == "attention")
    assert (str(node.attrs["scale"]), str(node.attrs["softcap"])) == ("0.25", "30")


def test_grouped_heads_fuse() -> None:
    graph = grouped(IN_PLACE, IN_PLACE)
    assert_equal(graph, fused_into(graph, heads=4, kv_heads=2))
