"""Every mask of a model file, against a plain float64 formula on NumPy and on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph.model import Model, read_model

if TYPE_CHECKING:
    from pathlib import Path

NDArray = np.ndarray[Any, Any]
BATCH, SEQ, HEADS, SIZE = 2, 7, 2, 4
RNG = np.random.default_rng(3)
X = RNG.standard_normal((BATCH, SEQ, HEADS * SIZE)).astype(np.float32)
KEEP = np.array([[1] * 7, [1] * 5 + [0] * 2])
PREFIX, SEGMENTS = np.array([3, 1]), np.array([[0, 0, 0, 1, 1, 1, 1], [5, 5, 2, 2, 2, 7, 7]])
ALLOWED = RNG.random((BATCH, 1, SEQ, SEQ)) < 0.6
ALLOWED[1, 0, 2] = False  # a query that sees nothing
BIAS = RNG.standard_normal((BATCH, HEADS, SEQ, SEQ)).astype(np.float32)
INPUTS = {
    "attention_mask": KEEP,
    "prefix_length": PREFIX,
    "segment_ids": SEGMENTS,
    "allowed": ALLOWED,
    "attention_bias": BIAS,
}
SMALL = f"layers: 1\nwidth: {HEADS * SIZE}\nheads: {HEADS}\nffn: 12\nactivation: relu\nnorm: none\n"

Q, K = np.arange(SEQ)[:, None], np.arange(SEQ)[None, :]
SEEN: dict[str, NDArray] = {  # each broadcasts to [batch, heads, query, key]
    "padding": KEEP[:, None, None, :] == 1,
    "causal": K <= Q,
    "prefix": (PREFIX[:, None, None, None] > K) | (K <= Q),
    "segments": (SEGMENTS[:, :, None] == SEGMENTS[:, None, :])[:, None],
    "dense": ALLOWED,
    "bias": np.ones((SEQ, SEQ), bool),
    "{kind: window, left: 2, right: 1}": (Q - 2 <= K) & (Q + 1 >= K),
}
MASKS = [
    *((kind,) for kind in SEEN),
    ("causal", "segments"),
    ("padding", "prefix"),
    ("dense", "bias", "padding"),
    ("segments", "{kind: window, left: 2, right: 1}", "bias"),
]


def read(tmp_path: Path, text: str) -> Model:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    return read_model(path)


def run(made: Model, backend: str, **more: NDArray) -> dict[str, NDArray]:
    given = {**INPUTS, **more}
    inputs = {i.value.name: given[i.value.name] for i in made.graph.inputs}
    with tfgraph.compile(made.graph, backend, weights=made.weights) as model:
        return model(**inputs)


def linear(p: dict[str, NDArray], name: str, x: NDArray) -> NDArray:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def layer(p: dict[str, NDArray], x: NDArray, seen: NDArray, bias: NDArray | float) -> NDArray:
    """One layer without norms: x + attention, and the feed-forward network of it added."""

    def split(part: str) -> NDArray:
        y = linear(p, f"attention.{part}", x)
        return y.reshape(BATCH, SEQ, HEADS, SIZE).transpose(0, 2, 1, 3)

    q, k, v = (split(part) for part in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(SIZE) + bias
    weights = np.exp(scores) * seen
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    context = (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    x = x + linear(p, "attention.out", context)
    return x + linear(p, "ffn.down", np.maximum(linear(p, "ffn.up", x), 0))


def parameters(made: Model, scope: str = "layers.0") -> dict[str, NDArray]:
    start = scope + "."
    found = {n: w.astype(np.float64) for n, w in made.load().items() if n.startswith(start)}
    return {name.removeprefix(start): w for name, w in found.items()}


@pytest.mark.parametrize("masks", MASKS, ids=" ".join)
def test_masks_are_what_the_formula_says(tmp_path: Path, masks: tuple[str, ...]) -> None:
    made = read(tmp_path, SMALL + f"mask: [{', '.join(masks)}]\n")
    seen = np.ones((BATCH, HEADS, SEQ, SEQ), bool)
    for mask in masks:
        seen = seen & SEEN[mask]
    want = layer(parameters(made), X, seen, BIAS if "bias" in masks else 0.0)
    for backend in ("numpy", "cpu"):
        assert_close(run(made, backend, x=X)["last_hidden_state"], want, length=64)


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_name_alone_is_a_list_of_it(tmp_path: Path, kind: str) -> None:
    one = read(tmp_path, f"kind: {kind}\nmask: prefix\n" + SMALL)
    many = read(tmp_path, f"kind: {kind}\nmask: [{{kind: prefix}}]\n" + SMALL)
    assert one.graph == many.graph
    (node,) = [n for n in one.graph.nodes if n.op == "mask"]
    assert str(node.operands[1]) == "prefix(%prefix_length)"


TWO = "kind: encoder-decoder\nvocabulary: 11\n"


@pytest.mark.parametrize("mask", ["{kind: window, left: 2, right: 1}", "segments", "dense", "bias"])
def test_the_encoder_of_two_stacks_has_the_mask_and_the_decoder_its_padding(
    tmp_path: Path, mask: str
) -> None:
    made = read(tmp_path, TWO + SMALL + f"mask: [padding, {mask}]\n")
    ids, target = RNG.integers(0, 11, (BATCH, SEQ)), RNG.integers(0, 11, (BATCH, 3))
    x = made.load()["embeddings.tokens"].astype(np.float64)[ids]
    seen = SEEN["padding"] & SEEN[mask]
    want = layer(parameters(made, "encoder.layers.0"), x, seen, BIAS if mask == "bias" else 0.0)
    given = {i.value.name: INPUTS.get(i.value.name, target) for i in made.graph.inputs}
    given["input_ids"] = ids
    for backend in ("numpy", "cpu"):
        with tfgraph.compile(made.graph, backend, weights=made.weights) as model:
            got = model(**given)
            assert_close(got["encoder_last_hidden_state"], want, length=64)
            # Every query of the decoder sees every token that is no padding, however far.
            for at in (0, 4, 6):
                other = ids.copy()
                other[:, at] = (other[:, at] + 1) % 11
                new = model(**given | {"input_ids": other})
                changed = (new["last_hidden_state"] != got["last_hidden_state"]).any(-1)
                np.testing.assert_array_equal(changed, KEEP[:, [at]] == np.ones((1, 3)))


@pytest.mark.parametrize("mask", ["prefix", "segments", "dense", "bias"])
def test_masks_that_take_an_input_do_not_generate(tmp_path: Path, mask: str) -> None:
    for kind, other in (("decoder", "causal"), ("encoder-decoder", "padding")):
        text = f"kind: {kind}\nvocabulary: 11\nhead: lm\n" + SMALL
        made = [read(tmp_path, text + f"mask: [{other}{more}]\n") for more in ("", f", {mask}")]
        assert made[0].functions
        assert not made[1].functions
