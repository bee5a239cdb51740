"""What goes into the stacks of a model: sizes, inputs, masks, and tokens or the like as vectors.

May import: schema, read, derived, parts, blocks, ops, ir, errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, cast

from tfgraph import blocks, ops
from tfgraph.ir import Exact, Fill, as_dim, exact, rsqrt, sqrt
from tfgraph.ir.mask import bias, causal, dense, padding, prefix, segments, window
from tfgraph.model import parts
from tfgraph.model.derived import (
    DEFAULT_BATCH,
    DEFAULT_LENGTH,
    encoder_of,
    heads_of,
    image_length,
    length_limit,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tfgraph.errors import Location
    from tfgraph.ir import Dim, Mask
    from tfgraph.model.read import Document
    from tfgraph.model.schema import HighLevel, MaskPart
    from tfgraph.ops import Array, Builder, Traced

    Tables = tuple[blocks.Rotary | None, blocks.Disentangled | None]


@dataclass
class Inputs:
    """Builds what goes into a model in the graph `g`, or into its `part` "encoder".

    `longest` is the largest size of each symbol, `tables` what positions in attention need, by the
    key that describes them, and `keep` the input attention_mask.
    """

    spec: HighLevel
    document: Document
    g: Builder
    part: str = ""
    longest: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    tables: dict[str, Tables] = field(default_factory=lambda: dict[str, "Tables"]())
    keep: Traced | None = None

    def place(self, *keys: str) -> Location:
        """The place of the first of these keys that the file has."""
        found = (k for k in (*keys, "layers") if k in self.document.data)
        return self.document.place(next(found)).key

    def at(self, *keys: str) -> AbstractContextManager[None]:
        return self.g.at(self.place(*keys))

    def length(self) -> Dim:
        """The length of the (encoder's) sequence: a symbol, or of an image a number."""
        count = image_length(self.spec)
        if count is None:
            return self.size("seq")
        self.longest[str(count)] = count
        return as_dim(count)

    def source(self, batch: Dim, seq: Dim) -> Traced:
        """The input of the (encoder's) stack: tokens, vectors, or what its stem takes."""
        spec, g, stem = self.spec, self.g, self.spec.stem
        if stem is None:
            if spec.vocabulary is not None:
                return self.ids("input_ids", batch, seq)
            return g.input("x", spec.dtype, batch, seq, spec.width)
        with self.at("stem"):
            if stem.kind == "audio":
                return g.input("input_features", spec.dtype, batch, stem.channels, 2 * seq)
            height, width = stem.height or 1, stem.width or stem.height or 1
            return g.input("pixel_values", spec.dtype, batch, stem.channels, height, width)

    def size(self, name: str) -> Dim:
        """Declare a symbol with its range."""
        given = self.spec.symbols.get(name)
        low = given.min if given else 1
        example = given.example if given else None
        self.longest[name] = high = self.highest(name)
        usual = 2 if name == "batch" else 128
        return self.g.symbol(name, low, high, example or max(low, min(usual, high)))

    def highest(self, name: str) -> int:
        """The largest size of a symbol: as the file says, as the positions allow, or the usual."""
        given = self.spec.symbols.get(name)
        if given and given.max is not None:
            return given.max
        low, example = (given.min, given.example or 1) if given else (1, 1)
        spec = self.spec
        longest = length_limit(encoder_of(spec) if name in ("seq", "source") else spec)
        if name == "batch":
            return max(low, DEFAULT_BATCH)
        return max(low, example, DEFAULT_LENGTH) if longest is None else longest

    def ids(self, name: str, batch: Dim, length: Dim) -> Traced:
        with self.at("vocabulary"):
            fill = Fill("ids", exact(self.spec.vocabulary or 0))
            return self.g.input(name, "i64", batch, length, fill=fill)

    def table(self) -> Traced | None:
        """The table of the tokens, which embeddings and a tied head share."""
        spec = self.spec
        if spec.vocabulary is None:
            return None
        size = spec.embedding.size or spec.width
        return blocks.token_table(spec.vocabulary, size, dtype=spec.dtype)

    def mask(self, batch: Dim, seq: Dim) -> Mask | None:
        """The mask of self-attention, of an encoder-decoder that of its encoder."""
        given = self.spec.mask
        if given is None:
            return causal() if self.spec.kind == "decoder" else None
        parts = [self.mask_part(part, batch, seq) for part in given]
        return reduce(lambda a, b: a & b, parts) if parts else None

    def mask_part(self, part: MaskPart, batch: Dim, seq: Dim) -> Mask:
        """One of the masks that all hold, with the input that it needs."""
        g, one = self.g, as_dim(1)
        if part.kind == "padding":
            return padding(self.real(batch, seq))
        if part.kind == "causal":
            return causal()
        if part.kind == "window":
            return window(part.left, part.right)
        if part.kind == "prefix":
            return prefix(g.input("prefix_length", "i64", batch))
        if part.kind == "segments":
            return segments(g.input("segment_ids", "i64", batch, seq))
        if part.kind == "dense":
            return dense(g.input("allowed", "bool", batch, one, seq, seq))
        heads = as_dim(heads_of(self.spec))
        return bias(g.input("attention_bias", self.spec.dtype, batch, heads, seq, seq))

    def real(self, batch: Dim, seq: Dim) -> Traced:
        """The input attention_mask, 1 for tokens and 0 for padding."""
        if self.keep is None:
            self.keep = self.g.input("attention_mask", "i64", batch, seq, fill=Fill("prefix"))
        return self.keep

    def padding(self, batch: Dim, seq: Dim) -> Mask | None:
        """What hides keys from whoever asks: the padding alone, where the model has some."""
        if not any(part.kind == "padding" for part in self.spec.mask or ()):
            return None
        return padding(self.real(batch, seq))

    def norm(self, x: Traced, name: str) -> Traced:
        return parts.norm(self.spec)(x, name)

    def embed(self, source: Traced, table: Traced | None, batch: Dim, length: Dim) -> Traced:
        """Tokens, token types and positions, added; then norm and projection where there are."""
        spec, g = self.spec, self.g
        x, size = source, spec.embedding.size or spec.width
        heard = spec.stem is not None and (self.part or spec.kind != "encoder-decoder")
        with self.at("stem" if heard else "vocabulary"):
            if heard:
                x = self.stem(source, spec.width)
            elif table is not None and spec.vocabulary is not None:
                x = blocks.embedding(
                    source, spec.vocabulary, size, scale=self.scale(size), table=table
                )
        with self.at("embedding"):
            first = spec.embedding.projection_first
            if first:
                x, size = self.widened(x), spec.width
            x = self.add_token_types(x, size, batch, length)
        with self.at("positions"):
            x = self.add_positions(x, source, size, length)
        with self.at("embedding"):
            if spec.embedding.norm:
                x = self.norm(x, "embeddings.norm")
            x = x if first else self.widened(x)
        return g.label(x, "embeddings")

    def widened(self, x: Traced) -> Traced:
        """Vectors of the embedding's size as those of the width."""
        given = self.spec.embedding
        if given.size is None:
            return x
        bias = given.projection_bias
        return blocks.linear(x, self.spec.width, bias=bias, name="embeddings.projection")

    def stem(self, source: Traced, size: int) -> Traced:
        """Vectors of what is no text."""
        stem = self.spec.stem
        assert stem is not None
        if stem.kind == "audio":
            return blocks.audio_stem(source, size)
        patch, first = stem.patch or 1, stem.class_token
        return blocks.image_stem(source, size, patch=patch, class_token=first)

    def scale(self, size: int) -> Exact | None:
        scale = self.spec.embedding.scale
        return sqrt(size) if isinstance(scale, str) else scale

    def add_token_types(self, x: Traced, size: int, batch: Dim, length: Dim) -> Traced:
        types = self.spec.embedding.token_types
        if not types:
            return x
        fill = Fill("normal", rsqrt(size))
        table = self.g.param("embeddings.token_types", self.spec.dtype, types, size, fill=fill)
        if types == 1:  # the only row is every token's
            return _add(x, table)
        ids = self.g.input("token_type_ids", "i64", batch, length, fill=Fill("zeros"))
        return _add(x, ops.embedding(ids, table))

    def add_positions(self, x: Traced, source: Traced, size: int, length: Dim) -> Traced:
        positions, dtype = self.spec.positions, self.spec.dtype
        rows = positions.max or self.longest[str(length)]
        if positions.kind == "sinusoidal":
            halves = positions.layout == "halves"
            return _add(
                x, blocks.sinusoidal(length, size, positions=rows, halves=halves, dtype=dtype)
            )
        also = positions.kind == "disentangled" and positions.max is not None
        if positions.kind != "learned" and not also:
            return x
        if positions.masked and self.keep is not None:
            ids = blocks.positions_kept(self.keep, positions.offset)
        elif positions.padding_id is None:
            offset = positions.offset
            rows_ = blocks.learned(length, size, positions=rows, offset=offset, dtype=dtype)
            return _add(x, rows_)
        else:
            ids = blocks.positions_of(source, positions.padding_id)
        found = blocks.embedding(ids, rows, size, dtype=dtype, name="embeddings.positions")
        return _add(x, found)


def _add(x: Array, y: Array) -> Traced:
    return cast("Traced", ops.add(x, y))
