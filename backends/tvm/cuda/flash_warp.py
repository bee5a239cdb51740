"""Flash attention on tensor cores: what a warp does with its rows and the keys of a tile.

After FlashAttention-2 (Dao, arXiv 2307.08691). Scores stay in registers: the layout in which `mma`
leaves a product is the one in which it takes a left operand, so that weights need not move. A lane
holds, of each piece of 16 x 8, two neighbours in row lane / 4 and two in the row eight below; four
neighbouring lanes share a row. May import: tvm, flash_tile, attention_mask.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.attention_mask import Tile as MaskTile
from tfgraph.backends.tvm.cuda.attention_mask import Pair
from tfgraph.backends.tvm.cuda.flash_tile import (
    CHUNK,
    HIDDEN,
    K,
    M,
    N,
    Task,
    padded,
    pitch,
)
from tfgraph.backends.tvm.cuda.kernel import (
    WARP_SIZE,
    address,
    both,
    branch,
    call,
    f32,
    let,
    local,
    loop,
    pick,
    remark,
    shared,
    shuffle_xor,
    store,
    when,
)

Put = Callable[[Any, Any, Any], None]
"""Takes an even column, and the sums of that and of the next."""


class Warp:
    """A warp's state, and the steps that build it up; see the module's docstring.

    `tiles` is the block's shared memory, in which queries, keys and values start at `at`; keys from
    `end_key` on are seen by no row of the block.
    """

    def __init__(self, task: Task, tiles: Any, at: tuple[int, int, int], end_key: Any) -> None:
        self.task, self.tiles, self.at, self.end_key = task, tiles, at, end_key
        self.heads, self.tile, self.problem = task.heads, task.tile, task.problem
        self.masks, self.short = task.problem.masks, task.problem.short
        self.format = self.short.upper()  # as ptx.cuh names it
        self.width, self.value_width = task.problem.shape.width, task.problem.shape.value_width
        tile = task.tile
        # Pieces of 16 rows, of 8 keys, and of 8 columns of the values.
        self.down, self.across = tile.warp_rows // M, tile.warp_keys // N
        self.columns = padded(self.value_width) // N
        self.largest = local("largest", (self.down * 2,))
        self.total = local("total", (self.down * 2,))
        self.sums = local("sums", (self.down * self.columns * 4,))
        self.spoiled: Any = None
        if self.masks.selects_pairs:
            self.spoiled = shared("spoiled", (tile.threads * self.down * self.columns,), "uint8")
        self.scores = local("scores", (self.down * self.across * 4,))
        self.weights = local("weights", (self.down * self.across * 2,), "uint32")
        self.a = local("a", (self.down * 4,), "uint32")
        self.b = local("b", (4,), "uint32")
        remark("So far, by row: the largest score, the sum of weights, that of weighted values.")
        with loop("r", self.down * 2, unroll=True) as r:
            store(self.largest, [r], f32(HIDDEN))
            store(self.total, [r], f32(0))
        with loop("i", self.down * self.columns * 4, unroll=True) as i:
            store(self.sums, [i], f32(0))
        if self.spoiled is not None:
            remark("And which of these sums a value has made infinite or NaN.")
            with loop("i", self.down) as i, loop("c", self.columns) as c:
                store(self.spoiled, [self._spoiled_at(i, c)], tirx.const(0, "uint8"))

    def stand(self) -> None:
        """Where the warp and the lane stand, for the steps that follow.

        Found again for each group of steps: what depends on it, such as addresses, would else be
        computed before the loop over keys and take registers that the sums need.
        """
        tile = self.tile
        thread = let("thread_now", tirx.call_extern("int32", "again", self.task.thread))
        self.lane = let("lane", tirx.truncmod(thread, WARP_SIZE))
        warp = let("warp", tirx.truncdiv(thread, WARP_SIZE))
        self.row_in_tile = let("warp_row", tirx.truncdiv(warp, tile.across) * tile.warp_rows)
        self.key_in_tile: Any = 0
        if tile.across > 1:
            self.key_in_tile = let("warp_key", tirx.truncmod(warp, tile.across) * tile.warp_keys)
        self.row0 = let("row", self.task.row0 + self.row_in_tile)

    def sees(self, key0: Any) -> Any:
        """False only where no row of this warp may see a key of its tile, whose first is key0."""
        exist = (self.row0 < self.heads.rows, key0 < self.end_key)
        return both(*exist, *self.masks.may(self._mask_tile(key0)))

    def cuts(self, key0: Any) -> Any:
        """Whether masks hide a key of the tile from some rows alone; for plans that do so."""
        return tirx.Not(self.masks.must(self._mask_tile(key0)))

    def multiply(self) -> None:
        """scores = queries . keys"""
        remark("scores = queries . keys")
        with loop("i", self.down * self.across * 4, unroll=True) as i:
            store(self.scores, [i], f32(0))
        # Lanes 0 to 7 give the rows of the first 8 x 8 matrix, and so on; see ldmatrix in ptx.cuh.
        row = self.row_in_tile + tirx.truncmod(self.lane, 16)
        q_at = let("q_at", self.at[0] + row * pitch(self.width) + tirx.truncdiv(self.lane, 16) * 8)
        key = self.key_in_tile + tirx.truncdiv(self.lane, 16) * 8 + tirx.truncmod(self.lane, 8)
        d = tirx.truncmod(tirx.truncdiv(self.lane, 8), 2) * 8
        k_at = let("k_at", self.at[1] + key * pitch(self.width) + d)
        with loop("d", padded(self.width) // K, unroll=True) as d:
            with loop("i", self.down, unroll=True) as i:
                at = q_at + i * (M * pitch(self.width)) + d * K
                call("ldmatrix_x4", address(self.a, i * 4), address(self.tiles, at))
            with loop("j", self.across // 2, unroll=True) as j:
                at = k_at + j * (2 * N * pitch(self.width)) + d * K
                call("ldmatrix_x4", address(self.b, 0), address(self.tiles, at))
                with loop("i", self.down, unroll=True) as i, loop("half", 2, unroll=True) as half:
                    to = address(self.scores, (i * self.across + j * 2 + half) * 4)
                    self._mma(to, address(self.a, i * 4), address(self.b, half * 2))

    def bias(self, key0: Any) -> None:
        """Scale, softcap and biases, unless the exponent of a weight has the scale in it."""
        problem = self.problem
        if problem.plain:
            return
        remark("Scale, softcap and biases, in this order, those that there are.")
        with self._rows() as (row, at, _):
            query, head = self._query_and_head(row)
            with self._keys() as (key, offset):
                score = self.scores[at + offset] * f32(problem.scale)
                if problem.softcap is not None:
                    score = f32(problem.softcap) * tirx.tanh(score / f32(problem.softcap))
                pair = self._pair(row, query, head, key0 + key)
                store(self.scores, [at + offset], self.masks.biased(score, pair))

    def hide(self, key0: Any, cuts: Any | None, flag: Callable[[Any], Any] | None) -> None:
        """Scores of masked pairs; `flag(key)` is a condition on a key of this warp's part."""
        if flag is not None:
            self._hide(key0, flag)
            return
        behind = key0 + self.tile.warp_keys > self.end_key
        with when(behind if cuts is None else tirx.any(behind, cuts)):
            self._hide(key0, None)

    def weigh(self) -> None:
        """weights = exp(score - largest), two in 32 bits; the state moves to the new largest."""
        remark("weights = exp(scores - largest)")
        factor, plain = f32(self.problem.factor), self.problem.plain
        with self._rows() as (_, at, r):
            largest = local("new_largest", (1,))
            store(largest, [0], self.largest[r])
            with self._keys() as (_, offset):
                store(largest, [0], tirx.max(largest[0], self.scores[at + offset]))
            self._over_row(largest, 0, tirx.max)
            base = pick(tirx.EQ(largest[0], f32(HIDDEN)), f32(0), largest[0])
            base = let("base", base * factor if plain else base)

            def weight(score: Any, base: Any = base) -> Any:
                exponent = score * factor - base if plain else (score - base) * factor
                return tirx.call_extern("float32", "exp2_approx", exponent)

            remark("What was added up so far is relative to the old largest score.")
            shrink = let("shrink", weight(self.largest[r]))
            store(self.largest, [r], largest[0])
            store(self.total, [r], self.total[r] * shrink)
            with loop("j", self.across, unroll=True) as j:
                first, second = (
                    let(name, weight(self.scores[at + j * 4 + e]))
                    for e, name in enumerate(("first", "second"))
                )
                store(self.total, [r], self.total[r] + (first + second))
                to = (tirx.truncdiv(r, 2) * self.across + j) * 2 + tirx.truncmod(r, 2)
                self._pack(self.weights, to, first, second)
            with self._values(r) as (_, place), loop("e", 2, unroll=True) as e:
                store(self.sums, [place + e], self.sums[place + e] * shrink)

    def add_values(self, key0: Any, cuts: Any | None) -> None:
        """sums += weights . values"""
        if cuts is None:
            self._add_products()
            return
        remark("A weight of 0 does not hide a value that is NaN or infinite.")
        width = pitch(self.value_width)
        spoils = tirx.call_extern(
            "int32",
            f"any_infinite<{self.format}>",
            address(self.tiles, self.at[2] + self.key_in_tile * width),
            self.lane,
            self.tile.warp_keys,
            padded(self.value_width) // CHUNK,
            width,
        )
        spoils = let("spoils", pick(cuts, spoils, 0)) != 0
        branch(spoils, lambda: self._add_finite_products(key0), self._add_products)

    def finish(self) -> None:
        """The sum of a row's weights, for each of the lanes that share the row."""
        with loop("r", self.down * 2, unroll=True) as r:
            self._over_row(self.total, r, lambda x, y: x + y)

    def write(self, begin: Callable[[Any, Any], Put]) -> None:
        """`begin(row, r)` for each row that exists, where r is its place in `total` and `largest`;
        what it returns gets all its sums."""
        with self._rows() as (row, _, r), when(row < self.heads.rows):
            put = begin(row, r)
            with self._values(r) as (column, place):
                put(column, *(self._sum(place, r, e) for e in range(2)))

    # Steps of these steps.

    def _sum(self, place: Any, r: Any, e: int) -> Any:
        """A sum, made infinite or NaN if so it is marked."""
        value = self.sums[place + e]
        if self.spoiled is None:
            return value
        piece = self.spoiled[tirx.truncdiv(place, 4) * self.tile.threads + self.task.thread]
        marks = tirx.shift_right(piece.astype("int32"), tirx.truncmod(r, 2) * 2 + e)
        return tirx.call_extern("float32", "spoilt", value, marks)

    def _mma(self, to: Any, left: Any, right: Any) -> None:
        call(f"mma_{self.short}", to, left, right)

    def _hide(self, key0: Any, flag: Callable[[Any], Any] | None) -> None:
        remark("Masked pairs.")
        with self._rows() as (row, at, _):
            query, head = self._query_and_head(row)
            with self._keys() as (key, offset):
                conditions = [key0 + key < self.end_key]
                conditions += [] if flag is None else [flag(key)]
                pair = self._pair(row, query, head, key0 + key)
                allowed = both(*conditions, *self.masks.pair_allowed(pair))
                score = pick(allowed, self.scores[at + offset], f32(HIDDEN))
                store(self.scores, [at + offset], score)

    def _add_products(self, *, finite: bool = False) -> None:
        remark("sums += weights . values")
        with self._key_steps() as step, self._column_pairs() as pair:
            self._load_values(step, pair)
            if finite:
                call(f"keep_finite<{self.format}>", address(self.b, 0))
            with loop("i", self.down, unroll=True) as i, loop("half", 2, unroll=True) as half:
                to = address(self.sums, (i * self.columns + pair * 2 + half) * 4)
                # The weights of 16 rows and 16 keys lie as `mma` takes its left operand.
                left = address(self.weights, (i * self.across + step * 2) * 2)
                self._mma(to, left, address(self.b, half * 2))

    def _add_finite_products(self, key0: Any) -> None:
        """`_add_products` of finite values; which rows see others is noted."""
        remark("Values that are not finite spoil the sums of those rows alone that see them.")
        with loop("step", self.across // 2) as step, loop("pair", self.columns // 2) as pair:
            self._load_values(step, pair)
            with loop("i", self.down) as i:
                self._pack_seen(key0, step, i)
                with loop("half", 2, unroll=True) as half:
                    at = self._spoiled_at(i, pair * 2 + half)
                    name = f"infinite_sums<{self.format}, mma_{self.short}>"
                    found = tirx.call_extern(
                        "uint32", name, address(self.a, 0), address(self.b, half * 2)
                    )
                    found = tirx.bitwise_or(self.spoiled[at], found.astype("uint8"))
                    store(self.spoiled, [at], found)
        self._add_products(finite=True)

    def _spoiled_at(self, i: Any, column: Any) -> Any:
        return (i * self.columns + column) * self.tile.threads + self.task.thread

    def _pack_seen(self, key0: Any, step: Any, i: Any) -> None:
        """1 where the row may see the key, else 0, laid out as the weights."""
        with loop("x", 4, unroll=True) as x:
            row = self.row0 + tirx.truncdiv(self.lane, 4) + (i * M + tirx.truncmod(x, 2) * 8)
            row = let("row", row)
            query, head = self._query_and_head(row)
            key = key0 + tirx.truncmod(self.lane, 4) * 2 + (step * K + tirx.truncdiv(x, 2) * 8)
            key = let("key", key)
            allowed = [
                both(*self.masks.pair_allowed(self._pair(row, query, head, key + e)))
                for e in range(2)
            ]
            self._pack(self.a, x, *(condition.astype("float32") for condition in allowed))

    def _pack(self, to: Any, at: Any, low: Any, high: Any) -> None:
        packed = tirx.call_extern("uint32", f"pack_{self.short}", low, high)
        store(to, [at], packed)

    def _load_values(self, step: Any, pair: Any) -> None:
        """16 keys of two pieces of columns, as `mma` takes its right operand."""
        width = pitch(self.value_width)
        key = self.key_in_tile + tirx.truncmod(self.lane, 16)
        at = self.at[2] + key * width + tirx.truncdiv(self.lane, 16) * 8
        at = at + step * (K * width) + pair * (2 * N)
        call("ldmatrix_x4_trans", address(self.b, 0), address(self.tiles, at))

    def _over_row(self, buffer: Any, index: Any, combine: Callable[[Any, Any], Any]) -> None:
        """Combine buffer[index] over the four lanes that share a row; all get the result."""
        for lane_mask in (2, 1):
            other = shuffle_xor(buffer[index], lane_mask)
            store(buffer, [index], combine(buffer[index], other))

    def _mask_tile(self, key0: Any) -> MaskTile:
        heads = self.heads
        last_row = tirx.min(self.row0 + self.tile.warp_rows, heads.rows) - 1
        last_key = key0 + (self.tile.warp_keys - 1)
        first_query, last_query = heads.query(self.row0), heads.query(last_row)
        return MaskTile(heads.batch, first_query, last_query, key0, last_key)

    def _query_and_head(self, row: Any) -> tuple[Any, Any]:
        heads = self.heads
        return let("query", heads.query(row)), let("head", heads.head(row))

    def _pair(self, row: Any, query: Any, head: Any, key: Any) -> Pair:
        heads = self.heads
        inside = both(row < heads.rows, key < self.end_key)
        return Pair(heads.batch, head, query, key, inside)

    @contextmanager
    def _rows(self) -> Generator[tuple[Any, Any, Any]]:
        """This lane's rows: (row, where its scores start, number of the row)."""
        with loop("i", self.down, unroll=True) as i, loop("lower", 2, unroll=True) as lower:
            self.row_lane = let("row_lane", tirx.call_extern("int32", "again", self.lane))
            row = self.row0 + tirx.truncdiv(self.row_lane, 4) + (i * M + lower * 8)
            yield let("row", row), i * self.across * 4 + lower * 2, i * 2 + lower

    @contextmanager
    def _keys(self) -> Generator[tuple[Any, Any]]:
        """This lane's keys: (number among those of the warp, offset of its scores)."""
        with loop("j", self.across, unroll=True) as j, loop("e", 2, unroll=True) as e:
            yield tirx.truncmod(self.row_lane, 4) * 2 + (j * N + e), j * 4 + e

    @contextmanager
    def _values(self, r: Any) -> Generator[tuple[Any, Any]]:
        """This lane's pairs of columns of row number r: (column, place of the first in `sums`)."""
        with loop("c", self.columns, unroll=True) as c:
            at = (tirx.truncdiv(r, 2) * self.columns + c) * 4 + tirx.truncmod(r, 2) * 2
            yield tirx.truncmod(self.row_lane, 4) * 2 + c * N, at

    @contextmanager
    def _key_steps(self) -> Generator[Any]:
        """The keys of a tile, by 16."""
        with loop("step", self.across // 2, unroll=True) as step:
            yield step

    @contextmanager
    def _column_pairs(self) -> Generator[Any]:
        """The columns of the values, by 16."""
        with loop("pair", self.columns // 2, unroll=True) as pair:
            yield pair
