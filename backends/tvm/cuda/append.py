"""New rows of keys and values on their way into caches that are states: written into the state's
array, keys turned by their positions before, and queries with them.

A thread takes sixteen bytes where everything begins and ends at multiples of them, else a number.
May import: kernels, kernel, vectors.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import (
    Kernel,
    both,
    kernel,
    let,
    load,
    local,
    loop,
    remark,
    store,
    when,
)
from tfgraph.backends.tvm.cuda.vectors import copy_vector, load_vector, store_vector, vector_of
from tfgraph.backends.tvm.kernels import AppendShape, Columns, TurnShape

THREADS = 256


def chunk_of_append(shape: AppendShape) -> int:
    """How many neighbours a thread takes at once."""
    sizes = [n for c in shape.rows for n in (c.width, c.pitch, c.offset)]
    if (turn := shape.turn) is not None:
        queries = turn.queries
        sizes += [queries.pitch, queries.offset, queries.width // turn.heads]
        # Halves are read apart; of neighbours that are pairs, one vector has both.
        sizes += [2 * turn.half if turn.interleaved else turn.half]
    return vector_of(shape.dtype, *sizes)


def append(name: str, shape: AppendShape) -> Any:
    """The kernel of `Kernels.append`."""
    with kernel(name) as k:
        _Append(k, shape).launch()
    return k.function


class _Append:
    """The arguments of the kernel, and what one thread does."""

    def __init__(self, k: Kernel, shape: AppendShape) -> None:
        self.k, self.shape, self.chunk = k, shape, chunk_of_append(shape)
        self.batch, self.seq = batch, seq = k.dim("batch"), k.dim("seq")
        names = ("keys", "values") if len(shape.rows) > 1 else ("cache",)
        capacity, turn, dtype = k.dim("capacity"), shape.turn, shape.dtype
        caches = [
            k.buffer(name, (batch, capacity, columns.width), dtype)
            for name, columns in zip(names, shape.rows, strict=True)
        ]
        added = [
            k.buffer(f"added_{name}", (batch, seq, columns.pitch), dtype)
            for name, columns in zip(names, shape.rows, strict=True)
        ]
        queries: Any = None
        if turn is not None:
            queries = k.buffer("queries", (batch, seq, turn.queries.pitch), dtype)
            angles = (batch, seq, turn.half) if turn.by_entry else (seq, turn.half)
            self.tables = [k.buffer(table, angles, dtype) for table in ("cos", "sin")]
        self.at = k.scalar("at")
        self.moves = [
            (target, self.at, source, columns, 0)
            for target, source, columns in zip(caches, added, shape.rows, strict=True)
        ]
        if turn is not None:
            turned = k.buffer("turned", (batch, seq, turn.queries.width), dtype)
            keys, *others = self.moves
            self.moves = [
                (turned, 0, queries, turn.queries, turn.heads),
                (*keys[:-1], turn.kv_heads),
                *others,
            ]

    def launch(self) -> None:
        """A row of blocks for each row: its queries first, then its keys, then its values."""
        ends = [0]
        for *_, columns, heads in self.moves:
            ends.append(ends[-1] + self._items(columns, heads))
        blocks = (self.batch * self.seq, -(-ends[-1] // THREADS))
        with self.k.launch(blocks=blocks, threads=THREADS) as (block, part, thread):
            row = let("row", tirx.Cast("int64", block))
            self.entry = let("entry", tirx.truncdiv(row, self.seq))
            self.i = let("i", tirx.truncmod(row, self.seq))
            item = let("item", part * THREADS + thread)
            for first, end, move in zip(ends[:-1], ends[1:], self.moves, strict=True):
                within = [item < end] if first == 0 else [item >= first, item < end]
                with when(both(*within)):
                    remark(f"{move[2].name}: {end - first} items of a row.")
                    self._move(let("own", item - first), *move)

    def _turning(self) -> int:
        """Items of a head that are turned: pairs, as many as fill one vector or two."""
        turn = self.shape.turn
        assert turn is not None
        return turn.half // max(1, self.chunk // (2 if turn.interleaved else 1))

    def _items(self, columns: Columns, heads: int) -> int:
        if heads == 0:
            return columns.width // self.chunk
        turn = self.shape.turn
        assert turn is not None
        left = columns.width // heads - 2 * turn.half
        return heads * (self._turning() + left // self.chunk)

    def _move(
        self, item: Any, target: Any, at: Any, source: Any, columns: Columns, heads: int
    ) -> None:
        """One item of a row of `source` goes to row at + i of `target`; of heads, turned."""
        place, origin = (self.entry, at + self.i), (self.entry, self.i)

        def copy(column: Any) -> None:
            copy_vector(
                target, (*place, column), source, (*origin, columns.offset + column), self.chunk
            )

        if heads == 0:
            copy(let("column", item * self.chunk))
            return
        turn = self.shape.turn
        assert turn is not None
        each, size = self._items(columns, heads) // heads, columns.width // heads
        head = let("head", tirx.truncdiv(item, each) * size)
        number = let("number", tirx.truncmod(item, each))
        turning = self._turning()
        if each == turning:
            self._turn(number, head, turn, target, place, source, origin, columns.offset)
            return
        with when(number < turning):
            self._turn(number, head, turn, target, place, source, origin, columns.offset)
        with when(number >= turning):
            copy(let("column", head + 2 * turn.half + (number - turning) * self.chunk))

    def _turn(
        self,
        number: Any,
        head: Any,
        turn: TurnShape,
        target: Any,
        place: tuple[Any, ...],
        source: Any,
        origin: tuple[Any, ...],
        offset: int,
    ) -> None:
        """(a cos - b sin, b cos + a sin) of pairs of one head, `number` by `number`."""
        chunk = self.chunk
        pairs = max(1, chunk // 2) if turn.interleaved else chunk
        angle = let("angle", number * pairs)
        row = origin if turn.by_entry else origin[1:]
        cos, sin = (
            self._angles(name, table, (*row, angle), pairs)
            for name, table in zip(("c", "s"), self.tables, strict=True)
        )
        if turn.interleaved:
            columns, count = [let("column", head + 2 * angle)], 2 * pairs
        else:
            columns, count = (
                [let("column", head + angle), let("other", head + turn.half + angle)],
                pairs,
            )
        if turn.interleaved and chunk == 1:  # two neighbours, without a vector
            columns, count = [columns[0], columns[0] + 1], 1
        read = [load_vector("x", count, source, *origin, offset + column) for column in columns]
        made = [local("y", (count,)) for _ in columns]

        def of(arrays: list[Any], pair: Any, second: int) -> tuple[Any, Any]:
            return (arrays[second], pair) if len(arrays) == 2 else (arrays[0], 2 * pair + second)

        with loop("pair", pairs, unroll=True) as pair:
            (p, i), (q, j) = of(read, pair, 0), of(read, pair, 1)
            for second, value in enumerate(
                (p[i] * cos[pair] - q[j] * sin[pair], q[j] * cos[pair] + p[i] * sin[pair])
            ):
                to, index = of(made, pair, second)
                store(to, [index], value)
        for column, numbers in zip(columns, made, strict=True):
            store_vector(target, (*place, column), numbers, count)

    def _angles(self, name: str, table: Any, at: tuple[Any, ...], count: int) -> Any:
        """`count` numbers of a table, by a vector where they are one."""
        if count in (1, self.chunk):
            return load_vector(name, count, table, *at)
        numbers = local(name, (count,))
        with loop("e", count, unroll=True) as e:
            store(numbers, [e], load(table, *at[:-1], at[-1] + e))
        return numbers
