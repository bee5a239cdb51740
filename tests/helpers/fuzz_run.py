"""How a fuzz test runs: which seeds, in which batches, and what a failure says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from helpers.fuzz_check import Judge
from helpers.fuzz_graphs import Fuzz, random_case
from helpers.fuzz_shrink import failures, save

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED = int(os.environ.get("TFGRAPH_FUZZ_SEED", "0"))
GRAPHS = int(os.environ.get("TFGRAPH_FUZZ_GRAPHS", "500"))
BATCH = 125
"""Graphs that are compiled as one: they share kernels, whose compilation is what takes time."""


def batches(first: int, count: int) -> list[range]:
    """The seeds `first` to `first + count - 1`, a batch each."""
    end = first + count
    return [range(start, min(start + BATCH, end)) for start in range(first, end, BATCH)]


def name_of(seeds: range) -> str:
    """The test's id, which names its seeds."""
    return f"seeds {seeds.start}-{seeds.stop - 1}"


def fuzz(seeds: range, recipes: Sequence[Callable[[Fuzz], None]], backend: str = "cpu") -> None:
    """Fail, with the smallest failing graphs saved, unless the backend is right on all seeds."""
    # Every second batch on one thread: which tasks a thread takes must not matter.
    judge = Judge(backend, threads=1 if seeds.start // BATCH % 2 else None)
    found = failures([random_case(seed, recipes) for seed in seeds], judge)
    for note in judge.notes:
        print("ill-conditioned, and right:", note)
    if found:
        again = f"TFGRAPH_FUZZ_SEED={found[0].seed} TFGRAPH_FUZZ_GRAPHS=1"
        texts = "\n\n".join(save(failure, backend) for failure in found)
        pytest.fail(f"{texts}\nto see it again: {again} pytest tests/fuzz", pytrace=False)
    # Were the second look needed often, the bound would no longer be what is tested.
    assert judge.outputs
    assert judge.sensitive <= 0.05 * judge.outputs + 2, judge.notes
