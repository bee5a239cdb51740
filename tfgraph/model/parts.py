"""What the keys of a model file say about layers and positions, as the blocks take it.

May import: schema, derived, blocks, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph import blocks
from tfgraph.ir import rsqrt
from tfgraph.ir.mask import alibi, relative
from tfgraph.model.derived import BUCKETS, DISTANCE, head_size_of, heads_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.blocks.positions import Scaling as AnyScaling
    from tfgraph.errors import Location
    from tfgraph.ir import Dim, Exact, Mask
    from tfgraph.model.schema import HighLevel, Positions, Scaling


def layer(
    spec: HighLevel,
    rotary: blocks.Rotary | None,
    places: Mapping[str, Location],
    distances: blocks.Disentangled | None = None,
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
        scale=scale(spec),
        softcap=attention.softcap,
        qk_norm=None if attention.qk_norm == "none" else norm(spec, attention.qk_norm),
        qk_norm_over=attention.qk_norm_over,
        rotary=rotary,
        disentangled=distances,
        activation=spec.activation,
        gated=spec.gated,
        experts=None
        if experts is None
        else blocks.Experts(experts.count, experts.active, experts.normalise, experts.shared),
        qkv_bias=qkv_bias,
        key_bias=attention.key_bias,
        out_bias=qkv_bias if attention.out_bias is None else attention.out_bias,
        ffn_bias=spec.bias if spec.ffn_bias is None else spec.ffn_bias,
        norm=norm(spec),
        placement=spec.norm.placement,
        shared_norm=spec.norm.shared,
        residual=spec.residual,
        residual_scale=spec.residual_scale,
        places=places,
    )


def scale(spec: HighLevel) -> Exact | None:
    """The scale of scores as given; with disentangled terms it is as for so much wider heads."""
    if spec.attention.scale is not None or spec.positions.kind != "disentangled":
        return spec.attention.scale
    return rsqrt(head_size_of(spec) * (1 + len(spec.positions.terms)))


def local_layers(spec: HighLevel) -> list[bool]:
    """Which layers are local: the pattern, again and again."""
    pattern = ["full"] if spec.local is None else spec.local.pattern
    return [pattern[i % len(pattern)] == "local" for i in range(spec.layers)]


def norm(spec: HighLevel, kind: str | None = None) -> blocks.Norm:
    """The model's norm, or one of another kind that is as the model's otherwise."""
    given, kind = spec.norm, kind or spec.norm.kind
    bias = given.bias if kind == "layer_norm" else None
    return blocks.Norm(kind, given.eps, given.scale, bias, given.unit_offset)


def rotary(
    spec: HighLevel, positions: Positions, longest: int, name: str = "positions"
) -> blocks.Rotary | None:
    """The tables that turn heads, for positions up to `longest` unless the file says how many."""
    if positions.kind != "rotary":
        return None
    return blocks.rotary_tables(
        positions.size or head_size_of(spec),
        positions=positions.max or longest,
        base=positions.base,
        scaling=None if positions.scaling is None else _scaling(positions.scaling),
        interleaved=positions.layout == "interleaved",
        dtype=spec.dtype,
        name=name,
    )


def _scaling(given: Scaling) -> AnyScaling:
    factor, original = given.factor or 1, given.original or 1  # fits.py asks for what is needed
    if given.kind == "longrope":
        short, long = tuple(given.short or ()), tuple(given.long or ())
        return blocks.LongScaling(short, long, original, given.magnitude or 1)
    if given.kind == "linear":
        return blocks.LinearScaling(factor)
    if given.kind == "yarn":
        return blocks.YarnScaling(
            factor, original, given.low, given.high or 32, given.truncate, given.magnitude
        )
    return blocks.Llama3Scaling(factor, original, given.low, given.high or 4)


def distances(spec: HighLevel, longest: int) -> blocks.Disentangled | None:
    """The vectors of distances that queries and keys have to do with, for up to `longest`."""
    positions = spec.positions
    if positions.kind != "disentangled":
        return None
    furthest = positions.max_distance or DISTANCE
    rows = 2 * (positions.buckets or furthest)
    table = blocks.distance_table(rows, spec.width, dtype=spec.dtype)
    if positions.norm:
        table = norm(spec)(table, "positions.norm")
    return blocks.Disentangled(
        table, longest, positions.buckets, furthest, tuple(positions.terms), positions.shared
    )


def score_bias(spec: HighLevel, decodes: bool, offset: Dim | None) -> Mask | None:
    """What positions add to the scores of self-attention in one stack."""
    positions, heads = spec.positions, heads_of(spec)
    if positions.kind == "alibi":
        slopes = blocks.alibi_slopes(heads, scale=positions.scale or 1, dtype=spec.dtype)
        return alibi(slopes, offset)
    beside = positions.kind == "learned" and positions.buckets is not None
    if positions.kind != "relative" and not beside:
        return None
    table = blocks.relative_table(heads, buckets=positions.buckets or BUCKETS, dtype=spec.dtype)
    furthest = positions.max_distance or DISTANCE
    return relative(table, furthest, bidirectional=not decodes, offset=offset)
