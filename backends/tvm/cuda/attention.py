"""Attention in one kernel, after FlashAttention (Dao et al., 2022; Milakov and Gimelshein, 2018).

    out[i] = sum_j softmax_j(mask(softcap(scale * q[i] . k[j]) + bias[i, j])) v[j]

A block takes one head and a tile of query rows. It walks the keys tile by tile and keeps, for each
row, the largest score so far, the sum of exponentials and the weighted sum of values (the online
softmax), so that no score leaves the chip: memory grows with the length, not with its square.

16 neighbouring threads share a row: its maximum is four shuffles. Masks select: a masked slot can
hold NaN and changes no bit. Key tiles that structure masks wholly are never read. A row that may
attend to nothing is zeros. May import: tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.attention_mask import Rows, Tile
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.attention_mask import Masks, Pair
from tfgraph.backends.tvm.cuda.kernel import (
    LOWEST,
    Dim,
    barrier,
    both,
    branch,
    f32,
    guarded,
    kernel,
    let,
    load,
    local,
    loop,
    pick,
    reduce_lanes,
    remark,
    shared,
    split,
    store,
    when,
)
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.errors import TfgraphError

LANES = 16  # threads that share a row
GROUPS = 16  # rows in work at a time
THREADS = LANES * GROUPS
LARGEST_WIDTH = 256


@dataclass(frozen=True)
class Tiles:
    """How a block and its threads share the work on heads of these widths.

    A tile's arrays in shared memory stay below 48 KiB: queries (rows x width), keys or values
    (columns x the larger width), weights (rows x columns).
    """

    width: int
    value_width: int

    @property
    def widest(self) -> int:
        """The larger of the two widths."""
        return max(self.width, self.value_width)

    @property
    def rows_per_thread(self) -> int:
        """Query rows of one thread."""
        return 4 if self.widest <= 64 else 2 if self.widest <= 128 else 1

    @property
    def columns_per_thread(self) -> int:
        """Keys of one thread in a tile."""
        return 2 if self.widest <= 128 else 1

    @property
    def values_per_thread(self) -> int:
        """Columns of the result that one thread adds up."""
        return -(-self.value_width // LANES)

    @property
    def rows(self) -> int:
        """Query rows of a tile."""
        return GROUPS * self.rows_per_thread

    @property
    def columns(self) -> int:
        """Keys of a tile."""
        return LANES * self.columns_per_thread


def attention(
    shape: AttentionShape,
    plan: MaskPlan | None = None,
    *,
    scale: float,
    softcap: float | None = None,
    batch: Dim = "batch",
    queries: Dim = "s",
    keys: Dim = "t",
    name: str = "attention",
) -> Any:
    """A PrimFunc `name` for attention, computed in float32.

    Parameters in order: q (batch, queries, q_pitch), k (batch, keys, k_pitch),
    v (batch, keys, v_pitch), the arrays of `plan.parameters`, an int64 for each of `plan.scalars`,
    out (batch, queries, heads * value_width). Those of heads are of `shape.dtype`. A score is
    q.k * scale, then softcap * tanh(score / softcap), then the biases, then the mask. `queries` and
    `keys` may be one symbol. Raises TfgraphError for heads wider than 256.
    """
    plan = plan or MaskPlan()
    tiles = Tiles(shape.width, shape.value_width)
    if tiles.widest > LARGEST_WIDTH or shape.heads % shape.kv_heads:
        raise TfgraphError(
            f"the CUDA attention kernel takes heads up to {LARGEST_WIDTH} wide and a multiple of "
            f"the key/value heads, got {shape}"
        )
    with kernel(name) as built:
        b, s, t = built.dims((batch, queries, keys))
        q = built.buffer("q", (b, s, shape.q_pitch), shape.dtype)
        k = built.buffer("k", (b, t, shape.k_pitch), shape.dtype)
        v = built.buffer("v", (b, t, shape.v_pitch), shape.dtype)
        sizes = {"batch": b, "heads": shape.heads, "queries": s, "keys": t}
        masks = Masks(built, plan, sizes)
        out = built.buffer("out", (b, s, shape.heads * shape.value_width), shape.dtype)
        blocks = (b * tirx.ceildiv(s, tiles.rows), shape.heads)
        with built.launch(blocks=blocks, threads=THREADS) as (block, head, thread):
            work = _Work(shape, masks, (s, t), (block, head, thread))
            work.load_queries(q)
            with work.key_tiles() as key0:
                remark("The keys of this tile, zeros where no query may attend to one.")
                work.load_heads(k, shape.k_offset, shape.width, key0)
                barrier()
                work.update_weights(key0, lambda score: _capped(score * f32(scale), softcap))
                barrier()  # the weights are there; everyone is done with the keys
                remark("Its values, in place of the keys.")
                work.load_heads(v, shape.v_offset, shape.value_width, key0)
                barrier()
                work.add_values(key0)
            work.write(out)
    return built.function


def _capped(score: Any, softcap: float | None) -> Any:
    """softcap * tanh(score / softcap), or the score where there is no cap."""
    return score if softcap is None else f32(softcap) * tirx.tanh(score / f32(softcap))


def weights_depth(keys: int, tiles: Tiles, further: float) -> float:
    """How many roundings a weight passes through when the weights are added up: in its thread, over
    the lanes, and for each further tile `further` for the factor and one for the sum."""
    count = -(-keys // tiles.columns)
    lanes = LANES.bit_length() - 1
    return tiles.columns_per_thread - 1 + lanes + (count - 1) * (1 + further)


def values_depth(keys: int, tiles: Tiles, further: float) -> float:
    """How many roundings a weighted value passes through: one after another, and for each further
    tile `further` for the factor."""
    return keys + (-(-keys // tiles.columns) - 1) * further


class _Work:
    """A tile of query rows of one head: its state, and the steps that build it up."""

    def __init__(
        self,
        shape: AttentionShape,
        masks: Masks,
        lengths: tuple[Any, Any],
        indices: tuple[Any, Any, Any],
    ) -> None:
        self.shape, self.masks = shape, masks
        self.tiles = tiles = Tiles(shape.width, shape.value_width)
        self.queries, self.keys = lengths
        block, head, self.thread = indices
        remark(f"A tile of {tiles.rows} queries of one head; {LANES} lanes share each of its rows.")
        row_tiles = let("row_tiles", tirx.truncdiv(self.queries + tiles.rows - 1, tiles.rows))
        self.b = let("b", tirx.truncdiv(block, row_tiles))
        self.head = let("head", head)
        self.kv_head = let("kv_head", tirx.truncdiv(self.head, shape.heads // shape.kv_heads))
        self.row0 = let("row0", tirx.truncmod(block, row_tiles) * tiles.rows)
        self.last_row = let("last_row", tirx.min(self.row0 + tiles.rows, self.queries) - 1)
        self.group = let("group", tirx.truncdiv(self.thread, LANES))
        self.lane = let("lane", tirx.truncmod(self.thread, LANES))
        first, end = masks.key_range(Rows(self.b, self.row0, self.last_row))
        self.first_key, self.end_key = let("first_key", first), let("end_key", end)

        remark("Rows of tiles have an odd pitch: the entries of a column lie in different banks.")
        self.q_tile = shared("q_tile", (tiles.rows, shape.width | 1))
        self.kv_tile = shared("kv_tile", (tiles.columns, tiles.widest | 1))  # keys, then values
        self.weights = shared("weights", (tiles.rows, tiles.columns + 1))
        self.key_allowed = shared("key_allowed", (tiles.columns,), "int32")
        per_row = (tiles.rows_per_thread,)
        self.largest = local("largest", per_row)
        self.total = local("total", per_row)
        self.sums = local("sums", (*per_row, tiles.values_per_thread))
        self.scores = local("scores", (*per_row, tiles.columns_per_thread))
        self.allowed = local("allowed", (tiles.columns_per_thread,), "int32")

    def load_queries(self, q: Any) -> None:
        """The rows of q, zeros behind the last; and the state before any key."""
        remark("The queries, zeros behind the last.")
        column0 = let("q_column", self.shape.q_offset + self.head * self.shape.width)
        with self._items("row", self.tiles.rows, self.shape.width) as (row, e):
            query = let("query", self.row0 + row)
            value = guarded(query < self.queries, load(q, self.b, query, column0 + e), f32(0))
            store(self.q_tile, [row, e], value)
        remark("So far, by row: the largest score, the sum of weights, that of weighted values.")
        with self._rows() as (r, _):
            store(self.largest, [r], f32(LOWEST))
            store(self.total, [r], f32(0))
            with self._values() as (c, _):
                store(self.sums, [r, c], f32(0))

    @contextmanager
    def key_tiles(self) -> Generator[Any]:
        """The loop over the tiles of keys that any row may see: the first key of each."""
        columns = self.tiles.columns
        first_tile = let("first_tile", tirx.truncdiv(self.first_key, columns))
        end_tile = tirx.truncdiv(self.end_key + columns - 1, columns)
        with loop("tile", tirx.max(end_tile - first_tile, 0)) as tile:
            key0 = let("key0", (first_tile + tile) * columns)
            with when(self.thread < columns):
                key = let("key", key0 + self.thread)
                pair = Pair(self.b, None, None, key, key < self.end_key)
                store(self.key_allowed, [self.thread], _as_int(self.masks.key_allowed(pair)))
            barrier()  # key_allowed is there; everyone is done with the last values and weights
            yield key0

    def load_heads(self, source: Any, offset: int, width: int, key0: Any) -> None:
        """A tile of K or V; slots that no query may attend to are not read, and are zeros."""
        column0 = let(f"{source.name}_column", offset + self.kv_head * width)
        with self._items("key", self.tiles.columns, width) as (key, e):
            value = load(source, self.b, key0 + key, column0 + e)
            value = guarded(self.key_allowed[key] != 0, value, f32(0))
            store(self.kv_tile, [key, e], value)

    def update_weights(self, key0: Any, scaled: Callable[[Any], Any]) -> None:
        """Scores of the tile; weights exp(score - largest); the state moved to the new largest.

        The weight of a masked pair is 0, which suffices where the values are zeros too; in a tile
        that masks pairs singly it is -1, and `add_values` leaves the pair out.
        """
        masked = None
        if self.masks.selects_pairs:
            masked = let("masked", pick(self._cuts(key0), f32(-1), f32(0)))
        remark("scores = queries . keys")
        self._dot_products()
        remark("weights = exp(scores - largest)")
        with self._rows() as (r, row):
            largest = local("new_largest", (1,))
            store(largest, [0], self.largest[r])
            with self._keys() as (c, key):
                pair = self._pair(row, key0, key)
                allowed = both(self.key_allowed[key] != 0, *self.masks.pair_allowed(pair))
                store(self.allowed, [c], _as_int(allowed))
                score = self.masks.biased(scaled(self.scores[r, c]), pair)
                store(self.scores, [r, c], pick(self.allowed[c] != 0, score, f32(LOWEST)))
                store(largest, [0], tirx.max(largest[0], self.scores[r, c]))
            reduce_lanes(largest, 0, tirx.max, LANES)
            total = local("tile_total", (1,))
            store(total, [0], f32(0))
            with self._keys() as (c, key):
                weight = tirx.exp(self.scores[r, c] - largest[0])
                store(self.scores, [r, c], pick(self.allowed[c] != 0, weight, f32(0)))
                store(total, [0], total[0] + self.scores[r, c])
                weight = self.scores[r, c]
                if masked is not None:
                    weight = pick(self.allowed[c] != 0, weight, masked)
                store(self.weights, [row, key], weight)
            reduce_lanes(total, 0, lambda a, b: a + b, LANES)
            remark("What was added up so far is relative to the old largest score.")
            shrink = let("shrink", tirx.exp(self.largest[r] - largest[0]))
            store(self.largest, [r], largest[0])
            store(self.total, [r], self.total[r] * shrink + total[0])
            with self._values() as (c, _):
                store(self.sums, [r, c], self.sums[r, c] * shrink)

    def _pair(self, row: Any, key0: Any, key: Any) -> Pair:
        """A row and a key of the tile as a query and a key of the sequence."""
        if not self.masks.reads_pairs:
            return Pair(self.b, self.head, None, None, None)
        at_row, at_key = let("query", self.row0 + row), let("at", key0 + key)
        inside = both(at_row < self.queries, at_key < self.keys)
        return Pair(self.b, self.head, at_row, at_key, inside)

    def add_values(self, key0: Any) -> None:
        """sums += weights @ values, pair by pair where the tile masks pairs singly."""
        remark("sums += weights . values")
        if not self.masks.selects_pairs:
            self._add_products(select=False)
            return
        branch(
            self._cuts(key0),
            lambda: self._add_products(select=True),
            lambda: self._add_products(select=False),
        )

    def write(self, out: Any) -> None:
        """out = sums / total, zeros where nothing was allowed."""
        remark("out = sums / total, zeros where nothing was allowed.")
        with self._rows() as (r, row), self._values() as (c, column):
            query = let("query", self.row0 + row)
            width = self.shape.value_width
            exists = [column < width] if width % LANES else []
            with when(both(query < self.queries, *exists)):
                mean = pick(self.total[r] == f32(0), f32(0), self.sums[r, c] / self.total[r])
                store(out, [self.b, query, self.head * width + column], mean)

    def _dot_products(self) -> None:
        """scores[r, c] = q[row] . k[key]."""
        with self._rows() as (r, _), self._keys() as (c, _key):
            store(self.scores, [r, c], f32(0))
        with (
            loop("e", self.shape.width) as e,
            self._rows() as (r, row),
            self._keys() as (c, key),
        ):
            product = self.q_tile[row, e] * self.kv_tile[key, e]
            store(self.scores, [r, c], self.scores[r, c] + product)

    def _add_products(self, *, select: bool) -> None:
        """sums[r, c] += weight * value; with `select` a weight of -1 adds nothing, not even NaN."""
        with (
            loop("key", self.tiles.columns) as key,
            self._rows() as (r, row),
            self._values() as (c, column),
        ):
            weight = self.weights[row, key]
            # Columns behind the last repeat it; they are not written.
            if self.shape.value_width % LANES:
                column = tirx.min(column, self.shape.value_width - 1)
            value = self.kv_tile[key, column]
            product = weight * value
            if select:
                product = pick(weight < f32(0), f32(0), product)
            store(self.sums, [r, c], self.sums[r, c] + product)

    def _cuts(self, key0: Any) -> Any:
        """Whether this tile masks pairs singly."""
        last_key = key0 + self.tiles.columns - 1
        tile = Tile(self.b, self.row0, self.last_row, key0, last_key)
        return tirx.Not(self.masks.must(tile))

    @contextmanager
    def _items(self, name: str, rows: int, width: int) -> Generator[tuple[Any, Any]]:
        """All (row, e) of a tile, spread over the threads; neighbours take neighbouring e."""
        size = rows * width
        with loop("load", -(-size // THREADS)) as load, ExitStack() as stack:
            if size % THREADS:
                stack.enter_context(when(load * THREADS + self.thread < size))
            row, e = split(self.thread, load, width, THREADS, (name, "e"))
            yield row, e

    @contextmanager
    def _rows(self) -> Generator[tuple[Any, Any]]:
        """This thread's rows: (number, row in the tile)."""
        with loop("r", self.tiles.rows_per_thread, unroll=True) as r:
            yield r, let("row", r * GROUPS + self.group)

    @contextmanager
    def _keys(self) -> Generator[tuple[Any, Any]]:
        """This thread's keys: (number, key in the tile)."""
        with loop("c", self.tiles.columns_per_thread, unroll=True) as c:
            yield c, let("key", c * LANES + self.lane)

    @contextmanager
    def _values(self) -> Generator[tuple[Any, Any]]:
        """This thread's columns of the result: (number, column in the head)."""
        with loop("c", self.tiles.values_per_thread, unroll=True) as c:
            yield c, let("column", c * LANES + self.lane)


def _as_int(condition: Any) -> Any:
    return condition.astype("int32")
