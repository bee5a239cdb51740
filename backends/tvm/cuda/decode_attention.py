"""Attention of few queries before many keys, as when a token is generated, on tensor cores.

One block a head would leave most of the GPU idle, so that blocks share the keys of a head too, and
so do the warps of a block (split-K; Dao et al., "Flash-Decoding", 2023). All query heads that share
a key/value head go together: keys and values are read once, which is what takes the time. What the
warps know of their parts goes to a workspace, and a second launch combines it, always in the same
order. May import: tvm, flash.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.flash import flash
from tfgraph.backends.tvm.cuda.flash_tile import HIDDEN, Problem, Task, Tile
from tfgraph.backends.tvm.cuda.flash_warp import Put
from tfgraph.backends.tvm.cuda.kernel import (
    WARP_SIZE,
    Kernel,
    barrier,
    f32,
    flat,
    let,
    local,
    loop,
    pick,
    reduce_lanes,
    remark,
    shared,
    store,
    when,
    workspace,
)

MOST_ROWS = 64
"""Queries times the heads that share keys, where these kernels still run."""
LEAST_KEYS = 256
PART = 128
"""Keys that are worth a block of their own."""
BLOCKS = 256
"""As many as the GPU should have work for: two a multiprocessor, on the larger ones."""
TILES = (Tile(16, 64, warp_rows=16, warp_keys=16), Tile(16, 32, warp_rows=16, warp_keys=16))
COMBINING_WARPS = 8


def suits(problem: Problem) -> Any:
    """Whether these kernels are to run."""
    return tirx.all(problem.rows <= MOST_ROWS, problem.keys >= LEAST_KEYS)


def launch(built: Kernel, problem: Problem, shared_bytes: int) -> None:
    """Both launches."""
    tile = next(tile for tile in TILES if tile.shared_bytes(problem.shape) <= shared_bytes)
    width, kv_heads = problem.shape.value_width, problem.shape.kv_heads
    row_tiles = tirx.ceildiv(problem.rows, tile.rows)
    shares = tirx.truncdiv(BLOCKS - 1, problem.batch * row_tiles * kv_heads) + 1
    parts = tirx.min(tirx.ceildiv(problem.keys, PART), shares)
    rows = problem.batch * kv_heads * problem.rows
    partial_sums = workspace("partial_sums", (parts * tile.across, rows, width))
    partial_state = workspace("partial_state", (parts * tile.across, rows, 2))

    blocks = (problem.batch * row_tiles, kv_heads, parts)
    with built.launch(blocks=blocks, threads=tile.threads) as (block, kv_head, part, thread):
        remark(f"A part of the keys for {tile.rows} rows: queries, times heads that share keys.")
        entry = let("entry", tirx.truncdiv(block, row_tiles).astype("int32"))
        row0 = tirx.truncmod(block, row_tiles).astype("int32") * tile.rows
        heads = problem.heads(entry, kv_head)
        share = (part.astype("int32"), let("parts", parts.astype("int32")))
        warp = flash(Task(problem, tile, heads, let("row0", row0), thread, share))
        warp_number = let("warp", tirx.truncdiv(thread, WARP_SIZE))

        def begin(row: Any, r: Any) -> Put:
            at = let("at", (entry * kv_heads + kv_head) * problem.rows + row)
            place = let("place", share[0] * tile.across + warp_number)
            with when(tirx.EQ(tirx.truncmod(thread, 4), 0)):
                store(partial_state, [place, at, 0], warp.largest[r] * f32(problem.factor))
                store(partial_state, [place, at, 1], warp.total[r])

            def put(column: Any, *pair: Any) -> None:
                for e, value in enumerate(pair):
                    with when(column + e < width):
                        store(partial_sums, [place, at, column + e], value)

            return put

        remark("What is known of this part, relative to its largest score, a power of 2.")
        warp.write(begin)

    _combine(built, problem, partial_sums, partial_state)


def _combine(built: Kernel, problem: Problem, partial_sums: Any, partial_state: Any) -> None:
    """A block a row of the result; its warps share the parts, its lanes the columns."""
    width, kv_heads = problem.shape.value_width, problem.shape.kv_heads
    heads, queries = problem.shape.heads, problem.q.shape[1]
    per_lane = -(-width // WARP_SIZE)
    threads = COMBINING_WARPS * WARP_SIZE
    blocks = (problem.batch * queries, heads)
    with built.launch(blocks=blocks, threads=threads) as (query, head, thread):
        remark("The parts of one row together.")
        result = flat(problem.out, (problem.batch * queries, heads * width))
        parts = let("parts", partial_state.shape[0].astype("int32"))
        lane = let("lane", tirx.truncmod(thread, WARP_SIZE))
        warp = let("warp", tirx.truncdiv(thread, WARP_SIZE))
        kv_head = tirx.truncdiv(head, problem.group)
        entry = tirx.truncdiv(query, queries) * kv_heads + kv_head
        row = tirx.truncmod(query, queries) * problem.group + tirx.truncmod(head, problem.group)
        at = let("at", entry * problem.rows + row)
        largest = local("largest", (1,))
        store(largest, [0], f32(HIDDEN))
        with loop("i", tirx.ceildiv(parts, WARP_SIZE)) as i:
            place = tirx.min(i * WARP_SIZE + lane, parts - 1)
            store(largest, [0], tirx.max(largest[0], partial_state[place, at, 0]))
        reduce_lanes(largest, 0, tirx.max, WARP_SIZE)
        base = let("base", pick(tirx.EQ(largest[0], f32(HIDDEN)), f32(0), largest[0]))

        remark("Each warp adds up some of the parts.")
        sums, total = local("sums", (per_lane,)), local("total", (1,))
        of_warp = shared("of_warp", (COMBINING_WARPS * (per_lane * WARP_SIZE + 1),))
        store(total, [0], f32(0))
        with loop("c", per_lane, unroll=True) as c:
            store(sums, [c], f32(0))
        with loop("i", tirx.ceildiv(parts, COMBINING_WARPS)) as i:
            place = let("place", i * COMBINING_WARPS + warp)
            with when(place < parts):
                exponent = partial_state[place, at, 0] - base
                weight = let("weight", tirx.call_extern("float32", "exp2_approx", exponent))
                store(total, [0], total[0] + weight * partial_state[place, at, 1])
                with loop("c", per_lane, unroll=True) as c:
                    column = tirx.min(c * WARP_SIZE + lane, width - 1)
                    store(sums, [c], sums[c] + weight * partial_sums[place, at, column])
        pitch = per_lane * WARP_SIZE + 1
        with loop("c", per_lane, unroll=True) as c:
            store(of_warp, [warp * pitch + c * WARP_SIZE + lane], sums[c])
        with when(tirx.EQ(lane, 0)):
            store(of_warp, [warp * pitch + per_lane * WARP_SIZE], total[0])
        barrier()
        with when(thread < width):
            mean, sum_of = local("mean", (1,)), local("sum_of_weights", (1,))
            store(mean, [0], f32(0))
            store(sum_of, [0], f32(0))
            with loop("w", COMBINING_WARPS, unroll=True) as w:
                store(mean, [0], mean[0] + of_warp[w * pitch + thread])
                store(sum_of, [0], sum_of[0] + of_warp[w * pitch + per_lane * WARP_SIZE])
            nothing = tirx.EQ(sum_of[0], f32(0))
            mean = pick(nothing, f32(0), mean[0] / sum_of[0])
            store(result, [query, head * width + thread], mean)
