"""Every mask on every backend, in an attention that is fused and in one that is not.

The oracle goes query by query in float64 and leaves hidden keys out of every sum; what masks allow
and add comes from helpers.masks. (The CUDA kernels, which need no GPU to be
checked one by one, have the same cases in test_cuda_attention and test_cuda_kernels.)
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import combinations_with_replacement
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.masks import BATCH, HEADS, kinds, pairs
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.ir import as_dim, rsqrt
from tfgraph.passes import parse_pipeline, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.backends.base import Executable
    from tfgraph.ir import Graph, Mask

NDArray = np.ndarray[Any, Any]
WIDTH, VALUES, SCALE = 5, 3, rsqrt(5)  # of a head
SIZES = (1, 2, 3, 7, 63, 64, 65, 129)
CACHED = [(1, 1), (1, 64), (2, 1), (3, 62), (7, 57), (64, 1), (65, 64), (129, 3)]
NAMES = list(kinds(2, 2, 0))
# In the plain run each kind meets those that hide most: a key-only mask and a diagonal.
PAIRS = [(a, b) for a in NAMES for b in ("padding of bool", "causal") if a != b]
EVERY_PAIR = list(combinations_with_replacement(NAMES, 2))
Names = tuple[str, ...]


def masks_at(queries: int, past: int) -> dict[str, Mask]:
    """The masks at one size, where some queries have no key: rows at the start and in the middle
    (dense), a whole entry of the batch (lengths and bools)."""

    def spoil(name: str, data: NDArray) -> NDArray:
        data = data.astype(np.float32) if data.dtype == np.float64 else data.copy()
        if name == "dense [q, k]":
            data[: queries // 2] = False
        elif name == "dense [b, h, q, k]":
            data[:, 1, queries // 3 : queries // 2 + 1] = False
        elif name.startswith("padding"):
            data[1] = 0
        return data

    found = kinds(queries, past + queries, past)
    return {
        name: m.map(lambda t, name=name: ops.FloatArray(spoil(name, t.data)))
        for name, m in found.items()
    }


def build(combinations: list[Names], cached: bool) -> tuple[Graph, dict[str, Names]]:
    """A graph with an output for each combination of masks, and the combination by output."""
    queries, past = 7, 6 if cached else 0  # no other size of a mask's tensor is 7 or 13
    keys = as_dim("past") + "seq" if cached else as_dim("seq")
    dims = {BATCH: as_dim("batch"), queries: as_dim("seq"), past + queries: keys}
    with ops.graph("masks") as g:
        q = g.input("q", "f32", "batch", "seq", HEADS * WIDTH)
        k = g.input("k", "f32", "batch", keys, HEADS * WIDTH)
        v = g.input("v", "f32", "batch", keys, HEADS * VALUES)
        found: dict[str, Mask] = {}
        for name, m in masks_at(queries, past).items():
            if not any(name in names for names in combinations):
                continue
            arrays = [a.data for a in m.tensors()]
            tensors = iter(
                [
                    g.input(f"{name} {n}", str(a.dtype), *(dims.get(s, s) for s in a.shape))
                    for n, a in enumerate(arrays)
                ]
            )
            found[name] = m.map(lambda _, t=tensors: next(t), lambda d: dims_of(d, past))
        outputs: dict[str, Names] = {}
        for names in combinations:
            m = reduce(and_, (found[n] for n in names))
            qs, ks, vs = (ops.split_heads(x, HEADS) for x in (q, k, v))
            scores = ops.matmul(qs, ops.transpose(ks, perm=(0, 1, 3, 2))) * SCALE
            context = ops.weighted_sum(ops.softmax(ops.mask(scores, m)), vs)
            output = f"out{len(outputs)}"
            outputs[output] = names
            g.output(output, ops.merge_heads(context))
    return g.build(), outputs


def dims_of(d: Any, past: int) -> Any:
    return as_dim("past") if past and d == as_dim(past) else d


class Attentions:
    """The outputs of one backend for every combination, and what they should be."""

    def __init__(self, backend: str, fused: bool, combinations: list[Names], cached: bool) -> None:
        graph, self.outputs = build(combinations, cached)
        if fused:
            graph, _ = run_pipeline(graph, parse_pipeline("simplify,fuse-attention,dce"))
            assert [n.op for n in graph.nodes].count("attention") == len(combinations)
        self.cached, self.backend = cached, backend
        self.executable: Executable = tfgraph.compile(graph, backend, passes="dce")

    def feeds(self, queries: int, past: int) -> tuple[dict[str, NDArray], dict[str, Mask]]:
        """Seeded inputs, and the masks that they hold."""
        rng = np.random.default_rng([queries, past])
        masks = masks_at(queries, past)
        arrays: dict[str, NDArray] = {
            f"{name} {n}": a.data for name, m in masks.items() for n, a in enumerate(m.tensors())
        }
        for name, length, width in (("q", queries, WIDTH), ("k", past + queries, WIDTH)):
            arrays[name] = rng.standard_normal((BATCH, length, HEADS * width), np.float32)
        arrays["v"] = rng.standard_normal((BATCH, past + queries, HEADS * VALUES), np.float32)
        wanted = {port.name for port in self.executable.inputs}
        return {name: a for name, a in arrays.items() if name in wanted}, masks

    def __call__(self, feeds: Mapping[str, NDArray]) -> dict[str, NDArray]:
        found = self.executable(**feeds)
        return {out: a.reshape(*a.shape[:2], HEADS, VALUES) for out, a in found.items()}


@np.errstate(invalid="ignore")  # NaN and inf are among the inputs
def attend(feeds: Mapping[str, NDArray], allowed: NDArray, added: NDArray) -> NDArray:
    """[batch, query, head, value] in float64; a query with no key gets zeros."""
    q, k, v = (
        feeds[n].astype(np.float64).reshape(*feeds[n].shape[:2], HEADS, -1) for n in ("q", "k", "v")
    )
    out = np.zeros((*q.shape[:3], VALUES))
    for b, i, h in np.ndindex(out.shape[:3]):
        keys = np.flatnonzero(allowed[b, h, i])
        if len(keys):
            score = k[b, keys, h] @ q[b, i, h] * float(SCALE) + added[b, h, i, keys]
            weight = np.exp(score - score.max())
            out[b, i, h] = weight @ v[b, keys, h] / weight.sum()
    return out


def expected(
    feeds: Mapping[str, NDArray], masks: list[Mask], queries: int, past: int
) -> tuple[NDArray, NDArray, float]:
    """The outputs in float64, which pairs are allowed, and the size at which scores are rounded."""
    allowed, added = pairs(reduce(and_, masks), (BATCH, HEADS, queries, past + queries), past)
    return attend(feeds, allowed, added), allowed, max(1.0, float(np.abs(added).max()))


BACKENDS = ["numpy", "cpu"]
FORMS = {"fused": True, "node by node": False}


@pytest.fixture(scope="module", params=[(b, f) for b in BACKENDS for f in FORMS], ids=str)
def singles(request: pytest.FixtureRequest) -> dict[bool, Attentions]:
    """Each mask alone, with and without a cache."""
    backend, form = request.param
    alone = [(name,) for name in NAMES]
    return {cached: Attentions(backend, FORMS[form], alone, cached) for cached in (False, True)}


def check(model: Attentions, queries: int, past: int) -> None:
    feeds, masks = model.feeds(queries, past)
    found = model(feeds)
    for output, names in model.outputs.items():
        want, allowed, scale = expected(feeds, [masks[n] for n in names], queries, past)
        length = WIDTH + past + queries
        assert_close(found[output], want, length=length, scale=scale, name=str(names))
        empty = ~allowed.any(-1).transpose(0, 2, 1)
        assert not found[output][empty].any(), f"{names}: a row with no key is not zeros"


@pytest.mark.parametrize("size", SIZES)
def test_each_mask(singles: dict[bool, Attentions], size: int) -> None:
    check(singles[False], size, 0)


@pytest.mark.parametrize(("queries", "past"), CACHED)
def test_each_mask_behind_a_cache(singles: dict[bool, Attentions], queries: int, past: int) -> None:
    check(singles[True], queries, past)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("queries", "past"), [(3, 0), (65, 0), (7, 57)])
def test_what_a_mask_hides_reaches_nothing(
    singles: dict[bool, Attentions], queries: int, past: int, poison: float
) -> None:
    model = singles[past > 0]
    feeds, masks = model.feeds(queries, past)
    clean = model(feeds)
    rng = np.random.default_rng(queries)
    bad = rng.random((BATCH, past + queries)) < 0.1
    bad[0, -1] = True
    for name in ("k", "v"):
        feeds[name] = np.where(bad[:, :, None], np.float32(poison), feeds[name])
    dirty = model(feeds)
    for output, names in model.outputs.items():
        _, allowed, _ = expected(feeds, [masks[n] for n in names], queries, past)
        sees = (allowed & bad[:, None, None, :]).any(-1).transpose(0, 2, 1)
        if model.backend == "numpy":
            assert_close(dirty[output][~sees], clean[output][~sees], name=str(names))
        else:
            np.testing.assert_array_equal(dirty[output][~sees], clean[output][~sees], str(names))
        if np.isnan(poison):
            assert np.isnan(dirty[output][sees]).all(), names


def test_every_kind_hides_or_adds_something() -> None:
    """Else the tests above would pass with any mask."""
    masks = masks_at(65, 64)
    for name in NAMES:
        allowed, added = pairs(masks[name], (BATCH, HEADS, 65, 129), 64)
        assert added.any() or not allowed.all() or name == "window()", name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
def test_pairs(backend: str, form: str) -> None:
    model = Attentions(backend, FORMS[form], PAIRS, cached=True)
    for queries, past in ((1, 7), (3, 62), (65, 5)):
        check(model, queries, past)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cached", [False, True])
def test_every_pair(backend: str, form: str, cached: bool) -> None:
    for start in range(0, len(EVERY_PAIR), 40):
        model = Attentions(backend, FORMS[form], EVERY_PAIR[start : start + 40], cached)
        for size in (1, 7, 64, 65):
            check(model, size, 9 if cached else 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_may_stand_before_all_keys(backend: str) -> None:
    """An offset of keys - queries, negative where there are more queries: the last see all keys."""
    offset = as_dim("t") - "s"
    with ops.graph("offsets") as g:
        q = g.input("q", "f32", BATCH, "s", HEADS * WIDTH)
        k = g.input("k", "f32", BATCH, "t", HEADS * WIDTH)
        v = g.input("v", "f32", BATCH, "t", HEADS * VALUES)
        scores = g.input("scores", "f32", BATCH, HEADS, "s", "t")
        found = {n: m for n, m in masks_at(2, 1).items() if getattr(m, "offset", None) is not None}
        for name, m in found.items():
            moved = replace(m, offset=offset)
            moved = moved.map(lambda t: g.input(name, str(t.dtype), *t.shape))  # noqa: B023
            sizes = {"heads": HEADS, "kv_heads": HEADS, "scale": SCALE}
            out = ops.split_heads(ops.attention(q, k, v, moved, **sizes), HEADS)
            g.output(f"{name} fused", ops.transpose(out, perm=(0, 2, 1, 3)))
            g.output(f"{name} masked", ops.mask(scores, moved))
    model = tfgraph.compile(g.build(), backend)
    for s, t in ((9, 4), (65, 1), (3, 2), (64, 65)):
        rng = np.random.default_rng([s, t])
        shapes = {"q": (BATCH, s, HEADS * WIDTH), "k": (BATCH, t, HEADS * WIDTH)}
        shapes |= {"v": (BATCH, t, HEADS * VALUES), "scores": (BATCH, HEADS, s, t)}
        feeds = {n: rng.standard_normal(shape, np.float32) for n, shape in shapes.items()}
        own = {n: a.data for n, m in found.items() for a in m.tensors()}
        outputs = model(**feeds, **own)
        for name, m in found.items():
            allowed, added = pairs(m, (BATCH, HEADS, s, t), t - s)
            want = np.where(allowed, feeds["scores"] + added, -np.inf)
            scale = max(1.0, float(np.abs(added).max()))
            assert_close(outputs[f"{name} masked"], want, scale=scale, name=name)
            want = attend(feeds, allowed, added)
            assert_close(
                outputs[f"{name} fused"], want, length=WIDTH + t, scale=scale, name=f"{name} fused"
            )
