"""Sizes that follow from the keys of a model file. May import: schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfgraph.model.schema import HighLevel

# The defaults of DSL and YAML alike: without a range, sizes go up to these.
DEFAULT_BATCH, DEFAULT_LENGTH = 1024, 512
# Of relative positions: rows of the table, and the distance from which on all is in one row.
BUCKETS, DISTANCE = 32, 128

OF_POSITIONS = {
    "max": ("sinusoidal", "rotary", "disentangled", "learned"),
    "offset": ("learned",),
    "padding_id": ("learned",),
    "masked": ("learned",),
    "layout": ("sinusoidal", "rotary"),
    "base": ("rotary",),
    "size": ("rotary",),
    "scaling": ("rotary",),
    "scale": ("alibi",),
    "buckets": ("learned", "disentangled", "relative"),
    "max_distance": ("learned", "disentangled", "relative"),
    "terms": ("disentangled",),
    "shared": ("disentangled",),
    "norm": ("disentangled",),
}
"""Which kinds of positions a key is for."""
MASK_INPUTS = ("prefix", "segments", "dense", "bias")
"""The masks that take an input, which a step of generation is not given."""


def heads_of(spec: HighLevel) -> int:
    """The number of heads: one for every 64 of the width unless given."""
    return max(1, spec.width // 64) if spec.heads is None else spec.heads


def head_size_of(spec: HighLevel) -> int:
    """The width of a head: their share of the width unless given."""
    return spec.head_size or spec.width // heads_of(spec)


def encoder_of(spec: HighLevel) -> HighLevel:
    """The encoder of an encoder-decoder: what it has otherwise, and the rest of the decoder's."""
    if spec.encoder is None:
        return spec
    given = {key: getattr(spec.encoder, key) for key in type(spec.encoder).model_fields}
    return spec.model_copy(update={k: v for k, v in given.items() if v is not None})


def image_length(spec: HighLevel) -> int | None:
    """How many vectors the stem makes of an image; None where it takes none."""
    stem = spec.stem
    if stem is None or stem.kind != "image":
        return None
    height, patch = stem.height or 1, stem.patch or 1
    return height // patch * ((stem.width or height) // patch) + stem.class_token


def length_limit(spec: HighLevel) -> int | None:
    """The longest sequence that the table of positions allows; None where there is no limit."""
    positions = spec.positions
    if positions.kind not in OF_POSITIONS["max"] or positions.max is None:
        return None
    if positions.kind != "learned":
        return positions.max
    before = positions.offset if positions.padding_id is None else positions.padding_id + 1
    return positions.max - before
