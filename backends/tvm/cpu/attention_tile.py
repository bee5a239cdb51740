"""The arithmetic of attention on one tile, queries by keys, with the queries in the lanes.

Keys and values are broadcast, so nothing is summed across lanes: each query is computed alone and
in the same order of operations, whatever stands beside it. Scores are in base 2 (scaled by log2 e).
For each tile, with q, scores and output held transposed (queries last):

    scores[j, i]   = sum over c of k[j, c] * q[c, i]
    high'[i]       = max(high[i], max over j of scores[j, i])
    weights[j, i]  = 2^(scores[j, i] - high'[i])                     (in place of the scores)
    shrink[i]      = 2^(high[i] - high'[i])
    total[i]       = total[i] * shrink[i] + sum over j of weights[j, i]
    output[c, i]   = output[c, i] * shrink[i] + sum over j of v[j, c] * weights[j, i]

This is the online softmax of Milakov & Gimelshein (arXiv 1805.02867), used as by Dao et al.
(FlashAttention, arXiv 2205.14135). May import: tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.emit import hold, load, loop, splat, store, workspace
from tfgraph.backends.tvm.cpu.rows import Part
from tfgraph.backends.tvm.cpu.schedule import AttentionSchedule
from tfgraph.backends.tvm.cpu.vector_math import ACCURACY, constant, exp2_nonpositive, fma
from tfgraph.backends.tvm.target import CpuMachine

Expr = Any
Element = Callable[[Expr, Expr], Expr]
"""(row, column) -> a scalar of the key or value array of this head."""

LOWEST = -3.4028234663852886e38
"""No finite score is below it."""

MASKED_BITS = -0x80000000
"""Those of -0.0, the weight of a masked pair: it adds nothing, yet can be told."""


def tile_keys(machine: CpuMachine) -> int:
    """Keys of a tile, the same for every block: it decides the order of the sums."""
    return _group(machine) * 8


def _group(machine: CpuMachine) -> int:
    """Rows of sums held in registers, beside the vectors and one broadcast."""
    return 8 if machine.registers >= 32 else 6


def depth(keys: int, machine: CpuMachine) -> float:
    """How many roundings a key's part in a sum passes through: the additions of its tile, then in
    each further one the factor `shrink` and an fma."""
    tile = tile_keys(machine)
    return min(keys, tile) + (-(-keys // tile) - 1) * (1 + ACCURACY["exp2"].relative)


def power(base: float, x: Expr) -> Expr:
    """base^x for x <= 0."""
    return exp2_nonpositive(x if base == 2 else x * constant(x, math.log2(base)))


class CopiedRows:
    """The rows of a tile's values, side by side: each begins with a vector."""

    def __init__(self, machine: CpuMachine, width: int) -> None:
        self._lanes, self._width = machine.lanes, width
        self._pitch = -(-width // machine.lanes) * machine.lanes
        self._rows = workspace(tile_keys(machine) * self._pitch, "copied")

    def put(self, j: Expr, array: Any, *row: Expr) -> None:
        """Row j: the columns of `array` from the last of `row` on."""
        *before, start = row
        for at in range(0, self._width, self._lanes):
            part = Part(hold(start + at), min(self._lanes, self._width - at), self._lanes)
            store(self._rows, j * self._pitch + at, part.load(array, *before))

    def element(self, j: Expr, column: Expr) -> Expr:
        """An `Element`."""
        return self._rows[j * self._pitch + column]


class AttentionTile:
    """The buffers of one task, allocated where it is constructed, and the steps on them: for the
    block of queries number `turn` of those that the task has."""

    def __init__(
        self,
        machine: CpuMachine,
        width: int,
        value_width: int,
        base: float,
        masked: bool,
        schedule: AttentionSchedule,
    ) -> None:
        """`base`: the weight of a score is base^score, over the sum of those. `masked`: scores may
        be -inf, and their weights have to be told from others that are 0."""
        self.base, self.masked = base, masked
        self.lanes, self.block = machine.lanes, schedule.vectors * machine.lanes
        self.width, self.value_width = width, value_width
        self.group, self.keys = _group(machine), tile_keys(machine)
        self.turn: Expr = T.int64(0)
        together = schedule.together  # blocks, each with a part of its own
        self.queries = workspace(together * width * self.block, "queries")
        self.scores = workspace(self.keys * self.block, "scores")
        self.output = workspace(together * value_width * self.block, "output")
        self.high = workspace(together * self.block, "high")
        self.next_high = workspace(self.block, "next_high")
        self.total = workspace(together * self.block, "total")
        self.shrink = workspace(self.block, "shrink")
        self.sums = [workspace(self.block, "sums") for _ in range(self.group)]
        self.starts = range(0, self.block, self.lanes)

    def clear(self) -> None:
        """Before the first tile: nothing seen yet."""
        with loop(self.value_width) as c:
            for at in self.starts:
                self._store(self.output, self._column(c), at, splat(0.0, self.lanes))
        for at in self.starts:
            self._store(self.high, self.turn, at, splat(LOWEST, self.lanes))
            self._store(self.total, self.turn, at, splat(0.0, self.lanes))

    def score(self, count: Expr, row: Callable[[Expr], Expr], key: Element) -> None:
        """Scores of the keys in rows row(0) .. row(count - 1), and the largest of all so far."""
        for at in self.starts:
            self._store(self.next_high, 0, at, self._load(self.high, self.turn, at))
        with loop(T.ceildiv(count, T.int64(self.group))) as number:
            first = number * self.group
            # Past the end the last key is taken again; its scores are not used.
            rows = [hold(row(T.min(first + u, count - 1))) for u in range(self.group)]
            self._clear_sums(self.group)
            with loop(self.width) as c:
                keys = [key(r, c) for r in rows]
                self._add_products(keys, self.queries, self.turn * self.width + c, select=False)
            for u in range(self.group):
                for at in self.starts:
                    score = self._load(self.sums[u], 0, at)
                    self._store(self.scores, first + u, at, score)
                    self._raise_high(at, score)

    def update_scores(self, count: Expr, update: Callable[[Expr, int, Expr], Expr]) -> None:
        """scores[j, i..] = update(j, i, scores[j, i..]), one vector of queries at a time."""
        for at in self.starts:
            self._store(self.next_high, 0, at, self._load(self.high, self.turn, at))
        with loop(count) as j:
            for at in self.starts:
                score = hold(update(j, at, hold(self._load(self.scores, j, at))))
                self._store(self.scores, j, at, score)
                self._raise_high(at, score)

    def weigh(self, count: Expr) -> None:
        """Turn scores into weights; update high, shrink and total."""
        for at in self.starts:
            self._store(self.sums[0], 0, at, splat(0.0, self.lanes))
        with loop(count) as j:
            for at in self.starts:
                score = hold(self._load(self.scores, j, at))
                weight = hold(power(self.base, score - self._load(self.next_high, 0, at)))
                if self.masked:
                    hidden = score == splat(-math.inf, self.lanes)
                    weight = hold(tirx.Select(hidden, splat(-0.0, self.lanes), weight))
                self._store(self.scores, j, at, weight)
                self._store(self.sums[0], 0, at, self._load(self.sums[0], 0, at) + weight)
        for at in self.starts:
            following = self._load(self.next_high, 0, at)
            shrink = hold(power(self.base, self._load(self.high, self.turn, at) - following))
            seen = self._load(self.total, self.turn, at)
            total = fma(seen, shrink, self._load(self.sums[0], 0, at))
            self._store(self.total, self.turn, at, total)
            self._store(self.shrink, 0, at, shrink)
            self._store(self.high, self.turn, at, following)

    def add_values(
        self, count: Expr, row: Callable[[Expr], Expr], value: Element, *, select: bool
    ) -> None:
        """Add the weighted values in rows row(0) .. row(count - 1) to the output.

        With `select`, a masked pair is left out; a weight of 0 would make NaN of a value that is
        NaN or inf.
        """
        whole, rest = divmod(self.value_width, self.group)
        if whole:
            with loop(whole) as number:
                self._add_columns(count, row, value, number * self.group, self.group, select)
        if rest:
            self._add_columns(count, row, value, T.int64(whole * self.group), rest, select)

    def finish(self) -> None:
        """Divide the output by the totals; zeros where nothing was allowed."""
        for at in self.starts:
            total = hold(self._load(self.total, self.turn, at))
            self._store(self.shrink, 0, at, splat(1.0, self.lanes) / total)
        with loop(self.value_width) as c:
            for at in self.starts:
                empty = self._load(self.total, self.turn, at) == splat(0.0, self.lanes)
                output = self._load(self.output, self._column(c), at)
                output = output * self._load(self.shrink, 0, at)
                output = T.Select(empty, splat(0.0, self.lanes), output)
                self._store(self.output, self._column(c), at, output)

    def _column(self, c: Expr) -> Expr:
        """The line of the output that column c has."""
        return self.turn * self.value_width + c

    def _add_columns(
        self,
        count: Expr,
        row: Callable[[Expr], Expr],
        value: Element,
        column: Expr,
        columns: int,
        select: bool,
    ) -> None:
        self._clear_sums(columns)
        with loop(count) as j:
            place = hold(row(j))
            values = [value(place, column + u) for u in range(columns)]
            self._add_products(values, self.scores, j, select=select)
        for u in range(columns):
            for at in self.starts:
                shrink, added = self._load(self.shrink, 0, at), self._load(self.sums[u], 0, at)
                output = fma(self._load(self.output, self._column(column + u), at), shrink, added)
                self._store(self.output, self._column(column + u), at, output)

    def _raise_high(self, at: int, score: Expr) -> None:
        self._store(self.next_high, 0, at, T.max(self._load(self.next_high, 0, at), score))

    def _clear_sums(self, count: int) -> None:
        for total in self.sums[:count]:
            for at in self.starts:
                self._store(total, 0, at, splat(0.0, self.lanes))

    def _add_products(self, scalars: list[Expr], buffer: Any, line: Expr, *, select: bool) -> None:
        """sums[u][i] += scalars[u] * buffer[line, i], for each u."""
        vectors = [(at, hold(self._load(buffer, line, at))) for at in self.starts]
        for total, scalar in zip(self.sums, scalars, strict=False):
            factor = T.broadcast(hold(scalar), self.lanes)
            for at, vector in vectors:
                old = self._load(total, 0, at)
                new = fma(factor, vector, old)
                if select:
                    bits = tirx.reinterpret(f"int32x{self.lanes}", vector)
                    masked = bits == T.broadcast(T.int32(MASKED_BITS), self.lanes)
                    new = tirx.Select(masked, old, new)
                self._store(total, 0, at, new)

    def _load(self, buffer: Any, line: Expr | int, at: int) -> Expr:
        return load(buffer, line * self.block + at, self.lanes)

    def _store(self, buffer: Any, line: Expr | int, at: int, value: Expr) -> None:
        store(buffer, line * self.block + at, value)
