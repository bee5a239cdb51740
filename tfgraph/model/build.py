"""From the hyperparameters of a model file to its graph, through `tfgraph.blocks`.

Names of inputs and outputs are those of Hugging Face. May import: schema, read, fits, parts,
blocks, ops, ir, errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, cast

from tfgraph import blocks, ops
from tfgraph.ir import Exact, Fill, Graph, exact, rsqrt, sqrt
from tfgraph.ir.mask import causal, padding, window
from tfgraph.model import parts
from tfgraph.model.fits import DEFAULT_BATCH, DEFAULT_LENGTH, length_limit

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tfgraph.errors import Location
    from tfgraph.ir import Dim, Mask
    from tfgraph.model.read import Document
    from tfgraph.model.schema import HighLevel
    from tfgraph.ops import Array, Builder, Traced


def build_graph(spec: HighLevel, document: Document, name: str) -> Graph:
    """The graph of a high-level model, each node with its place in the file."""
    with ops.graph(name) as builder:
        model = Assembly(spec, document, builder)
        with model.at("layers"):
            model.encoder_decoder() if spec.kind == "encoder-decoder" else model.stack()
    return builder.build()


@dataclass
class Assembly:
    """Builds the parts of a model in the graph `g`."""

    spec: HighLevel
    document: Document
    g: Builder
    longest: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    turns: blocks.Rotary | None = None

    def place(self, *keys: str) -> Location:
        """The place of the first of these keys that the file has."""
        found = (k for k in (*keys, "layers") if k in self.document.data)
        return self.document.place(next(found)).key

    def at(self, *keys: str) -> AbstractContextManager[None]:
        return self.g.at(self.place(*keys))

    def stack(self) -> None:
        """An encoder, or a decoder without memory."""
        spec, g = self.spec, self.g
        batch, seq = self.size("batch"), self.size("seq")
        if spec.vocabulary is None:
            source = g.input("x", spec.dtype, batch, seq, spec.width)
        else:
            source = self.ids("input_ids", batch, seq)
        mask = self.mask(batch, seq)
        table = self.table()
        x = self.embed(source, table, batch, seq)
        decodes = spec.kind == "decoder"
        states = (blocks.decoder_states if decodes else blocks.encoder_states)(
            x,
            spec.layers,
            self.layer(seq),
            mask=self.biased(mask, decodes),
            share=spec.share_layers,
            final_norm=spec.final_norm,
        )
        self.finish(states[-1], table, states[-1], mask if spec.mask else None)
        if spec.hidden_states:
            for i, state in enumerate(states):
                g.output(f"hidden.{i}", state)

    def encoder_decoder(self) -> None:
        """An encoder, and a decoder that attends to its output. Vaswani et al. 2017."""
        spec, g = self.spec, self.g
        batch, seq, target = self.size("batch"), self.size("seq"), self.size("target")
        ids = spec.vocabulary is not None
        if ids:
            source = self.ids("input_ids", batch, seq)
        else:
            source = g.input("x", spec.dtype, batch, seq, spec.width)
        mask = self.mask(batch, seq)
        if ids:
            begun = self.ids("decoder_input_ids", batch, target)
        else:
            begun = g.input("decoder_x", spec.dtype, batch, target, spec.width)
        table = self.table() if spec.embedding.shared else None

        encoded = self.encoder_states(source, table, mask, batch, seq)
        with g.scope("decoder"):
            own = self.table() if table is None else table
            decoded = blocks.decoder_states(
                self.embed(begun, own, batch, target),
                spec.layers,
                self.layer(target),
                mask=self.biased(causal(), decodes=True),
                memory=encoded[-1],
                memory_mask=mask,
                share=spec.share_layers,
                final_norm=spec.final_norm,
            )
        self.finish(decoded[-1], own, encoded[-1], mask)
        if spec.head is None:
            g.output("encoder_last_hidden_state", encoded[-1])
        if spec.hidden_states:
            for part, states in (("encoder", encoded), ("decoder", decoded)):
                for i, state in enumerate(states):
                    g.output(f"{part}.hidden.{i}", state)

    def encoder_states(
        self, source: Traced, table: Traced | None, mask: Mask | None, batch: Dim, seq: Dim
    ) -> list[Traced]:
        """The states of the encoder before a decoder; `table` is the one that both share."""
        spec = self.spec
        with self.g.scope("encoder"):
            own = self.table() if table is None else table
            return blocks.encoder_states(
                self.embed(source, own, batch, seq),
                spec.layers,
                self.layer(seq),
                mask=self.biased(mask, decodes=False),
                share=spec.share_layers,
                final_norm=spec.final_norm,
            )

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
        longest = length_limit(self.spec)
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
        """The mask over the keys; padding makes an input."""
        parts: list[Mask] = []
        given = self.spec.mask
        if given is None:
            return causal() if self.spec.kind == "decoder" else None
        for part in given:
            if part.kind == "padding":
                keep = self.g.input("attention_mask", "i64", batch, seq, fill=Fill("prefix"))
                parts.append(padding(keep))
            else:
                is_causal = part.kind == "causal"
                parts.append(causal() if is_causal else window(part.left, part.right))
        return reduce(lambda a, b: a & b, parts) if parts else None

    def biased(self, mask: Mask | None, decodes: bool, offset: Dim | None = None) -> Mask | None:
        """The mask of self-attention, with what positions add to the scores of queries that start
        at `offset`."""
        with self.at("positions"):
            added = parts.score_bias(self.spec, decodes, offset)
        return mask if added is None else added if mask is None else mask & added

    def layer(self, length: Dim) -> blocks.Layer:
        """The hyperparameters of a layer, for sequences of that length."""
        if self.turns is None:
            longest = max(n for name, n in self.longest.items() if name != "batch")
            with self.at("positions"):
                self.turns = parts.rotary(self.spec, longest)
        with self.at("positions"):
            rotary = None if self.turns is None else self.turned(self.turns, length)
        places = {
            "attention": self.place("heads", "attention"),
            "ffn": self.place("ffn", "activation", "experts"),
            "norm": self.place("norm"),
        }
        return parts.layer(self.spec, rotary, places)

    def turned(self, tables: blocks.Rotary, length: Dim) -> blocks.Rotary:
        """What turns the heads of a sequence of that length."""
        return tables.rows(length)

    def norm(self, x: Traced, name: str) -> Traced:
        return parts.norm(self.spec)(x, name)

    def embed(self, source: Traced, table: Traced | None, batch: Dim, length: Dim) -> Traced:
        """Tokens, token types and positions, added; then norm and projection where there are."""
        spec, g = self.spec, self.g
        x, size = source, spec.embedding.size or spec.width
        with self.at("vocabulary"):
            if table is not None and spec.vocabulary is not None:
                x = blocks.embedding(
                    source, spec.vocabulary, size, scale=self.scale(size), table=table
                )
        with self.at("embedding"):
            x = self.add_token_types(x, size, batch, length)
        with self.at("positions"):
            x = self.add_positions(x, source, size, length)
        with self.at("embedding"):
            if spec.embedding.norm:
                x = self.norm(x, "embeddings.norm")
            if size != spec.width:
                x = blocks.linear(x, spec.width, name="embeddings.projection")
        return g.label(x, "embeddings")

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
        if positions.kind != "learned":
            return x
        if positions.padding_id is None:
            offset = positions.offset
            rows_ = blocks.learned(length, size, positions=rows, offset=offset, dtype=dtype)
            return _add(x, rows_)
        ids = blocks.positions_of(source, positions.padding_id)
        found = blocks.embedding(ids, rows, size, dtype=dtype, name="embeddings.positions")
        return _add(x, found)

    def finish(self, x: Traced, table: Traced | None, memory: Traced, mask: Mask | None) -> None:
        """Pooler and head, and the outputs; `memory` and its mask are what a pointer points at."""
        spec, g, head = self.spec, self.g, self.spec.head
        pooled = None
        if spec.pooler:
            with self.at("pooler"):
                pooled = blocks.pooler(x)
        with self.at("head"):
            if head is None:
                g.output("last_hidden_state", x)
                if pooled is not None:
                    g.output("pooler_output", pooled)
                return
            if head.kind == "pointer":
                g.output("probabilities", blocks.pointer_head(x, memory, mask=mask))
                return
            if head.kind == "classifier":
                first = blocks.first_token(x) if pooled is None else pooled
                logits = blocks.classifier(first, head.labels or 0, activation=head.activation)
            else:
                logits = self.language_model(x, table)
            g.output("logits", logits)
            if head.probabilities:
                probabilities = cast("Traced", ops.softmax(logits))
                g.output("probabilities", g.label(probabilities, "probabilities"))

    def language_model(self, x: Traced, table: Traced | None) -> Traced:
        """The head of a language model, masked (with a transform before it, and a bias) or not."""
        spec, head = self.spec, self.spec.head
        assert head is not None  # finish() and fits.py see to both
        assert spec.vocabulary is not None
        masked = head.kind == "mlm"
        if masked and head.transform:
            size = (spec.embedding.size or spec.width) if head.tied else spec.width
            x = blocks.vocabulary_transform(
                x,
                size,
                activation=head.activation or spec.activation,
                kind=parts.norm(spec),
                name="lm_head.transform",
            )
        bias = masked if head.bias is None else head.bias
        tied = table if head.tied else None
        return blocks.lm_head(
            x, spec.vocabulary, table=tied, bias=bias, scale=head.scale, softcap=head.softcap
        )


def _add(x: Array, y: Array) -> Traced:
    return cast("Traced", ops.add(x, y))
