"""The NumPy encoder that benchmarks run against, checked with the formulas in float64."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import GELU, assert_within

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def numpy_bert() -> Any:
    return load("numpy_bert")


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def plain_bert(config: Any, w: Any, ids: Any, mask: Any, types: Any) -> Any:
    """Devlin et al. 2018, one sequence and one head at a time, in float64."""

    def norm(x: Any, name: str) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + config.eps) * w[f"{name}.scale"] + w[f"{name}.bias"]

    def linear(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    states = []
    d = config.width // config.heads
    for row in range(len(ids)):
        x = w["tokens"][ids[row]] + w["positions"][: ids.shape[1]] + w["token_types"][types[row]]
        x = norm(x, "norm")
        for i in range(config.layers):
            q, k, v = (linear(x, f"{i}.{name}") for name in "qkv")
            heads = []
            for h in range(config.heads):
                part = slice(h * d, (h + 1) * d)
                e = np.exp(q[:, part] @ k[:, part].T / math.sqrt(d)) * (mask[row] != 0)
                heads.append(e / e.sum(-1, keepdims=True) @ v[:, part])
            x = norm(x + linear(np.concatenate(heads, -1), f"{i}.out"), f"{i}.attention_norm")
            middle = linear(x, f"{i}.up")
            middle = middle * (1 + erf(middle / math.sqrt(2))) / 2
            x = norm(x + linear(middle, f"{i}.down"), f"{i}.ffn_norm")
        states.append(x)
    return np.stack(states)


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 7), (3, 20)])
def test_it_computes_bert(numpy_bert: Any, batch: int, length: int) -> None:
    config = numpy_bert.Config(
        layers=2, width=24, heads=3, ffn=50, vocabulary=40, positions=20, token_types=2
    )
    rng = np.random.default_rng(batch * length)
    weights = {
        name: rng.normal(0, 0.2, shape) + name.endswith("scale")
        for name, shape in numpy_bert.shapes(config).items()
    }
    ids = rng.integers(0, config.vocabulary, (batch, length))
    types = rng.integers(0, 2, (batch, length))
    mask = (rng.random((batch, length)) < 0.7).astype(np.int64)
    mask[:, 0] = 1
    model = numpy_bert.Bert(config, weights)
    for keep in (mask, np.ones_like(mask)):
        expected = plain_bert(config, weights, ids, keep, types)
        found = model(ids, keep, types)
        assert found.dtype == np.float32
        assert_within(found, expected, 8 * GELU)  # two layers, each a sum of 50 of them
        plain = load("numpy_plain").PlainBert(config, weights)(ids, keep, types)
        assert plain.dtype == np.float32
        assert_within(plain, expected, 8 * GELU)
    again = model(ids, mask, types)
    assert not np.array_equal(again, found) or mask.all()  # a mask that hides keys is heeded


def test_outputs_of_earlier_calls_stay(numpy_bert: Any) -> None:
    config = numpy_bert.Config(1, 8, 2, 16, 10, 4, 2)
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 1, s) for name, s in numpy_bert.shapes(config).items()}
    model, mask = numpy_bert.Bert(config, weights), np.ones((1, 4), np.int64)
    first = model(np.full((1, 4), 1), mask)
    kept = first.copy()
    model(np.full((1, 4), 2), mask)
    assert np.array_equal(first, kept)


def test_gelu_is_close_everywhere(numpy_bert: Any) -> None:
    x = np.concatenate([np.linspace(-8, 8, 100_001), [-1e4, -50.0, 50.0, 1e4]]).astype(np.float32)
    wide = x.astype(np.float64)
    expected = wide * np.vectorize(math.erfc)(-wide / math.sqrt(2)) / 2
    numpy_bert.gelu(x)
    assert_within(x, expected, GELU)
