"""One artifact for all sizes gives the bits of one that was compiled for exactly these sizes; and
every size may be 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks, ops
from tfgraph.ir import Fill, exact
from tfgraph.ir.mask import causal, padding

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.backends.base import Executable

NDArray = np.ndarray[Any, Any]
Size = int | str


def encoder(batch: Size, seq: Size) -> tfgraph.Graph:
    """Post-norm, with padding."""
    with tfgraph.graph("encoder") as g:
        ids = g.input("ids", "i64", batch, seq, fill=Fill("ids", exact(90)))
        keep = g.input("keep", "i64", batch, seq, fill=Fill("prefix"))
        layer = blocks.Layer(heads=4, ffn=72)
        g.output("y", blocks.encoder(blocks.embedding(ids, 90, 32), 1, layer, mask=padding(keep)))
    return g.build()


def decoder(batch: Size, seq: Size) -> tfgraph.Graph:
    """Pre-norm, causal, grouped heads, a gated feed-forward, logits."""
    with tfgraph.graph("decoder") as g:
        ids = g.input("ids", "i64", batch, seq, fill=Fill("ids", exact(50)))
        layer = blocks.Layer(
            heads=4, kv_heads=2, ffn=40, placement="pre", norm="rms_norm", gated=True
        )
        x = blocks.decoder(blocks.embedding(ids, 50, 24), 1, layer, mask=causal())
        g.output("y", blocks.lm_head(x, 50))
    return g.build()


def unfused(batch: Size, seq: Size) -> tfgraph.Graph:
    """Attention of plain ops, by the kernels of matmul, mask and softmax."""
    with tfgraph.graph("unfused") as g:
        x = g.input("x", "f32", batch, seq, 40)
        keys = ops.transpose(x, perm=(0, 2, 1))
        weights = ops.softmax(ops.mask(ops.mul(ops.matmul(x, keys), exact(0.25)), causal()))
        g.output("y", ops.add(ops.matmul(weights, x), x))
    return g.build()


def normed_over_positions(batch: Size, seq: Size) -> tfgraph.Graph:
    """Norms and softmax over the size that changes."""
    with tfgraph.graph("normed_over_positions") as g:
        x = ops.transpose(g.input("x", "f32", batch, seq, 8), perm=(0, 2, 1))
        g.output("layer", ops.layer_norm(x))
        g.output("rms", ops.rms_norm(x))
        g.output("both", ops.layer_norm(ops.add(x, ops.softmax(x))))
    return g.build()


BUILDERS = [encoder, decoder, unfused, normed_over_positions]


def compiled(build: Callable[[Size, Size], tfgraph.Graph], *sizes: Size) -> Executable:
    graph = build(*sizes)
    if build is unfused:
        return tfgraph.compile(graph, "cpu", passes="dce")
    return tfgraph.compile(graph, "cpu")


def compare(build: Callable[[Size, Size], tfgraph.Graph], sizes: list[tuple[int, int]]) -> None:
    with compiled(build, "batch", "seq") as any_size:
        for batch, seq in sizes:
            with compiled(build, batch, seq) as one_size:
                inputs = any_size.example({"batch": batch, "seq": seq}, seed=seq)
                want, got = one_size(**inputs), any_size(**inputs)
                for name in want:
                    assert want[name].tobytes() == got[name].tobytes(), (name, batch, seq)


@pytest.mark.parametrize("build", BUILDERS)
def test_the_bits_of_exact_sizes(build: Callable[[Size, Size], tfgraph.Graph]) -> None:
    compare(build, [(1, 1), (2, 65)])


@pytest.mark.long
@pytest.mark.parametrize("build", BUILDERS)
def test_the_bits_of_more_exact_sizes(build: Callable[[Size, Size], tfgraph.Graph]) -> None:
    compare(build, [(2, 1), (1, 2), (3, 7), (1, 63), (2, 64), (1, 65), (2, 129), (9, 3)])


@pytest.mark.parametrize("batch", [1, "batch"])
def test_every_size_may_be_one(batch: Size) -> None:
    """Of the widths of the model, too: one head of one feature, a vocabulary of one word."""
    with tfgraph.graph("tiny") as g:
        ids = g.input("ids", "i64", batch, batch if batch == 1 else "seq", fill=Fill("zeros"))
        keep = g.input("keep", "i64", batch, batch if batch == 1 else "seq", fill=Fill("ones"))
        x = blocks.embedding(ids, 1, 1)
        layer = blocks.Layer(heads=1, ffn=1)
        x = blocks.encoder(x, 1, layer, mask=padding(keep) & causal())
        g.output("x", x)
        g.output("y", blocks.lm_head(ops.add(x, 1), 1))
    graph = g.build()
    with tfgraph.compile(graph, "cpu") as model:
        reference = tfgraph.compile(graph, "numpy")
        for seq in (1,) if batch == 1 else (1, 2, 65):
            sizes = {} if batch == 1 else {"batch": 1, "seq": seq}
            inputs = model.example(sizes)
            want, got = reference(**inputs), model(**inputs)
            assert got["y"].shape == (1, seq, 1)
            for name, value in want.items():
                assert_close(got[name], value, length=32, scale=1.0, name=name)
