"""Flash attention on tensor cores: what a block does with a tile of rows and a run of keys.

The keys and the values of a tile have a place each in shared memory: while one is used, the other
is under way. May import: tvm, flash_tile, flash_warp, slices, attention_mask.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.attention_mask import Rows
from tfgraph.backends.tvm.cuda.attention_mask import Pair
from tfgraph.backends.tvm.cuda.flash_tile import CHUNK, Task, padded, pitch
from tfgraph.backends.tvm.cuda.flash_warp import Warp
from tfgraph.backends.tvm.cuda.kernel import (
    address,
    barrier,
    both,
    call,
    flat,
    let,
    loop,
    product,
    remark,
    shared,
    split,
    store,
    when,
)
from tfgraph.backends.tvm.cuda.slices import copy_chunk


def flash(task: Task) -> Warp:
    """What the warps of a block know when they have seen all keys of the task."""
    block = _Block(task)
    block.run()
    return block.warp


class _Block:
    """A block's shared memory and the loop over its tiles of keys."""

    def __init__(self, task: Task) -> None:
        self.tile, self.heads, self.problem = task.tile, task.heads, task.problem
        self.shape, self.masks = task.problem.shape, task.problem.masks
        self.row0, self.thread = task.row0, task.thread
        tile, shape = self.tile, self.shape
        self._find_keys(task.part)
        k_at = tile.rows * pitch(shape.width)
        v_at = k_at + tile.keys * pitch(shape.width)
        self.at = (0, k_at, v_at)
        size = v_at + tile.keys * pitch(shape.value_width)
        self.memory = shared("memory", (size,), self.shape.dtype, dynamic=True)
        self.flags = None
        if self.masks.reads_keys:
            self.flags = shared("key_allowed", (2 * tile.keys,), "int32")
        self.warp = Warp(task, self.memory, self.at, self.end_key)

    def _find_keys(self, part: tuple[Any, Any] | None) -> None:
        """The tiles of keys that any row may see, or a part of them: `tiles` from `tile0` on."""
        heads, keys = self.heads, self.tile.keys
        last_row = tirx.min(self.row0 + self.tile.rows, heads.rows) - 1
        rows = Rows(heads.batch, heads.query(self.row0), heads.query(last_row))
        first, end = self.masks.key_range(rows)
        self.end_key = let("end_key", end.astype("int32"))
        first_tile = let("first_tile", tirx.truncdiv(first.astype("int32"), keys))
        tiles = tirx.truncdiv(self.end_key + (keys - 1), keys) - first_tile
        tiles = let("tiles", tirx.max(tiles, 0))
        if part is not None:
            number, count = part
            share = let("share", tirx.truncdiv(tiles + count - 1, count))
            skipped = let("skipped", tirx.min(share * number, tiles))
            first_tile = let("first_of_part", first_tile + skipped)
            tiles = let("tiles_of_part", tirx.min(share, tiles - skipped))
        self.tile0, self.tiles = first_tile, tiles

    def run(self) -> None:
        """All tiles, and at the end the sum of each row's weights."""
        warp, masks, keys = self.warp, self.masks, self.tile.keys
        self._load_queries()
        self._flag_keys(0)
        if self.flags is not None:
            barrier()
        remark("The first keys.")
        self._load_keys(0)
        call("cp_async_commit")
        with loop("step", self.tiles) as step:
            warp.stand()
            key0 = let("key0", (self.tile0 + step) * keys + warp.key_in_tile)
            sees = let("sees", warp.sees(key0).astype("int32")) != 0
            cuts = None
            if masks.selects_pairs:
                cuts = let("cuts", warp.cuts(key0).astype("int32")) != 0
            remark("The keys are here, for all threads, and all are done with the last values.")
            call("cp_async_wait<0>")
            barrier()
            self._load_values(step)
            call("cp_async_commit")
            self._flag_keys(step + 1)
            with when(sees):
                warp.stand()
                warp.multiply()
            remark("The values are here, and all are done with the keys.")
            call("cp_async_wait<0>")
            barrier()
            with when(step + 1 < self.tiles):
                self._load_keys(step + 1)
            call("cp_async_commit")
            with when(sees):
                warp.stand()
                warp.bias(key0)
                warp.hide(key0, cuts, self._flag(step))
                warp.weigh()
                warp.stand()
                warp.add_values(key0, cuts)
        warp.stand()
        warp.finish()

    def _load_queries(self) -> None:
        heads, shape = self.heads, self.shape
        q = self.problem.q
        remark("The queries, zeros behind the last.")

        def at(row: Any, d: Any) -> Any:
            row = self.row0 + row
            column = heads.head(row) * shape.width + (d + shape.q_offset)
            return address(q, heads.batch, heads.query(row), column)

        aligned = _aligned(shape.width, shape.q_pitch, shape.q_offset)
        self._copy(
            ("row", self.tile.rows),
            self.at[0],
            shape.width,
            at,
            lambda row: self.row0 + row < heads.rows,
            aligned=aligned,
        )

    def _load_keys(self, step: Any) -> None:
        shape = self.shape
        aligned = _aligned(shape.width, shape.k_pitch, shape.k_offset)
        self._load(self.problem.k, self.at[1], shape.width, shape.k_offset, step, aligned=aligned)

    def _load_values(self, step: Any) -> None:
        shape = self.shape
        width = shape.value_width
        aligned = _aligned(width, shape.v_pitch, shape.v_offset)
        self._load(self.problem.v, self.at[2], width, shape.v_offset, step, aligned=aligned)

    def _load(
        self, source: Any, to: int, width: int, offset: int, step: Any, *, aligned: bool
    ) -> None:
        """A tile of keys or values; those that no row of the block may see are zeros."""
        heads, keys = self.heads, self.tile.keys
        flag = self._flag(step, 0)
        first = let("first", (self.tile0 + step) * keys)
        _, length, row = source.shape
        start = (heads.batch * length + first) * row + heads.kv_head * width + offset
        start = let(f"{source.name}0", start)
        numbers = flat(source, (product(source.shape),))

        def at(key: Any, d: Any) -> Any:
            return address(numbers, start + (key * int(row) + d))

        def allowed(key: Any) -> Any:
            exists = first + key < self.end_key
            return exists if flag is None else both(exists, flag(key))

        self._copy(("key", keys), to, width, at, allowed, aligned=aligned)

    def _copy(
        self,
        rows: tuple[str, int],
        to: int,
        width: int,
        at: Callable[[Any, Any], Any],
        allowed: Callable[[Any], Any],
        *,
        aligned: bool,
    ) -> None:
        """So many rows of `width`, 16 bytes a thread at a time, zeros where nothing is allowed."""
        name, count = rows
        threads = self.tile.threads
        per_row = padded(width) // CHUNK
        chunks = count * per_row
        thread = let("thread_now", tirx.call_extern("int32", "again", self.thread))
        with loop("load", -(-chunks // threads), unroll=True) as load, ExitStack() as stack:
            if chunks % threads:
                stack.enter_context(when(load * threads + thread < chunks))
            row, chunk = split(thread, load, per_row, threads, (name, "chunk"))
            d = let("d", chunk * CHUNK)
            left = width - d
            to_at = address(self.memory, to + row * pitch(width) + d)
            dtype = self.shape.dtype
            copy_chunk(to_at, at(row, d), allowed(row), left, dtype, aligned=aligned)

    def _flag_keys(self, step: Any) -> None:
        """Which keys of a tile masks that ask the key alone allow: flags for two tiles."""
        if self.flags is None:
            return
        keys = self.tile.keys
        with when(self.thread < keys):
            key = let("key", (self.tile0 + step) * keys + self.thread)
            pair = Pair(self.heads.batch, None, None, key, key < self.end_key)
            allowed = self.masks.key_allowed(pair)
            at = tirx.truncmod(step, 2) * keys + self.thread
            store(self.flags, [at], allowed.astype("int32"))

    def _flag(self, step: Any, first: Any | None = None) -> Callable[[Any], Any] | None:
        """The flag of a key, counted from the warp's first one, or from `first`."""
        if self.flags is None:
            return None
        flags, keys = self.flags, self.tile.keys
        start = tirx.truncmod(step, 2) * keys + (self.warp.key_in_tile if first is None else first)
        return lambda key: flags[start + key] != 0


def _aligned(*sizes: int) -> bool:
    """Whether heads of these sizes start at multiples of 16 bytes."""
    return all(size % CHUNK == 0 for size in sizes)
