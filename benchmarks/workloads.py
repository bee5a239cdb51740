"""What is timed: models, sizes, inputs, and the folder of files that the sides are given.

May import: tfgraph, and only inside `prepare`, so that a worker loads nothing it does not time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]
MODELS = Path(__file__).parent.parent / "examples"
ARTIFACT, WEIGHTS = "artifact", "weights.npz"

# Variables that choose BLAS kernels, or keep Python from caching what it compiles, would make one
# side other than what a user has.
UNSET = ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Workload:
    """A model of `examples/` at one batch size and length, its sizes repeated for NumPy's side.

    `task`: "forward", the whole model; "prefill", the next token's logits after a prompt of that
    length; "decode", those after one more token behind it.
    """

    model: str
    batch: int
    length: int
    layers: int
    width: int
    heads: int
    ffn: int
    vocabulary: int = 30522
    task: str = "forward"

    @property
    def name(self) -> str:
        """As the command line and the tables say it: `bert-base-1x128`, `gpt2-decode-128`."""
        if self.task == "forward":
            return f"{self.model}-{self.batch}x{self.length}"
        return f"{self.model}-{self.task}-{self.length}"

    @property
    def flops(self) -> int:
        """Operations of the matrix products of one pass, a multiply-add as two. Of causal attention
        the half that is seen."""
        rows = self.batch * self.length
        if self.task == "forward":
            return 2 * self.layers * rows * (self._linear + 2 * self.length * self.width)
        head = 2 * self.batch * self.vocabulary * self.width
        return 2 * self.layers * rows * (self._linear + (self.length + 1) * self.width) + head

    @property
    def weight_bytes(self) -> int:
        """Of the matrices that one pass reads."""
        head = 0 if self.task == "forward" else self.vocabulary * self.width
        return 4 * (self.layers * self._linear + head)

    @property
    def is_bound_by_memory(self) -> bool:
        """Whether reading the weights takes longer than all products."""
        return self.task == "decode"

    @property
    def _linear(self) -> int:
        """Elements of a layer's matrices."""
        return 4 * self.width**2 + 2 * self.width * self.ffn

    def inputs(self, seed: int = 0) -> dict[str, NDArray]:
        """Inputs without padding, which every side has to compute in full."""
        rng = np.random.default_rng(seed)
        shape = (self.batch, self.length)
        ids = {"input_ids": rng.integers(0, self.vocabulary, shape)}
        if self.task != "forward":
            return ids
        return ids | {
            "attention_mask": np.ones(shape, np.int64),
            "token_type_ids": np.zeros(shape, np.int64),
        }


def _workloads() -> dict[str, Workload]:
    bert: dict[str, Any] = {"layers": 12, "width": 768, "heads": 12, "ffn": 3072}
    minilm: dict[str, Any] = {"layers": 6, "width": 384, "heads": 12, "ffn": 1536}
    listed = (
        Workload("bert-base", 1, 128, **bert),
        Workload("minilm", 1, 16, **minilm),
        Workload("minilm", 1, 128, **minilm),
        Workload("gpt2", 1, 128, **bert, vocabulary=50257, task="prefill"),
        Workload("gpt2", 1, 128, **bert, vocabulary=50257, task="decode"),
    )
    return {w.name: w for w in listed}


WORKLOADS = _workloads()


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker: as ours, but for what would change what is timed."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept | dict.fromkeys(THREADS, str(threads))


def prepare(model: str, folder: Path) -> None:
    """Compile `examples/MODEL.yaml` into `folder`, with the same weights beside it for NumPy."""
    from tfgraph.api import build
    from tfgraph.model import load_source

    path = MODELS / f"{model}.yaml"
    arrays = load_source(str(path)).load()
    build(path, "cpu", folder / ARTIFACT, check=False)
    np.savez(folder / WEIGHTS, allow_pickle=False, **{_plain(n): a for n, a in arrays.items()})


def _plain(name: str) -> str:
    """A parameter's name in the graph as numpy_bert.py has it."""
    name = name.removeprefix("embeddings.").removeprefix("layers.")
    return name.replace(".attention.", ".").replace(".ffn.", ".")
