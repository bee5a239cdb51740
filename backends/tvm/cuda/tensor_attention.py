"""Attention in float16 and bfloat16 on tensor cores: which kernel runs, and that of many queries.

    out[i] = sum_j softmax_j(mask(softcap(scale * q[i] . k[j]) + bias[i, j])) v[j]

Few queries before many keys, as when a token is generated, are decode_attention.py's. Scores,
softmax and sums are in float32. Besides those, a kernel rounds each weight exp(score - largest) to
16 bits before it meets a value, and the result once. May import: tvm, flash, decode_attention.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.attention_mask import Prefix
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda import decode_attention
from tfgraph.backends.tvm.cuda.attention_mask import Masks
from tfgraph.backends.tvm.cuda.flash import flash
from tfgraph.backends.tvm.cuda.flash_tile import Problem, Task, Tile
from tfgraph.backends.tvm.cuda.flash_warp import Put
from tfgraph.backends.tvm.cuda.gemm_tile import write_sums
from tfgraph.backends.tvm.cuda.kernel import (
    Dim,
    Kernel,
    f32,
    flat,
    kernel,
    let,
    pick,
    remark,
)
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.errors import TfgraphError

LARGEST_WIDTH = 256
NARROW = 64, Tile(128, 64, warp_rows=32, warp_keys=64)
MEDIUM = 128, Tile(128, 32, warp_rows=32, warp_keys=32)
"""Up to so wide heads, a tile whose warps take 32 rows: each key that they load serves more rows
than in those of 16."""
WIDE = (
    (128, (Tile(128, 64, warp_rows=16, warp_keys=64), Tile(64, 64, warp_rows=16, warp_keys=64))),
    (
        LARGEST_WIDTH,
        tuple(Tile(rows, 32, warp_rows=16, warp_keys=32) for rows in (128, 64, 32)),
    ),
)
"""Tiles for other heads, up to so wide, of which the first is taken that shared memory has room
for."""
MOST_TERMS = 2
"""Masks and biases that leave registers enough for `MEDIUM`."""
KEEPS_MUCH = Prefix
"""A mask that keeps more in registers than others: beside another, tiles of 32 keys are taken."""
COPIES_ASIDE = 96 * 1024
"""Blocks have so much shared memory where copies to it do not pass through registers, which are
then lacking for `MEDIUM`: on all architectures but sm_75."""


def attention(
    shape: AttentionShape,
    plan: MaskPlan | None = None,
    *,
    shared_bytes: int,
    scale: float,
    softcap: float | None = None,
    batch: Dim = "batch",
    queries: Dim = "s",
    keys: Dim = "t",
    name: str = "attention",
) -> Any:
    """A PrimFunc `name` for attention of float16 or bfloat16.

    Parameters in order: q (batch, queries, q_pitch), k (batch, keys, k_pitch),
    v (batch, keys, v_pitch), the arrays of `plan.parameters`, an int64 for each of `plan.scalars`,
    out (batch, queries, heads * value_width). Those of heads are of `shape.dtype`. `queries` and
    `keys` may be one symbol. A block may have so many `shared_bytes`. Raises TfgraphError for
    heads wider than 256.
    """
    plan = plan or MaskPlan()
    tile = _tile(shape, plan, shared_bytes)
    with kernel(name) as built:
        b, s, t = built.dims((batch, queries, keys))
        q = built.buffer("q", (b, s, shape.q_pitch), shape.dtype)
        k = built.buffer("k", (b, t, shape.k_pitch), shape.dtype)
        v = built.buffer("v", (b, t, shape.v_pitch), shape.dtype)
        sizes = {"batch": b, "heads": shape.heads, "queries": s, "keys": t}
        masks = Masks(built, plan, sizes)
        out = built.buffer("out", (b, s, shape.heads * shape.value_width), shape.dtype)
        problem = Problem(shape, masks, q, k, v, out, scale, softcap)
        built.choose(
            (
                decode_attention.suits(problem),
                lambda: decode_attention.launch(built, problem, shared_bytes),
            ),
            (None, lambda: _launch(built, problem, tile)),
        )
    return built.function


def _launch(built: Kernel, problem: Problem, tile: Tile) -> None:
    """The kernel of many queries: a block a tile of rows."""
    shape = problem.shape
    row_tiles = tirx.ceildiv(problem.rows, tile.rows)
    blocks = (problem.batch * row_tiles, shape.kv_heads)
    with built.launch(blocks=blocks, threads=tile.threads) as (block, kv_head, thread):
        remark(f"A tile of {tile.rows} rows: queries, times the heads that share keys.")
        entry = let("entry", tirx.truncdiv(block, row_tiles).astype("int32"))
        row0 = tirx.truncmod(block, row_tiles).astype("int32") * tile.rows
        heads = problem.heads(entry, kv_head)
        warp = flash(Task(problem, tile, heads, let("row0", row0), thread))
        width = shape.value_width
        result = flat(problem.out, (problem.batch * problem.q.shape[1] * shape.heads, width))

        def begin(row: Any, r: Any) -> Put:
            total = warp.total[r]
            inverse = let("inverse", pick(tirx.EQ(total, f32(0)), f32(0), f32(1) / total))
            at = let("at", problem.result_row(heads, row))

            def put(column: Any, first: Any, second: Any) -> None:
                write_sums(result, (at, column), (first * inverse, second * inverse))

            return put

        remark("The mean of the values, zeros where nothing was allowed.")
        warp.write(begin)


def _tile(shape: AttentionShape, plan: MaskPlan, shared_bytes: int) -> Tile:
    """The tile for heads of that shape: the largest that spills no register and has room."""
    widest = max(shape.width, shape.value_width)
    if widest > LARGEST_WIDTH or shape.heads % shape.kv_heads:
        raise TfgraphError(
            f"the CUDA attention kernel takes heads up to {LARGEST_WIDTH} wide and a multiple of "
            f"the key/value heads, got {shape}"
        )
    if widest <= NARROW[0]:
        return NARROW[1]
    tight = len(plan.terms) > 1 and any(isinstance(term, KEEPS_MUCH) for term in plan.terms)
    simple = len(plan.terms) <= MOST_TERMS and shared_bytes >= COPIES_ASIDE
    if widest <= MEDIUM[0] and simple and not tight:
        return MEDIUM[1]
    tiles = WIDE[-1][1] if tight else next(tiles for most, tiles in WIDE if widest <= most)
    return next(tile for tile in tiles if tile.shared_bytes(shape) <= shared_bytes)
