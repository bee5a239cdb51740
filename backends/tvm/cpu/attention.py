"""Attention in one pass over the keys: no s x t array is ever stored.

softmax(q k^T * scale + bias) v. A task computes a block of queries of one head: it walks the keys
tile by tile, skips the tiles that the mask rules out, and leaves the arithmetic of a tile to
`AttentionTile`. May import: tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.attention_mask import Tile, nonzero
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cpu import emit
from tfgraph.backends.tvm.cpu.attention_mask import Lanes, Masks
from tfgraph.backends.tvm.cpu.attention_one import OneQuery, Problem
from tfgraph.backends.tvm.cpu.attention_tile import AttentionTile, CopiedRows
from tfgraph.backends.tvm.cpu.emit import hold, i64, loop, splat
from tfgraph.backends.tvm.cpu.rows import Part
from tfgraph.backends.tvm.cpu.schedule import SCHEDULE, AttentionSchedule
from tfgraph.backends.tvm.cpu.vector_math import tanh
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.backends.tvm.target import CpuMachine

Expr = Any

_TASKS = 24
"""The fewest tasks for which blocks of queries share tiles: enough for many threads."""


def attention(
    name: str,
    shape: AttentionShape,
    plan: MaskPlan,
    machine: CpuMachine,
    *,
    scale: float,
    softcap: float | None = None,
    schedule: AttentionSchedule | None = None,
) -> Any:
    """A PrimFunc `name` for float32 attention; batch, s and t are symbolic.

    Parameters, in order: q (batch, s, q_pitch); k (batch, t, k_pitch); v (batch, t, v_pitch); the
    arrays of `plan.parameters`; an int64 for each of `plan.scalars`; the output
    (batch, s, heads * value_width). A score is q.k * scale, then softcap * tanh(score / softcap),
    then the biases, then the mask. NaN and inf in a masked key or value do not reach the output;
    a query that may attend to nothing gives zeros. A query's result has the same bits whatever the
    batch, s, its place among the queries and the number of threads: alone as in a long prompt.
    """
    schedule = schedule or AttentionSchedule()
    with emit.function(name) as builder:
        T.func_attr({SCHEDULE: str(schedule)})
        _Kernel(shape, plan, machine, scale, softcap, schedule).emit()
    return builder.get()


class _Kernel:
    """Emits one attention kernel; each method emits one of its steps."""

    def __init__(
        self,
        shape: AttentionShape,
        plan: MaskPlan,
        machine: CpuMachine,
        scale: float,
        softcap: float | None,
        schedule: AttentionSchedule,
    ) -> None:
        self.shape, self.plan, self.machine, self.schedule = shape, plan, machine, schedule
        self.lanes, self.block = machine.lanes, schedule.vectors * machine.lanes
        # A weight is base^score. Base 2 is the cheapest, but a bias may be as low as floats go, and
        # would overflow times log2(e).
        self.base = math.e if plan.biases else 2.0
        unit = 1 / math.log(self.base)
        # q is multiplied by this once, so that scores come out in that unit, or ready for tanh.
        self.q_factor = scale * unit if softcap is None else scale / softcap
        self.cap = None if softcap is None else softcap * unit

    def emit(self) -> None:
        """The whole function: its arguments, then one task for each head and block of queries."""
        shape = self.shape
        batch, s, t = emit.symbol("batch"), emit.symbol("s"), emit.symbol("t")
        self.s, self.t = s, t
        self.q = emit.argument("q", (batch, s, shape.q_pitch))
        self.k = emit.argument("k", (batch, t, shape.k_pitch))
        self.v = emit.argument("v", (batch, t, shape.v_pitch))
        sizes = {"batch": batch, "heads": shape.heads, "queries": s, "keys": t}
        self.masks = Masks(self.plan, sizes)
        self.out = emit.argument("out", (batch, s, shape.heads * shape.value_width))
        with emit.body(), T.If(s == 1):
            with T.Then():
                self._one_query(batch)
            with T.Else():
                self._many_queries(batch)

    def _one_query(self, batch: Expr) -> None:
        """One task for each head of keys."""
        problem = Problem(
            self.shape,
            self.machine,
            self.base,
            self.q_factor,
            self.cap,
            self.masks,
            self.q,
            self.k,
            self.v,
            self.out,
        )
        with T.parallel(i64(0), batch * self.shape.kv_heads) as task:
            row = hold(T.floordiv(task, i64(self.shape.kv_heads)))
            OneQuery(problem, row, hold(T.floormod(task, i64(self.shape.kv_heads)))).emit()

    def _many_queries(self, batch: Expr) -> None:
        """One task for a few blocks of queries of a head."""
        shape = self.shape
        blocks = hold(T.ceildiv(self.s, i64(self.block)))
        share = T.floordiv(batch * shape.heads * blocks, i64(_TASKS))
        together = hold(T.max(i64(1), T.min(share, i64(self.schedule.together))))
        runs = hold(T.ceildiv(blocks, together))
        with T.parallel(i64(0), batch * shape.heads * runs) as task:
            row = hold(T.floordiv(task, runs))
            self.batch = hold(T.floordiv(row, i64(shape.heads)))
            self.head = hold(T.floormod(row, i64(shape.heads)))
            self.kv_head = hold(T.floordiv(self.head, i64(shape.heads // shape.kv_heads)))
            first = hold(_fold(hold(T.floormod(task, runs)), runs) * together)
            self._task(first, hold(T.min(together, blocks - first)))

    def _task(self, first: Expr, blocks: Expr) -> None:
        """All keys for some blocks of queries."""
        width, value_width = self.shape.width, self.shape.value_width
        masked = bool(self.masks.by_pair)
        tile = AttentionTile(self.machine, width, value_width, self.base, masked, self.schedule)
        self.tile = tile
        self.values = CopiedRows(self.machine, value_width) if self.schedule.copied else None
        start = hold(first * self.block)
        with self._each_block(start, blocks):
            self._load_queries()
            tile.clear()
        keys = hold(self.masks.walk_length(self.batch))
        with loop(T.ceildiv(keys, i64(tile.keys))) as number:
            place = hold(number * tile.keys)
            count = hold(T.min(i64(tile.keys), keys - place))
            if masked:
                self.first_query = start
                may, _ = self.masks.ask(self._pairs(place, count, blocks * self.block))
                with T.If(may), T.Then():
                    self._keys(place, count, start, blocks)
            else:
                self._keys(place, count, start, blocks)
        with self._each_block(start, blocks):
            tile.finish()
            self._store_output()

    @contextmanager
    def _each_block(self, start: Expr, blocks: Expr) -> Generator[None, None, None]:
        """Once for each block of queries from `start` on."""
        with loop(blocks) as turn:
            self.tile.turn = turn
            self.first_query = hold(start + turn * self.block)
            yield

    def _pairs(self, first: Expr, count: Expr, queries: Expr | int) -> Tile:
        """The pairs of so many queries and a tile of keys."""
        return Tile(
            self.batch,
            self.first_query,
            T.min(self.first_query + (queries - 1), self.s - 1),
            hold(self._key(first)),
            hold(self._key(first + count - 1)),
        )

    def _key(self, position: Expr) -> Expr:
        """The key at this position of the walk."""
        return self.masks.key(self.batch, position)

    def _keys(self, first: Expr, count: Expr, start: Expr, blocks: Expr) -> None:
        """One tile of keys, positions first .. first + count - 1 of the walk, for each block."""
        if self.values is not None:
            with loop(count) as j:
                row = hold(self._key(first + j))
                self.values.put(j, self.v, self.batch, row, self._first_value)
        with self._each_block(start, blocks):
            self._block(first, count)

    def _block(self, first: Expr, count: Expr) -> None:
        """One tile of keys for one block of queries."""
        if not self.masks.by_pair:
            self._score(first, count)
            self.tile.weigh(count)
            self._add_values(first, count, select=False)
            return
        may, must = self.masks.ask(self._pairs(first, count, self.block))
        with T.If(may), T.Then():
            inside = hold(must)
            self._score(first, count)
            with T.If(tirx.Not(inside)), T.Then():
                self._mask_scores(first, count)
            self.tile.weigh(count)
            with T.If(inside):
                with T.Then():
                    self._add_values(first, count, select=False)
                with T.Else():
                    self._add_values(first, count, select=True)

    def _score(self, first: Expr, count: Expr) -> None:
        """Scores, softcap and biases included."""
        start = self.shape.k_offset + self.kv_head * self.shape.width
        self.tile.score(
            count,
            lambda j: self._key(first + j),
            lambda row, c: self.k[self.batch, row, start + c],
        )
        if self.cap is None and not self.plan.biases:
            return

        def finish(j: Expr, at: int, score: Expr) -> Expr:
            if self.cap is not None:
                cap = splat(self.cap, self.lanes)
                score = hold(tanh(score) * cap)
            for value in self.masks.values(self._pair(first + j, at)):
                score = hold(score + value)
            return score

        self.tile.update_scores(count, finish)

    def _mask_scores(self, first: Expr, count: Expr) -> None:
        """-inf where a mask forbids the pair."""

        def select(j: Expr, at: int, score: Expr) -> Expr:
            allowed = self.masks.allowed(self._pair(first + j, at))
            return tirx.Select(allowed, score, splat(-math.inf, self.lanes))

        self.tile.update_scores(count, select)

    def _pair(self, position: Expr, at: int) -> Lanes:
        return Lanes(
            self.batch,
            self.head,
            self.first_query + at,
            self.s - 1,
            self._key(position),
            self.lanes,
        )

    def _add_values(self, first: Expr, count: Expr, *, select: bool) -> None:
        if self.values is not None:
            self.tile.add_values(count, lambda j: j, self.values.element, select=select)
            return
        self.tile.add_values(
            count,
            lambda j: self._key(first + j),
            lambda row, c: self.v[self.batch, row, self._first_value + c],
            select=select,
        )

    @property
    def _first_value(self) -> Expr:
        """The first column of this head."""
        return self.shape.v_offset + self.kv_head * self.shape.value_width

    def _load_queries(self) -> None:
        """queries[c, i] = q[query of i, c] * factor; past the end the last row is repeated."""
        lanes, width = self.lanes, self.shape.width
        head = self.shape.q_offset + self.head * width

        def load(first: Expr, part: Part) -> None:
            rows = []
            for i in range(lanes):
                window = Part(hold(head + part.start), part.count, lanes)
                query = hold(T.min(self.first_query + first + i, self.s - 1))
                rows.append(window.load(self.q, self.batch, query))
            columns = emit.transpose(rows)
            for c in range(int(part.count)):
                value = columns[c] * splat(self.q_factor, lanes)
                line = self.tile.turn * width + part.start + c
                emit.store(self.tile.queries, line * self.block + first, value)

        self._each_square(width, load)

    def _store_output(self) -> None:
        """out[query of i, c] = output[c, i]."""
        lanes, width = self.lanes, self.shape.value_width

        def save(first: Expr, part: Part) -> None:
            # Past the last column anything may stand: it is not stored.
            begin = self.tile.turn * width + part.start
            columns = [begin + min(c, int(part.count) - 1) for c in range(lanes)]
            output = [emit.load(self.tile.output, c * self.block + first, lanes) for c in columns]
            for i, value in enumerate(emit.transpose(output)):
                query = hold(self.first_query + first + i)
                with T.If(query < self.s), T.Then():
                    window = Part(hold(self.head * width + part.start), part.count, lanes)
                    window.store(self.out, value, self.batch, query)

        self._each_square(width, save)

    def _each_square(self, width: int, emit_square: Callable[[Expr, Part], None]) -> None:
        """`emit_square(i, part)` for each vector of queries, i the first, and part of a row."""
        lanes = self.lanes
        with loop(self.block // lanes) as vector:
            first = hold(vector * lanes)
            if width >= lanes:
                with loop(width // lanes) as number:
                    emit_square(first, Part(hold(number * lanes), lanes, lanes))
            if width % lanes:
                emit_square(first, Part(i64(width // lanes * lanes), width % lanes, lanes))


def compact_keys(name: str, dtype: str = "bool") -> Any:
    """A PrimFunc `name` that lists the keys a mask keeps, once for all layers that share it.

    Parameters: keep (batch, t) of `dtype`, nonzero where the key may be seen; the outputs keys
    (batch, t) int32, of which the first count[batch] are the kept positions, ascending, and the
    rest 0; count (batch,) int32. These are the arrays of `KeyList`.
    """
    with emit.function(name) as builder:
        batch, t = emit.symbol("batch"), emit.symbol("t")
        keep = emit.argument("keep", (batch, t), dtype)
        keys = emit.argument("keys", (batch, t), "int32")
        count = emit.argument("count", (batch,), "int32")
        with emit.body(), loop(batch) as b:
            T.buffer_store(count, T.int32(0), [b])
            with loop(t) as j:
                T.buffer_store(keys, T.int32(0), [b, j])
                with T.If(nonzero(keep[b, j])), T.Then():
                    # count[b] <= j, so the zero just written may be overwritten, never a later one
                    T.buffer_store(keys, T.cast(j, "int32"), [b, T.cast(count[b], "int64")])
                    T.buffer_store(count, count[b] + 1, [b])
    return builder.get()


def _fold(turn: Expr, blocks: Expr) -> Expr:
    """0, n-1, 1, n-2, ...: a thread's run of tasks has cheap and dear blocks of a causal mask."""
    half = T.floordiv(turn, i64(2))
    return tirx.Select(T.floormod(turn, i64(2)) == 0, half, blocks - 1 - half)
