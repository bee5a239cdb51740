"""Encoder-decoder attention: other lengths, a padded memory, maps that align."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.formulas import KEEP, X, attend, params
from helpers.reference import run_graph
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Layer, Norm, attention
from tfgraph.ir import Graph, Output
from tfgraph.ir.mask import padding
from tfgraph.ops import graph

RNG = np.random.default_rng(5)

SIZE = 6


def cross(heads: int = 1, dtype: str = "f32") -> Graph:
    """Attention of a target to a source of another length, which is padded; with its maps."""
    with graph("g") as g:
        x = g.input("x", dtype, "batch", "target", SIZE)
        memory, keep = (
            g.input("memory", dtype, "batch", "seq", SIZE),
            g.input("keep", "i64", "batch", "seq"),
        )
        g.output("y", attention(x, memory, memory, heads=heads, mask=padding(keep)))
    made = g.build()
    maps = [v for v in made.values() if v.name == "attention.probabilities"]
    return replace(made, outputs=(*made.outputs, *(Output("maps", v) for v in maps)))


MEMORY = RNG.standard_normal((2, 5, SIZE)).astype(np.float32)
TARGET = RNG.standard_normal((2, 3, SIZE)).astype(np.float32)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_memory_of_another_length_with_padding_of_its_own(backend: str) -> None:
    made = cross(heads=2)
    p = params(made, "float32")
    run = tfgraph.compile(made, backend, weights=p)
    wide = {name: w.astype(np.float64) for name, w in p.items()}
    want = attend(wide, "attention", TARGET, MEMORY, 2, 2, lambda b, i, j: KEEP[b, j])
    got = run(x=TARGET, memory=MEMORY, keep=KEEP)
    assert_close(got["y"], want, length=100)
    assert got["maps"].shape == (2, 2, 3, 5)
    strange = np.where(KEEP[..., None] == 1, MEMORY, np.nan).astype(np.float32)
    again = run(x=TARGET, memory=strange, keep=KEEP)
    np.testing.assert_array_equal(again["y"], got["y"])


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_its_maps_align_source_and_target(backend: str) -> None:
    """Weights that compare words: each word of the target looks at where it stands in the source,
    whatever the order, and at nothing else."""
    eye = np.eye(SIZE, dtype=np.float32)
    made = cross()
    p = {name: np.zeros_like(w) for name, w in params(made, "float32").items()}
    p |= {f"attention.{part}.weight": eye for part in ("k", "v", "out")}
    p["attention.q.weight"] = 40 * eye
    run = tfgraph.compile(made, backend, weights=p)
    source = np.array([[2, 0, 5, 3, 1], [4, 1, 2, 0, 0]])
    keep = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    target = np.array([[1, 2, 3], [2, 4, 1]])
    found = run(x=eye[target], memory=eye[source], keep=keep)
    want = (target[:, :, None] == source[:, None, :]) & (keep[:, None, :] == 1)
    assert_close(found["maps"][:, 0], want.astype(np.float64), length=64)
    assert_close(found["y"], eye[target].astype(np.float64), length=64)


@pytest.mark.parametrize("over", ["head", "own", "width"])
def test_projected_memory_is_what_layers_make_of_it(over: str) -> None:
    """Layers that differ, each with a norm of Q and K: the same parameters, the same values."""
    layers = [
        Layer(heads=4, kv_heads=2, qk_norm=Norm("rms_norm"), qk_norm_over=over, key_bias=False),
        Layer(heads=2, head_size=4, value_size=5, qk_norm=Norm("layer_norm"), qk_norm_over=over),
    ]

    def decoder(projected: bool) -> Graph:
        with graph("g") as g:
            x = g.input("x", "f64", "batch", "seq", 12)
            memory = g.input("memory", "f64", "batch", "source", 12)
            made = blocks.project_memory(memory, 2, layers) if projected else memory
            g.output("y", blocks.decoder_states(x, 2, layers, memory=made)[-1])
        return g.build()

    whole, apart = decoder(projected=False), decoder(projected=True)
    weights = params(whole)
    assert set(weights) == set(params(apart))
    assert "layers.1.cross_attention.k_norm.scale" in weights
    given = weights | {"x": X, "memory": RNG.standard_normal((2, 7, 12))}
    assert run_graph(apart, given)["y"].tobytes() == run_graph(whole, given)["y"].tobytes()
