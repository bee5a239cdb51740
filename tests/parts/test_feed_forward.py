"""Feed-forward: without an activation one linear layer; shares of the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.formulas import (
    X,
    built,
    linear,
    params,
    result,
)
from helpers.part_graphs import WEIGHTS
from helpers.part_graphs import X as INPUT
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Layer

RNG = np.random.default_rng(5)


def test_no_activation_is_one_linear() -> None:
    g = built(lambda x: blocks.feed_forward(x, 30, activation="none", bias=False))
    p = params(g)
    assert_close(result(g, p), X @ (p["ffn.up.weight"] @ p["ffn.down.weight"]), length=60)


def test_no_activation_is_one_linear_layer(run: Any) -> None:
    up, down = (WEIGHTS[f"none.{part}.weight"].astype(np.float64) for part in ("up", "down"))
    assert_close(run()["no activation"], INPUT @ (up @ down), length=64)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_768_to_3072_and_back(backend: str) -> None:
    g = built(lambda x: blocks.feed_forward(x, 3072, activation="relu"), "f32", 768)
    p = params(g, "float32")
    x = RNG.standard_normal((1, 7, 768)).astype(np.float32)
    wide = {name: w.astype(np.float64) for name, w in p.items()}
    want = linear(wide, "ffn.down", np.maximum(linear(wide, "ffn.up", x.astype(np.float64)), 0))
    got = tfgraph.compile(g, backend, weights=p)(x=x)["y"]
    assert_close(got, want, length=4000)


@pytest.mark.parametrize(("width", "heads"), [(768, 12), (512, 8)])
def test_about_two_thirds_of_a_block_are_in_it(width: int, heads: int) -> None:
    g = built(lambda x: blocks.encoder_layer(x, Layer(heads=heads)), "f32", width)
    sizes = {p.value.name: np.prod([int(d) for d in p.value.type.shape]) for p in g.params}
    own = sum(n for name, n in sizes.items() if name.startswith("layer.ffn."))
    assert own == 2 * 4 * width * width + 5 * width
    assert sum(sizes.values()) == own + 4 * width * (width + 1) + 4 * width
    assert abs(own / sum(sizes.values()) - 2 / 3) < 0.002
