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
MODELS = Path(__file__).parent / "models"
ARTIFACT, WEIGHTS, PROBE = "artifact", "weights.npz", "probe"

# Variables that choose BLAS kernels, or keep Python from caching what it compiles, would make one
# side other than what a user has.
UNSET = ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Workload:
    """A model of `models/` at one batch size and length, its sizes repeated for NumPy's side."""

    model: str
    batch: int
    length: int
    layers: int
    width: int
    heads: int
    ffn: int

    @property
    def name(self) -> str:
        """As the command line and the tables say it: `bert-base-1x128`."""
        return f"{self.model}-{self.batch}x{self.length}"

    @property
    def flops(self) -> int:
        """Operations of the matrix products of one forward pass, a multiply-add as two."""
        rows = self.batch * self.length
        linear = 4 * self.width**2 + 2 * self.width * self.ffn
        return 2 * self.layers * rows * (linear + 2 * self.length * self.width)

    def inputs(self, seed: int = 0) -> dict[str, NDArray]:
        """Inputs without padding, which every side has to compute in full."""
        rng = np.random.default_rng(seed)
        shape = (self.batch, self.length)
        return {
            "input_ids": rng.integers(0, 30522, shape),
            "attention_mask": np.ones(shape, np.int64),
            "token_type_ids": np.zeros(shape, np.int64),
        }


def _workloads() -> dict[str, Workload]:
    bert = {"layers": 12, "width": 768, "heads": 12, "ffn": 3072}
    minilm = {"layers": 6, "width": 384, "heads": 12, "ffn": 1536}
    listed = (
        Workload("bert-base", 1, 128, **bert),
        Workload("minilm", 1, 16, **minilm),
        Workload("minilm", 1, 128, **minilm),
    )
    return {w.name: w for w in listed}


WORKLOADS = _workloads()


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker: as ours, but for what would change what is timed."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept | dict.fromkeys(THREADS, str(threads))


def prepare(model: str, folder: Path) -> None:
    """Compile `models/MODEL.yaml` into `folder`, with the same weights beside it for NumPy."""
    from tfgraph.api import build
    from tfgraph.backends.base import Target
    from tfgraph.model import load_source

    source = load_source(str(MODELS / f"{model}.yaml"))
    arrays = source.load()
    build(source.graph, Target("cpu"), folder / ARTIFACT, weights=arrays, check=False)
    np.savez(folder / WEIGHTS, allow_pickle=False, **{_plain(n): a for n, a in arrays.items()})


def _plain(name: str) -> str:
    """A parameter's name in the graph as numpy_bert.py has it."""
    name = name.removeprefix("embeddings.").removeprefix("layers.")
    return name.replace(".attention.", ".").replace(".ffn.", ".")
