"""New rows of keys and values on their way into caches that are states: written into the caller's
array, keys turned by their positions before, and queries with them.

May import: kernels, files of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.emit import (
    argument,
    body,
    function,
    hold,
    i64,
    loop,
    scalar_argument,
    symbol,
)
from tfgraph.backends.tvm.cpu.rows import Part, each_part, each_row
from tfgraph.backends.tvm.kernels import AppendShape, Columns, TurnShape

Expr = Any
Row = tuple[Expr, ...]


def append(name: str, shape: AppendShape, lanes: int) -> Any:
    """The kernel of `Kernels.append`."""
    rows, turn = shape.rows, shape.turn
    batch, capacity, seq = map(symbol, ("batch", "capacity", "seq"))
    with function(name) as builder:
        caches = [argument(f"cache{i}", (batch, capacity, r.width)) for i, r in enumerate(rows)]
        added = [argument(f"new{i}", (batch, seq, r.pitch)) for i, r in enumerate(rows)]
        queries: Any = None
        tables: list[Any] = []
        if turn is not None:
            queries = argument("queries", (batch, seq, turn.queries.pitch))
            angles = (batch, seq, turn.half) if turn.by_entry else (seq, turn.half)
            tables = [argument(table, angles) for table in ("cos", "sin")]
        at = scalar_argument("at")
        moves = [
            (cache, at, new, columns, 0)
            for cache, new, columns in zip(caches, added, rows, strict=True)
        ]
        if turn is not None:
            turned = argument("turned", (batch, seq, turn.queries.width))
            moves[0] = (*moves[0][:-1], turn.kv_heads)
            moves.append((turned, i64(0), queries, turn.queries, turn.heads))

        def move(row: Expr) -> None:
            entry = hold(T.floordiv(row, seq))
            i = hold(row - entry * seq)
            for target, first, source, columns, heads in moves:
                place, origin = (entry, first + i), (entry, i)
                if not heads:
                    _copy(target, place, source, origin, columns, lanes)
                    continue
                assert turn is not None
                angle = (entry, i) if turn.by_entry else (i,)
                _turn(target, place, source, origin, columns, heads, turn, tables, angle)

        width = sum(columns.width for *_, columns, _ in moves)
        with body():
            each_row(batch * seq, width, move)
    return builder.get()


def _copy(target: Any, place: Row, source: Any, origin: Row, columns: Columns, lanes: int) -> None:
    def part_of(_unrolled: int, part: Part) -> None:
        read = Part(part.start + columns.offset, part.count, part.lanes)
        part.store(target, read.load(source, *origin), *place)

    each_part(columns.width, lanes, part_of)


def _turn(
    target: Any,
    place: Row,
    source: Any,
    origin: Row,
    columns: Columns,
    heads: int,
    turn: TurnShape,
    tables: Sequence[Any],
    angle: Row,
) -> None:
    """(a cos - b sin, b cos + a sin) of each pair of each head, and what is behind them."""
    size, half = columns.width // heads, turn.half
    with loop(heads) as head:
        start = hold(head * size)
        with loop(half) as i:
            first, second = (2 * i, 2 * i + 1) if turn.interleaved else (i, half + i)
            cos, sin = (table[(*angle, i)] for table in tables)
            p, q = (source[(*origin, columns.offset + start + n)] for n in (first, second))
            T.buffer_store(target, p * cos - q * sin, [*place, start + first])
            T.buffer_store(target, q * cos + p * sin, [*place, start + second])
        with loop(size - 2 * half) as i:
            column = start + 2 * half + i
            T.buffer_store(target, source[(*origin, columns.offset + column)], [*place, column])
