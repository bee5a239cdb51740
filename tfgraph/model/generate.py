"""The functions with which a model generates, beside its graph: graphs over the same parameters.

`step` takes new tokens behind those that it has seen, and gives the logits of the next one; what it
has seen is in its states, the keys and values of each layer. `encode`, of an encoder-decoder, makes
once what all steps read of the source. May import: build, check, blocks, ops, ir.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, cast

from tfgraph import blocks, ops
from tfgraph.ir import Fill, rsqrt
from tfgraph.ir.mask import causal, padding, window
from tfgraph.model.build import Assembly
from tfgraph.model.derived import MASK_INPUTS, heads_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Dim, Graph, Mask
    from tfgraph.model.read import Document
    from tfgraph.model.schema import HighLevel
    from tfgraph.ops import Array, Traced

BLOCK = 64
"""Rows by which caches grow: the capacity that a step must allow for its most tokens."""


def build_functions(spec: HighLevel, document: Document, name: str) -> dict[str, Graph]:
    """`step`, and `encode` of an encoder-decoder; none of a model that does not generate."""
    if why_not(spec) is not None:
        return {}
    made = {"step": _build(spec, document, name, Step.step)}
    if spec.kind == "encoder-decoder":
        made["encode"] = _build(spec, document, name, Step.encode)
    return made


def why_not(spec: HighLevel) -> str | None:
    """Why a model does not generate; None of one that does: a token depends on those before it
    alone, positions are counted from the start, and the logits are those of the next token."""
    given = spec.mask if spec.kind == "decoder" else None
    ahead = given is not None and not any(m.kind == "causal" or m.right == 0 for m in given)
    given_masks = [m.kind for m in spec.mask or () if m.kind in MASK_INPUTS]
    reasons = {
        "an encoder's tokens depend on those behind them": spec.kind == "encoder",
        "it has no vocabulary": spec.vocabulary is None,
        "it has no `head: lm`": spec.head is None or spec.head.kind != "lm",
        "its mask lets tokens see later ones": ahead,
        f"its mask {', '.join(given_masks)} is an input, which a step is not given": bool(
            given_masks
        ),
        "its positions skip padding_id, wherever it stands": spec.positions.padding_id is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _build(spec: HighLevel, document: Document, name: str, part: Callable[[Step], None]) -> Graph:
    with ops.graph(name) as builder:
        step = Step(spec, document, builder)
        with step.at("layers"):
            part(step)
    return builder.build()


@dataclass
class Step(Assembly):
    """Builds the functions. In a step, `position` is that of each new token in its row."""

    position: Traced | None = field(default=None)

    def step(self) -> None:
        """The new tokens are numbers end - seq .. end - 1 of each row; its `first` ones are padding
        that nothing attends to."""
        spec, g = self.spec, self.g
        batch = self.size("batch")
        seq, end, capacity = self.lengths("seq" if spec.kind == "decoder" else "target")
        ids = self.ids("input_ids", batch, seq)
        first = g.input("first", "i64", batch, fill=Fill("zeros"))
        start = end - seq
        self.position = _positions(first, start, end)
        keep = ops.logical_not(_before(ops.iota(length=capacity), first))
        mask = self.step_mask(start) & padding(keep)
        memory, memory_mask = self.memory(batch) if spec.kind != "decoder" else (None, None)
        shared = self.table() if spec.kind == "decoder" or spec.embedding.shared else None
        with g.scope("decoder") if memory else contextlib.nullcontext():
            table = self.table() if shared is None else shared
            states = blocks.decoder_states(
                self.embed(ids, table, batch, seq),
                spec.layers,
                self.layers(seq),
                mask=self.masks(self.biased(mask, decodes=True, offset=start), start),
                memory=memory,
                memory_mask=memory_mask,
                cache=blocks.Cache(batch, capacity, start),
                share=spec.share_layers,
                final_norm=self.final_norm,
            )
        last = ops.slice_(states[-1], axis=1, start=seq - 1, stop=seq)
        last = cast("Traced", ops.reshape(last, shape=(batch, spec.width)))
        last = self.top(last)
        with self.at("head"):
            g.output("logits", self.language_model(last, table))

    def encode(self) -> None:
        """The keys and values of the source for each layer of the decoder."""
        spec, g = self.spec, self.g
        batch, seq = self.size("batch"), self.length()
        source = self.source(batch, seq)
        mask = self.mask(batch, seq)
        shared = self.table() if spec.embedding.shared and spec.stem is None else None
        encoded = self.encoder_states(source, shared, mask, batch, seq)[-1]
        with g.scope("decoder"):
            layers = self.layers(seq)
            made = blocks.project_memory(encoded, spec.layers, layers, share=spec.share_layers)
        for i, pair in enumerate(made):
            g.output(f"memory.{i}", cast("Traced", ops.concat(*pair, axis=-1)))

    def lengths(self, name: str) -> tuple[Dim, Dim, Dim]:
        """The symbols seq <= end <= capacity; the whole model calls its length `name`."""
        g, high = self.g, self.highest(name)
        scaling = self.spec.positions.scaling
        if scaling is not None and scaling.kind == "longrope":  # beyond it all keys turn anew
            high = min(high, scaling.original or high)
        self.longest["seq"] = high
        most = -(-high // BLOCK) * BLOCK
        seq = g.symbol("seq", 1, high, min(5, high))
        end = g.symbol("end", 1, high, min(BLOCK + 6, high))
        capacity = g.symbol("capacity", 1, most, min(2 * BLOCK, most))
        g.constrain(seq, "<=", end)
        g.constrain(end, "<=", capacity)
        return seq, end, capacity

    def step_mask(self, start: Dim) -> Mask:
        """Causal, which hides what stands behind the new tokens, and the windows of the model."""
        parts = self.spec.mask if self.spec.kind == "decoder" else None
        windows = [p for p in parts or () if p.kind == "window"]
        return reduce(lambda mask, p: mask & window(p.left, p.right, start), windows, causal(start))

    def memory(self, batch: Dim) -> tuple[list[tuple[Traced, Traced]], Mask | None]:
        """What `encode` makes, and the mask of the source where the model has one."""
        spec, g = self.spec, self.g
        source = g.symbol("source", 1, self.highest("seq"), min(9, self.highest("seq")))
        kv_heads = spec.kv_heads or heads_of(spec)
        size = spec.head_size or spec.width // heads_of(spec)
        value_size = spec.attention.value_size or size
        keys, width = kv_heads * size, kv_heads * (size + value_size)
        made: list[tuple[Traced, Traced]] = []
        for i in range(spec.layers):
            both = g.input(f"memory.{i}", spec.dtype, batch, source, width)
            k = ops.slice_(both, axis=-1, start=0, stop=keys)
            v = ops.slice_(both, axis=-1, start=keys, stop=width)
            made.append((cast("Traced", k), cast("Traced", v)))
        return made, self.padding(batch, source)

    def turned(self, tables: blocks.Rotary, length: Dim) -> blocks.Rotary:
        """By each token's own position, which padding does not count in."""
        at = self.position
        return super().turned(tables, length) if at is None else tables.at(at)

    def add_positions(self, x: Traced, source: Traced, size: int, length: Dim) -> Traced:
        """Rows of the table at each token's own position, which padding does not count in."""
        kind = self.spec.positions
        added = {
            "learned": Fill("normal", rsqrt(size)),
            "sinusoidal": Fill("sinusoidal_halves" if kind.layout == "halves" else "sinusoidal"),
        }
        if self.position is None or kind.kind not in added:
            return super().add_positions(x, source, size, length)
        rows, fill = kind.max or self.longest[str(length)], added[kind.kind]
        g = self.g
        table = g.param("embeddings.positions", self.spec.dtype, rows, size, fill=fill)
        at = ops.add(self.position, kind.offset) if kind.offset else self.position
        return cast("Traced", ops.add(x, ops.embedding(at, table)))

    def add_token_types(self, x: Traced, size: int, batch: Dim, length: Dim) -> Traced:
        """All tokens are of the first type."""
        types = self.spec.embedding.token_types
        if self.position is None or types < 2:
            return super().add_token_types(x, size, batch, length)
        fill = Fill("normal", rsqrt(size))
        table = self.g.param("embeddings.token_types", self.spec.dtype, types, size, fill=fill)
        return cast("Traced", ops.add(x, ops.slice_(table, axis=0, start=0, stop=1)))


def _positions(first: Traced, start: Dim, end: Dim) -> Traced:
    """start .. end - 1 less the padding of each row [batch, end - start]; 0 for the padding."""
    numbers = ops.slice_(ops.iota(length=end), axis=0, start=start, stop=end)
    own = ops.sub(numbers, ops.reshape(first, shape=(*first.shape, 1)))
    return cast("Traced", ops.maximum(own, 0))


def _before(numbers: Array, first: Traced) -> Array:
    """Whether each of the numbers [n] is below `first` [batch]: bool [batch, n]."""
    return ops.less(numbers, ops.reshape(first, shape=(*first.shape, 1)))
