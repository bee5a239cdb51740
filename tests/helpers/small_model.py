"""A small model that uses every kernel a model uses, and its artifact; a process may import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tfgraph
from tfgraph import blocks
from tfgraph.backends.base import Target
from tfgraph.ir import Fill, exact
from tfgraph.ir.mask import causal, padding

if TYPE_CHECKING:
    from pathlib import Path


def small_model() -> tfgraph.Graph:
    """Embeddings, masked and grouped attention, both norms, GELU, a gated feed-forward."""
    with tfgraph.graph("small") as g:
        g.symbol("batch", 1, 64)
        g.symbol("seq", 1, 512, 20)
        ids = g.input("ids", "i64", "batch", "seq", fill=Fill("ids", exact(90)))
        keep = g.input("keep", "i64", "batch", "seq", fill=Fill("prefix"))
        x = blocks.embedding(ids, 90, 32)
        layer = blocks.Layer(heads=4, kv_heads=2, ffn=64, placement="pre", softcap=30)
        x = blocks.decoder(x, 1, layer, mask=causal() & padding(keep))
        g.output("decoded", x)
        x = blocks.encoder(x, 1, blocks.Layer(heads=2, ffn=48, norm="rms_norm", gated=True))
        g.output("hidden", x)
        g.output("logits", blocks.lm_head(x, 90))
    return g.build()


def build_small(folder: Path, name: str = "small.cpu.tfgraph") -> Path:
    """Its artifact, not verified."""
    return tfgraph.build(small_model(), Target("cpu"), folder / name, check=False).artifact
