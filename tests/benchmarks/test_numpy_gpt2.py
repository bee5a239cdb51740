"""The NumPy decoder that benchmarks run against, checked with the formulas in float64."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

FILE = Path(__file__).parents[2] / "benchmarks" / "numpy_gpt2.py"


@pytest.fixture(scope="module")
def numpy_gpt2() -> Any:
    spec = importlib.util.spec_from_file_location("numpy_gpt2", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["numpy_gpt2"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def gpt2(config: Any, w: Any, ids: Any) -> Any:
    """Radford et al. 2019, one head and one query at a time, in float64: the last logits."""

    def norm(x: Any, name: str) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + config.eps) * w[f"{name}.scale"] + w[f"{name}.bias"]

    def linear(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x, d = w["tokens"][ids] + w["positions"][: len(ids)], config.width // config.heads
    for i in range(config.layers):
        normed = norm(x, f"{i}.attention_norm")
        q, k, v = (linear(normed, f"{i}.{name}") for name in "qkv")
        context = np.zeros_like(x)
        for h in range(config.heads):
            part = slice(h * d, (h + 1) * d)
            for row in range(len(ids)):
                e = np.exp(k[: row + 1, part] @ q[row, part] / math.sqrt(d))
                context[row, part] = e / e.sum() @ v[: row + 1, part]
        x = x + linear(context, f"{i}.out")
        y = linear(norm(x, f"{i}.ffn_norm"), f"{i}.up")
        y = y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))) / 2
        x = x + linear(y, f"{i}.down")
    return norm(x[-1], "final_norm") @ w["tokens"].T


@pytest.mark.parametrize("pieces", [(1,), (7,), (4, 1, 1, 3)])
def test_it_computes_gpt2(numpy_gpt2: Any, pieces: tuple[int, ...]) -> None:
    config = numpy_gpt2.Config(
        layers=2, width=24, heads=3, ffn=50, vocabulary=40, positions=20
    )  # fmt: skip
    rng = np.random.default_rng(len(pieces))
    weights = {
        name: rng.normal(0, 0.2, shape) + name.endswith("scale")
        for name, shape in numpy_gpt2.shapes(config).items()
    }
    ids = rng.integers(0, config.vocabulary, sum(pieces))
    model = numpy_gpt2.Gpt2(config, weights)
    for _ in range(2):  # the second time over what the first left in the cache
        model.length = 0
        for end, count in zip(np.cumsum(pieces), pieces, strict=True):
            found = model.feed(ids[end - count : end])
            assert found.dtype == np.float32
            # Products of 24, 50 and a head's 8, and what they are summed with, in each layer.
            assert_close(found, gpt2(config, weights, ids[:end]), length=2 * (4 * 24 + 50 + 16))
