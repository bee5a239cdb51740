"""Random graphs with a Transformer's blocks, and whole small models: NumPy against the CPU.

TFGRAPH_FUZZ_SEED sets the first seed, TFGRAPH_FUZZ_GRAPHS the number of graphs.
"""

from __future__ import annotations

import pytest
from helpers.fuzz_run import GRAPHS, SEED, batches, fuzz, name_of


@pytest.mark.fuzz
@pytest.mark.parametrize("seeds", batches(SEED, (GRAPHS + 1) // 2), ids=name_of)
def test_blocks(seeds: range) -> None:
    fuzz(seeds, "blocks")


@pytest.mark.fuzz
@pytest.mark.parametrize("seeds", batches(SEED, (GRAPHS + 49) // 50), ids=name_of)
def test_models(seeds: range) -> None:
    fuzz(seeds, "models")


@pytest.mark.long
@pytest.mark.parametrize("seeds", batches(SEED, 20_000), ids=name_of)
def test_many_graphs(seeds: range) -> None:
    fuzz(seeds)
