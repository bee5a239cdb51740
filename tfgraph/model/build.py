"""From the hyperparameters of a model file to its graph, through `tfgraph.blocks`.

Names of inputs and outputs are those of Hugging Face. May import: schema, read, inputs, derived,
parts, blocks, ops, ir, errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from tfgraph import blocks, ops
from tfgraph.ir import DType, Exact, Graph, rsqrt
from tfgraph.ir.mask import causal, padding, window
from tfgraph.model import parts
from tfgraph.model.derived import encoder_of, head_size_of
from tfgraph.model.inputs import Inputs

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Mask
    from tfgraph.model.read import Document
    from tfgraph.model.schema import Head, HighLevel, Pooler, Positions
    from tfgraph.ops import Array, Traced


def build_graph(spec: HighLevel, document: Document, name: str) -> Graph:
    """The graph of a high-level model, each node with its place in the file."""
    with ops.graph(name) as builder:
        model = Assembly(spec, document, builder)
        with model.at("layers"):
            model.encoder_decoder() if spec.kind == "encoder-decoder" else model.stack()
    return builder.build()


@dataclass
class Assembly(Inputs):
    """Builds the stacks of a model, and what stands on top."""

    def stack(self) -> None:
        """An encoder, or a decoder without memory."""
        spec, g = self.spec, self.g
        batch, seq = self.size("batch"), self.length()
        source = self.source(batch, seq)
        mask = self.mask(batch, seq)
        table = self.table()
        x = self.embed(source, table, batch, seq)
        decodes = spec.kind == "decoder"
        layers, masks = self.layers(seq), self.masks(self.biased(mask, decodes))
        share, last = spec.share_layers, self.final_norm
        if decodes:
            states = blocks.decoder_states(
                x, spec.layers, layers, mask=masks, share=share, final_norm=last
            )
        else:
            states = blocks.encoder_states(
                x,
                spec.layers,
                layers,
                mask=masks,
                share=share,
                final_norm=last,
                beside_first=self.convolved if spec.convolution else None,
            )
        top = self.top(states[-1])
        self.finish(top, table, top, mask if spec.mask else None, source)
        if spec.hidden_states:
            shown = states if spec.final_norm == "above" else [*states[:-1], top]
            for i, state in enumerate(shown):
                g.output(f"hidden.{i}", state)

    def encoder_decoder(self) -> None:
        """An encoder, and a decoder that attends to its output. Vaswani et al. 2017."""
        spec, g = self.spec, self.g
        batch, seq = self.size("batch"), self.length()
        target = seq if spec.decoder_start is not None else self.size("target")
        source = self.source(batch, seq)
        mask, real = self.mask(batch, seq), self.padding(batch, seq)
        if spec.decoder_start is not None:
            with self.at("decoder_start"):
                begun = blocks.shift_right(source, spec.decoder_start)
        elif spec.vocabulary is not None:
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
                self.layers(target),
                mask=self.biased(causal(), decodes=True),
                memory=encoded[-1],
                memory_mask=real,
                share=spec.share_layers,
                final_norm=self.final_norm,
            )
        ids = begun if spec.decoder_start is None else source
        self.finish(decoded[-1], own, encoded[-1], real, ids)
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
        encoder = replace(self, spec=encoder_of(self.spec), part="encoder")
        spec = encoder.spec
        with self.g.scope("encoder"):
            own = encoder.table() if table is None and spec.stem is None else table
            return blocks.encoder_states(
                encoder.embed(source, own, batch, seq),
                spec.layers,
                encoder.layers(seq),
                mask=encoder.biased(mask, decodes=False),
                share=spec.share_layers,
                final_norm=self.final_norm,
            )

    def convolved(self, x: Array, y: Array) -> Traced:
        """norm(y + activation(convolution(x))), of what the first layer takes and makes; padding
        counts as zeros. He et al. 2020 (DeBERTa v2), as in the implementation."""
        spec = self.spec
        assert spec.convolution is not None
        with self.at("convolution"):
            if self.keep is not None:
                real = ops.reshape(self.keep, shape=(*self.keep.shape, 1))
                zero = ops.full(shape=(), value=0, dtype=x.dtype)
                x = ops.where(ops.cast(real, dtype=DType.bool_), x, zero)
            near = ops.activation(spec.convolution)(blocks.convolution(x, spec.width))
            return self.norm(cast("Traced", ops.add(y, near)), "convolution.norm")

    def biased(self, mask: Mask | None, decodes: bool, offset: Dim | None = None) -> Mask | None:
        """The mask of self-attention, with what positions add to the scores of queries that start
        at `offset`."""
        with self.at("positions"):
            added = parts.score_bias(self.spec, decodes, offset)
        return mask if added is None else added if mask is None else mask & added

    def masks(self, mask: Mask | None, offset: Dim | None = None) -> list[Mask | None]:
        """The mask of each layer: the local ones have a window besides."""
        local = self.spec.local
        if local is None or (local.left is None and local.right is None):
            return [mask] * self.spec.layers
        near = window(local.left, local.right, offset)
        narrow = near if mask is None else mask & near
        return [narrow if is_local else mask for is_local in parts.local_layers(self.spec)]

    def layers(self, length: Dim) -> list[blocks.Layer]:
        """The hyperparameters of each layer, for sequences of that length."""
        spec, local = self.spec, self.spec.local
        full = self.layer(length, spec.positions, "positions")
        near = full
        if local is not None and local.positions is not None:
            near = self.layer(length, local.positions, "local_positions")
        chosen = [near if is_local else full for is_local in parts.local_layers(spec)]
        if spec.attention.scale_by_layer:
            scale = parts.scale(spec) or rsqrt(head_size_of(spec))
            by_number = [scale * Exact(Fraction(1, i + 1)) for i in range(spec.layers)]
            chosen = [replace(c, scale=s) for c, s in zip(chosen, by_number, strict=True)]
        if not spec.norm.first:
            chosen[0] = replace(chosen[0], attention_normed=False)
        return chosen

    def layer(self, length: Dim, positions: Positions, key: str) -> blocks.Layer:
        """The hyperparameters of a layer with such positions, whose tables are kept by the key."""
        given = self.spec.encoder
        own = self.part if given is not None and given.positions is not None else ""
        longest = max(n for name, n in self.longest.items() if name != "batch")
        with self.at("local" if key == "local_positions" else "positions"):
            if (own + key) not in self.tables:
                turns = parts.rotary(self.spec, positions, longest, key)
                self.tables[own + key] = turns, parts.distances(self.spec, longest)
            turns, distances = self.tables[own + key]
            rotary = None if turns is None else self.turned(turns, length)
        places = {
            "attention": self.place("heads", "attention"),
            "ffn": self.place("ffn", "activation", "experts"),
            "norm": self.place("norm"),
        }
        return parts.layer(self.spec, rotary, places, distances)

    def turned(self, tables: blocks.Rotary, length: Dim) -> blocks.Rotary:
        """What turns the heads of a sequence of that length."""
        return tables.rows(length)

    @property
    def final_norm(self) -> bool | None:
        """Whether the last state is normed; None for the usual."""
        given = self.spec.final_norm
        return None if given is None else given is True

    def top(self, x: Traced) -> Traced:
        """What the head takes: the last state, normed if that is `above` it, and in the size of the
        embedding where the model has it so (OPT)."""
        given = self.spec.embedding
        if self.spec.final_norm == "above":
            with self.at("norm", "final_norm"):
                x = self.norm(x, "final_norm")
        if not given.project_back:
            return x
        size = given.size or self.spec.width
        with self.at("embedding"):
            return blocks.linear(x, size, bias=given.projection_bias, name="projection_back")

    def pooled(self, x: Traced, ids: Traced) -> Traced | None:
        """The vector of the sequence of these `ids`, where the model makes one."""
        pooler = self.spec.pooler
        if pooler is None:
            return None
        if pooler.kind == "first":
            y = blocks.pooler(x, activation=pooler.activation)
        elif pooler.kind == "end":
            y = self.g.label(blocks.end_token(x, ids, pooler.token), "pooler")
        elif pooler.kind == "mean":
            shown = None if self.keep is None else padding(self.keep)
            y = self.g.label(blocks.mean_token(x, shown), "pooler")
        else:
            y = self.g.label(blocks.last_token(x, self.counted(ids, pooler)), "pooler")
        if pooler.projection is not None:
            y = blocks.linear(y, pooler.projection, bias=False, name="pooler.projection")
        return y

    def counted(self, ids: Traced, pooler: Pooler) -> Traced | None:
        """Which tokens may be the last one; None for all."""
        if pooler.token is not None:
            return cast("Traced", ops.equal(ids, pooler.token))
        if pooler.padding_id is not None:
            return cast("Traced", ops.logical_not(ops.equal(ids, pooler.padding_id)))
        return self.keep if self.spec.kind != "encoder-decoder" else None

    def finish(
        self, x: Traced, table: Traced | None, memory: Traced, mask: Mask | None, ids: Traced
    ) -> None:
        """Pooler and head, and the outputs; `memory` and its mask are what a pointer points at."""
        spec, g, head = self.spec, self.g, self.spec.head
        with self.at("pooler"):
            pooled = self.pooled(x, ids)
        with self.at("head"):
            if head is None:
                g.output("last_hidden_state", x)
                if pooled is not None:
                    projected = spec.pooler is not None and spec.pooler.projection is not None
                    g.output("text_embeds" if projected else "pooler_output", pooled)
                return
            if head.kind == "pointer":
                g.output("probabilities", blocks.pointer_head(x, memory, mask=mask))
                return
            if head.kind == "classifier":
                first = blocks.first_token(x) if pooled is None else pooled
                logits = self.classified(first, head, head.labels or 0)
            elif head.kind == "token_classifier":
                logits = self.classified(x, head, head.labels or 0)
            elif head.kind == "span":
                start, end = blocks.span_ends(self.classified(x, head, 2))
                g.output("start_logits", g.label(start, "start_logits"))
                g.output("end_logits", g.label(end, "end_logits"))
                return
            elif head.kind == "detector":
                logits = blocks.classifier(x, 1, activation=head.activation or spec.activation)
                logits = cast("Traced", ops.reshape(logits, shape=x.shape[:-1]))
            else:
                logits = self.language_model(x, table)
                if pooled is not None and head.labels is not None:
                    g.output("prediction_logits", logits)
                    g.output("seq_relationship_logits", blocks.classifier(pooled, head.labels))
                    return
            g.output("logits", logits)
            if head.probabilities:
                probabilities = cast("Traced", ops.softmax(logits))
                g.output("probabilities", g.label(probabilities, "probabilities"))

    def classified(self, x: Traced, head: Head, labels: int) -> Traced:
        """Logits of classes, of each vector of x."""
        activation = head.activation
        if head.transform:
            x, activation = self.transformed(x, head, self.spec.width, "classifier"), None
        bias = head.bias is not False
        return blocks.classifier(x, labels, activation=activation, bias=bias)

    def transformed(self, x: Traced, head: Head, size: int, name: str) -> Traced:
        """norm(activation(linear(x))), which stands before some heads."""
        return blocks.vocabulary_transform(
            x,
            size,
            bias=head.transform_bias,
            activation=head.activation or self.spec.activation,
            kind=parts.norm(self.spec),
            name=f"{name}.transform",
        )

    def language_model(self, x: Traced, table: Traced | None) -> Traced:
        """The head of a language model, masked (with a transform before it, and a bias) or not."""
        spec, head = self.spec, self.spec.head
        assert head is not None  # finish() and fits.py see to both
        assert spec.vocabulary is not None
        masked = head.kind == "mlm"
        if masked and head.transform is not False:
            x = self.transformed(x, head, spec.embedding.size or spec.width, "lm_head")
        bias = masked if head.bias is None else head.bias
        tied = table if head.tied else None
        return blocks.lm_head(
            x, spec.vocabulary, table=tied, bias=bias, scale=head.scale, softcap=head.softcap
        )
