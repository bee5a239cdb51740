"""Attention of one query a head, as where a token is generated: keys in the lanes, not queries.

With a single query the lanes of `AttentionTile` would be idle. Here a vector holds the scores of as
many keys, for which keys are transposed, once for all heads that share them; then columns of the
output, for which values are taken as they lie. Each sum adds the same products in the same order as
there, so the bits are the same: those of a query in a long prompt. May import: tvm,
tfgraph.backends.tvm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.attention_mask import Tile
from tfgraph.backends.tvm.cpu.attention_mask import Lanes, Masks
from tfgraph.backends.tvm.cpu.attention_tile import LOWEST, MASKED_BITS, power, tile_keys
from tfgraph.backends.tvm.cpu.emit import (
    hold,
    i64,
    load,
    loop,
    splat,
    store,
    transpose,
    workspace,
)
from tfgraph.backends.tvm.cpu.fetch import LINE, prefetch
from tfgraph.backends.tvm.cpu.rows import Part, max_lanes
from tfgraph.backends.tvm.cpu.vector_math import fma, tanh
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.backends.tvm.target import CpuMachine

Expr = Any

_PAIR = 2
"""Lanes of what masks and biases say of one query and key: TVM has no vector of one."""

_VECTORS = 8
"""Vectors of output that are summed in registers at a time."""


@dataclass(frozen=True)
class Problem:
    """What a kernel computes, whichever way it goes: see `attention`. A weight is base^score, over
    the sum of those; q is multiplied by `q_factor`, and `cap`, if any, follows tanh."""

    shape: AttentionShape
    machine: CpuMachine
    base: float
    q_factor: float
    cap: float | None
    masks: Masks
    q: Any
    k: Any
    v: Any
    out: Any


class OneQuery:
    """One task: the heads of one key head, of a batch entry with one query."""

    def __init__(self, problem: Problem, batch: Expr, kv_head: Expr) -> None:
        """Allocates what the task needs."""
        self._problem, self._batch, self._kv_head = problem, batch, kv_head
        shape, self._lanes = problem.shape, problem.machine.lanes
        self._masks, self._masked = problem.masks, bool(problem.masks.by_pair)
        self._heads, self._keys = shape.heads // shape.kv_heads, tile_keys(problem.machine)
        self._pitch, self._value_pitch = (
            -(-w // self._lanes) * self._lanes for w in (shape.width, shape.value_width)
        )
        self._queries = workspace(self._heads * self._pitch, "queries")
        self._columns = workspace(shape.width * self._keys, "columns")
        self._scores = workspace(self._heads * self._keys, "scores")
        self._output = workspace(self._heads * self._value_pitch, "output")
        self._high, self._total = (workspace(self._heads, n) for n in ("high", "total"))

    def emit(self) -> None:
        """All keys, tile by tile."""
        self._begin()
        keys = hold(self._masks.walk_length(self._batch))
        with loop(T.ceildiv(keys, i64(self._keys))) as number:
            first = hold(number * self._keys)
            count = hold(T.min(i64(self._keys), keys - first))
            if self._masked:
                ends = (hold(self._key(at)) for at in (first, first + count - 1))
                may, must = self._masks.ask(Tile(self._batch, i64(0), i64(0), *ends))
                with T.If(may), T.Then():
                    self._tile(first, count, hold(must))
            else:
                self._tile(first, count, None)
        self._finish()

    def _key(self, position: Expr) -> Expr:
        """The key at this position of the walk."""
        return self._masks.key(self._batch, position)

    def _begin(self) -> None:
        shape = self._problem.shape
        with loop(self._heads) as h:
            head = hold(self._kv_head * self._heads + h)
            start = shape.q_offset + head * shape.width
            for at, part in self._parts(shape.width, start):
                query = part.load(self._problem.q, self._batch, i64(0))
                query = query * splat(self._problem.q_factor, self._lanes)
                store(self._queries, h * self._pitch + at, query)
            for at in range(0, self._value_pitch, self._lanes):
                store(self._output, h * self._value_pitch + at, splat(0.0, self._lanes))
            T.buffer_store(self._high, T.float32(LOWEST), [h])
            T.buffer_store(self._total, T.float32(0), [h])

    def _tile(self, first: Expr, count: Expr, inside: Expr | None) -> None:
        """Positions first .. first + count - 1 of the walk; masks are asked where not `inside`."""
        self._transpose_keys(first, count)
        with loop(self._heads) as h:
            self._score(h)
            self._finish_scores(h, first, count, inside)
            shrink = self._weigh(h, count)
            if inside is None:
                self._add_values(h, first, count, shrink, select=False)
            else:
                with T.If(inside):
                    with T.Then():
                        self._add_values(h, first, count, shrink, select=False)
                    with T.Else():
                        self._add_values(h, first, count, shrink, select=True)

    def _transpose_keys(self, first: Expr, count: Expr) -> None:
        """columns[c, j] = k[j, c]. Past the end the last key is taken again."""
        shape, lanes = self._problem.shape, self._lanes
        start = shape.k_offset + self._kv_head * shape.width
        values = shape.v_offset + self._kv_head * shape.value_width
        with loop(T.ceildiv(count, i64(lanes))) as number:
            at = hold(number * lanes)
            rows = [hold(self._key(first + T.min(at + u, count - 1))) for u in range(lanes)]
            for u, row in enumerate(rows):
                for c in range(0, shape.value_width, LINE):
                    prefetch(self._problem.v[self._batch, row, values + c])
                coming = hold(self._key(first + T.min(at + lanes + u, count - 1)))
                for c in range(0, shape.width, LINE):
                    prefetch(self._problem.k[self._batch, coming, start + c])
            self._each_part(
                shape.width,
                lambda c, count: self._transpose(rows, Part(hold(start + c), count, lanes), c, at),
            )

    def _transpose(self, rows: list[Expr], part: Part, c: Expr, at: Expr) -> None:
        square = transpose([part.load(self._problem.k, self._batch, row) for row in rows])
        for i, column in enumerate(square[: int(part.count)]):
            store(self._columns, (c + i) * self._keys + at, column)

    def _each_part(self, width: int, emit: Callable[[Expr, int], None]) -> None:
        """`emit(c, count)` for each vector of a head's columns, whole ones in a loop."""
        whole, rest = divmod(width, self._lanes)
        if whole:
            with loop(whole) as number:
                emit(hold(number * self._lanes), self._lanes)
        if rest:
            emit(i64(whole * self._lanes), rest)

    def _score(self, h: Expr) -> None:
        """scores[h, j] = sum over c of columns[c, j] * q[h, c]."""
        starts = range(0, self._keys, self._lanes)
        sums = [workspace(self._lanes, "sums") for _ in starts]
        for total in sums:
            store(total, 0, splat(0.0, self._lanes))
        with loop(self._problem.shape.width) as c:
            factor = T.broadcast(hold(self._queries[h * self._pitch + c]), self._lanes)
            for at, total in zip(starts, sums, strict=True):
                column = load(self._columns, c * self._keys + at, self._lanes)
                store(total, 0, fma(factor, column, load(total, 0, self._lanes)))
        for at, total in zip(starts, sums, strict=True):
            store(self._scores, h * self._keys + at, load(total, 0, self._lanes))

    def _finish_scores(self, h: Expr, first: Expr, count: Expr, inside: Expr | None) -> None:
        """Softcap, then biases, then -inf where a mask forbids the pair."""
        if self._problem.cap is not None:
            cap = splat(self._problem.cap, self._lanes)
            with loop(T.ceildiv(count, i64(self._lanes))) as number:
                at = hold(h * self._keys + number * self._lanes)
                store(self._scores, at, tanh(load(self._scores, at, self._lanes)) * cap)
        if self._masks.biases:
            self._update(h, first, count, self._add_biases)
        if inside is not None:
            with T.If(tirx.Not(inside)), T.Then():
                self._update(h, first, count, self._hide)

    def _add_biases(self, pair: Lanes, score: Expr) -> Expr:
        for value in self._masks.values(pair):
            score = hold(score + value)
        return score

    def _hide(self, pair: Lanes, score: Expr) -> Expr:
        return tirx.Select(self._masks.allowed(pair), score, splat(-math.inf, _PAIR))

    def _update(
        self, h: Expr, first: Expr, count: Expr, change: Callable[[Lanes, Expr], Expr]
    ) -> None:
        """scores[h, j] = change(the pair, scores[h, j]), key by key."""
        head, changed = hold(self._kv_head * self._heads + h), workspace(_PAIR, "changed")
        with loop(count) as j:
            key = hold(self._key(first + j))
            pair = Lanes(self._batch, head, i64(0), i64(0), key, _PAIR)
            score = hold(self._scores[h * self._keys + j])
            store(changed, 0, change(pair, T.broadcast(score, _PAIR)))
            T.buffer_store(self._scores, changed[0], [h * self._keys + j])

    def _weigh(self, h: Expr, count: Expr) -> Expr:
        """Turn the scores of a head into weights; update high and total. The factor for what was
        summed before."""
        lanes, parts = self._lanes, range(0, self._keys, self._lanes)
        highest = workspace(lanes, "highest")
        store(highest, 0, splat(LOWEST, lanes))
        for at in parts:
            score = Part(i64(at), hold(count - at), lanes).or_else(
                load(self._scores, h * self._keys + at, lanes), splat(LOWEST, lanes)
            )
            store(highest, 0, T.max(load(highest, 0, lanes), score))
        high = hold(T.max(self._high[h], max_lanes(load(highest, 0, lanes))))
        for at in parts:
            score = hold(load(self._scores, h * self._keys + at, lanes))
            weight = hold(power(self._problem.base, score - T.broadcast(high, lanes)))
            if self._masked:
                hidden = score == splat(-math.inf, lanes)
                weight = hold(tirx.Select(hidden, splat(-0.0, lanes), weight))
            store(self._scores, h * self._keys + at, weight)
        shrink = hold(power(self._problem.base, self._high[h] - high))
        total = workspace(1, "sum")
        T.buffer_store(total, T.float32(0), [0])
        with loop(count) as j:
            T.buffer_store(total, total[0] + self._scores[h * self._keys + j], [0])
        T.buffer_store(self._total, fma(self._total[h], shrink, total[0]), [h])
        T.buffer_store(self._high, high, [h])
        return shrink

    def _add_values(self, h: Expr, first: Expr, count: Expr, shrink: Expr, *, select: bool) -> None:
        """output[h, c] = output[h, c] * shrink + sum over j of weights[h, j] * v[j, c].

        With `select` masked pairs are left out.
        """
        shape, lanes = self._problem.shape, self._lanes
        start = shape.v_offset + self._kv_head * shape.value_width
        every = self._parts(shape.value_width, start)
        for some in (every[i : i + _VECTORS] for i in range(0, len(every), _VECTORS)):
            sums = [workspace(lanes, "sums") for _ in some]
            for total in sums:
                store(total, 0, splat(0.0, lanes))
            with loop(count) as j:
                row = hold(self._key(first + j))
                weight = hold(self._scores[h * self._keys + j])
                factor = hold(T.broadcast(weight, lanes))
                bits = tirx.reinterpret(f"int32x{lanes}", factor)
                masked = bits == T.broadcast(T.int32(MASKED_BITS), lanes)
                for (_, part), total in zip(some, sums, strict=True):
                    old = load(total, 0, lanes)
                    new = fma(factor, part.load(self._problem.v, self._batch, row), old)
                    if select:
                        new = tirx.Select(masked, old, new)
                    store(total, 0, new)
            factor = T.broadcast(shrink, lanes)
            for (at, _), total in zip(some, sums, strict=True):
                place = hold(h * self._value_pitch + at)
                old = load(self._output, place, lanes)
                store(self._output, place, fma(old, factor, load(total, 0, lanes)))

    def _finish(self) -> None:
        """Divide the output by the totals; zeros where nothing was allowed."""
        width = self._problem.shape.value_width
        with loop(self._heads) as h:
            start = (self._kv_head * self._heads + h) * width
            total = hold(self._total[h])
            share = hold(T.float32(1) / total)
            for at, part in self._parts(width, start):
                output = load(self._output, h * self._value_pitch + at, self._lanes)
                output = output * T.broadcast(share, self._lanes)
                empty = T.broadcast(total == T.float32(0), self._lanes)
                output = tirx.Select(empty, splat(0.0, self._lanes), output)
                part.store(self._problem.out, output, self._batch, i64(0))

    def _parts(self, width: int, start: Expr) -> list[tuple[int, Part]]:
        """The vectors of a head's row that begins at `start`, each with its place in the head."""
        return [
            (at, Part(hold(start + at), min(self._lanes, width - at), self._lanes))
            for at in range(0, width, self._lanes)
        ]
