"""What the keys of a model file say about layers and positions, as the blocks take it.

May import: schema, fits, blocks, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph import blocks
from tfgraph.ir.mask import alibi, relative
from tfgraph.model.fits import heads_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.errors import Location
    from tfgraph.ir import Dim, Mask
    from tfgraph.model.schema import HighLevel, Scaling


def layer(
    spec: HighLevel, rotary: blocks.Rotary | None, places: Mapping[str, Location]
) -> blocks.Layer:
    """The hyperparameters of a layer, with what turns the heads and where its keys stand."""
    attention, experts = spec.attention, spec.experts
    qkv_bias = spec.bias if attention.bias is None else attention.bias
    return blocks.Layer(
        heads=heads_of(spec),
        ffn=spec.ffn,
        kv_heads=spec.kv_heads,
        head_size=spec.head_size,
        value_size=attention.value_size,
        scale=attention.scale,
        softcap=attention.softcap,
        qk_norm=None if attention.qk_norm == "none" else norm(spec, attention.qk_norm),
        rotary=rotary,
        activation=spec.activation,
        gated=spec.gated,
        experts=None
        if experts is None
        else blocks.Experts(experts.count, experts.active, experts.normalise, experts.shared),
        qkv_bias=qkv_bias,
        out_bias=qkv_bias if attention.out_bias is None else attention.out_bias,
        ffn_bias=spec.bias if spec.ffn_bias is None else spec.ffn_bias,
        norm=norm(spec),
        placement=spec.norm.placement,
        shared_norm=spec.norm.shared,
        residual=spec.residual,
        residual_scale=spec.residual_scale,
        places=places,
    )


def norm(spec: HighLevel, kind: str | None = None) -> blocks.Norm:
    """The model's norm, or one of another kind that is as the model's otherwise."""
    given, kind = spec.norm, kind or spec.norm.kind
    bias = given.bias if kind == "layer_norm" else None
    return blocks.Norm(kind, given.eps, given.scale, bias, given.unit_offset)


def rotary(spec: HighLevel, longest: int) -> blocks.Rotary | None:
    """The tables that turn heads, for positions up to `longest` unless the file says how many."""
    positions = spec.positions
    if positions.kind != "rotary":
        return None
    return blocks.rotary_tables(
        positions.size or spec.head_size or spec.width // heads_of(spec),
        positions=positions.max or longest,
        base=positions.base,
        scaling=None if positions.scaling is None else _scaling(positions.scaling),
        interleaved=positions.layout == "interleaved",
        dtype=spec.dtype,
    )


def _scaling(given: Scaling) -> blocks.LinearScaling | blocks.Llama3Scaling:
    if given.kind == "linear" or given.original is None:  # fits.py asks llama3 for it
        return blocks.LinearScaling(given.factor)
    return blocks.Llama3Scaling(given.factor, given.original, given.low, given.high)


def score_bias(spec: HighLevel, decodes: bool, offset: Dim | None) -> Mask | None:
    """What positions add to the scores of self-attention in one stack."""
    positions = spec.positions
    if positions.kind == "alibi":
        return alibi(blocks.alibi_slopes(heads_of(spec), dtype=spec.dtype), offset)
    if positions.kind != "relative":
        return None
    table = blocks.relative_table(heads_of(spec), buckets=positions.buckets, dtype=spec.dtype)
    both = not decodes
    return relative(table, positions.max_distance, bidirectional=both, offset=offset)
