"""How a fuzz test runs: which seeds, in which batches, and what a failure says."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tfgraph.fuzz import Judge, failures, random_case, save
from tfgraph.fuzz.batch import points
from tfgraph.fuzz.swarm import FAMILY

SEED = int(os.environ.get("TFGRAPH_FUZZ_SEED", "0"))
BATCH = 5 * FAMILY
GRAPHS = int(os.environ.get("TFGRAPH_FUZZ_GRAPHS", "100"))


def batches(first: int, count: int) -> list[range]:
    """The seeds `first` to `first + count - 1`, a batch each."""
    end = first + count
    return [range(start, min(start + BATCH, end)) for start in range(first, end, BATCH)]


def name_of(seeds: range) -> str:
    """The test's id, which names its seeds."""
    return f"seeds {seeds.start}-{seeds.stop - 1}"


def fuzz(seeds: range, kind: str | None = None, backend: str = "cpu") -> None:
    """Fail, with the smallest failing graphs saved, unless the backend is right on all seeds."""
    # Every second batch on one thread: which tasks a thread takes must not matter.
    judge = Judge(backend, threads=1 if seeds.start // BATCH % 2 else None)
    cases = [random_case(seed, kind=kind) for seed in seeds]
    found = failures(cases, judge, points(seeds.start))
    for note in judge.notes:
        print("ill-conditioned, and right:", note)
    if found:
        folder = Path(tempfile.mkdtemp(prefix="tfgraph-fuzz-"))
        saved = [save(failure, judge, folder) for failure in found]
        texts = [f"seed {s.seed}: {s.output}: {s.why}\n{s.replay}\n{s.text}" for s in saved]
        again = f"TFGRAPH_FUZZ_SEED={found[0].seed} TFGRAPH_FUZZ_GRAPHS=1"
        told = "\n\n".join(texts)
        pytest.fail(f"{told}\nto see it again: {again} pytest tests/fuzz", pytrace=False)
    # Were the second look needed often, the bound would no longer be what is tested.
    assert judge.outputs
    assert judge.sensitive <= 0.05 * judge.outputs + 2, judge.notes
