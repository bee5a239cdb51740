"""A row of a compiled model has the same bits whatever surrounds it: its batch-mates, the size of
the batch, its padding, and the pieces in which a prompt was fed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.small_model import small_model
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tfgraph
from tfgraph import blocks, ops
from tfgraph.ir import as_dim, rsqrt
from tfgraph.ir.mask import alibi, causal, prefix, relative, window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.backends.base import Executable

NDArray = np.ndarray[Any, Any]
ROWS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WIDTH, HEADS = 24, 4


def same(got: NDArray, want: NDArray, what: Any) -> None:
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes(), what


@pytest.fixture(scope="module", params=["fused", "node by node"])
def small(request: pytest.FixtureRequest) -> Iterator[Executable]:
    """Embeddings, masked and grouped attention, both norms, GELU, a gated feed-forward."""
    options = {} if request.param == "fused" else {"passes": "dce"}
    with tfgraph.compile(small_model(), "cpu", **options) as model:
        yield model


@ROWS
@given(st.lists(st.integers(1, 90), min_size=1, max_size=5), st.integers(0, 40), st.integers(0))
@example([1], 0, 0)
@example([64, 1, 65, 63], 1, 0)
@example([31, 33], 300, 1)
def test_a_row_is_alone_in_its_batch(
    small: Executable, lengths: list[int], padded: int, seed: int
) -> None:
    """Each sequence alone, without padding, has the bits that it has in a padded batch."""
    rng = np.random.default_rng(seed)
    longest = max(lengths) + padded
    ids = rng.integers(0, 90, (len(lengths), longest))
    keep = (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64)
    # The encoder layer of the model has no mask: what its decoder layer gives is compared.
    together = small(ids=ids, keep=keep)["decoded"]
    for row, length in enumerate(lengths):
        alone = small(ids=ids[row : row + 1, :length], keep=keep[row : row + 1, :length])["decoded"]
        same(together[row, :length], alone[0], (lengths, padded, row))


@ROWS
@given(st.permutations(range(4)), st.integers(1, 70), st.integers(0))
def test_batch_mates_may_change_places(
    small: Executable, order: list[int], length: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 90, (4, length))
    keep = (np.arange(length) < rng.integers(1, length + 1, (4, 1))).astype(np.int64)
    want = small(ids=ids, keep=keep)
    got = small(ids=ids[order], keep=keep[order])
    for name in want:
        same(got[name], want[name][order], (order, name))


MASKS = ("causal", "window", "prefix", "alibi", "relative", "none")


@pytest.fixture(scope="module", params=["fused", "node by node"])
def cached(request: pytest.FixtureRequest) -> Iterator[Executable]:
    """A block whose keys and values are those given and its own, under every mask by position."""
    with ops.graph("cached") as g:
        x = g.input("x", "f32", "batch", "seq", WIDTH)
        k, v = (g.input(n, "f32", "batch", "past", WIDTH // 2) for n in "kv")
        q, own_k, own_v = (
            blocks.linear(x, width, name=n)
            for n, width in (("q", WIDTH), ("own_k", WIDTH // 2), ("own_v", WIDTH // 2))
        )
        k, v = ops.concat(k, own_k, axis=1), ops.concat(v, own_v, axis=1)
        given = {
            "causal": causal("past"),
            "window": window(9, 0, "past"),
            "prefix": prefix(g.input("prefix", "i64", "batch"), "past"),
            "alibi": causal("past") & alibi(g.input("slopes", "f32", HEADS), as_dim("past")),
            "relative": causal("past")
            & relative(g.input("table", "f32", 8, HEADS), 20, offset="past"),
            "none": None,
        }
        for name, m in given.items():
            heads = {"heads": HEADS, "kv_heads": HEADS // 2, "scale": rsqrt(WIDTH // HEADS)}
            y = ops.attention(q, k, v, m, **heads)
            g.output(name, blocks.feed_forward(ops.layer_norm(ops.add(x, y)), 50))
        g.output("k", k)
        g.output("v", v)
    graph = g.build()
    if request.param == "node by node":
        graph = ops.expand(graph, lambda node: node.op == "attention")
    with tfgraph.compile(graph, "cpu", passes="dce") as model:
        yield model


@ROWS
@given(st.sets(st.integers(1, 149), max_size=6), st.integers(1, 70), st.integers(0))
@example(set(range(1, 20)), 1, 0)
@example({64, 128}, 1, 1)
@example({1, 63, 64, 65, 149}, 63, 2)
def test_a_prompt_may_come_in_pieces(
    cached: Executable, cuts: set[int], past: int, seed: int
) -> None:
    """Chunked prefill, down to a token at a time, against the whole prompt at once."""
    rng = np.random.default_rng(seed)
    length = 150
    x = rng.standard_normal((2, length, WIDTH), np.float32)
    k, v = (rng.standard_normal((2, past, WIDTH // 2), np.float32) for _ in range(2))
    extra = {
        "prefix": rng.integers(0, past + 1, 2),
        "slopes": rng.random(HEADS, np.float32),
        "table": rng.standard_normal((8, HEADS), np.float32),
    }
    want = cached(x=x, k=k, v=v, **extra)
    for start, stop in pairwise([0, *sorted(cuts), length]):
        piece = cached(x=x[:, start:stop], k=k, v=v, **extra)
        for name in MASKS[:-1]:  # without a mask the first pieces would see less
            same(piece[name], want[name][:, start:stop], (name, start, stop))
        k, v = piece["k"], piece["v"]
    same(k, want["k"], "keys")
    same(piece["none"], want["none"][:, start:], "the last piece sees all keys")
