"""Random graphs of ops drawn from their schemas alone: NumPy against the CPU.

TFGRAPH_FUZZ_SEED sets the first seed, TFGRAPH_FUZZ_GRAPHS the number of graphs.
"""

from __future__ import annotations

import pytest
from helpers.fuzz_run import GRAPHS, SEED, batches, fuzz, name_of


@pytest.mark.fuzz
@pytest.mark.parametrize("seeds", batches(SEED, (GRAPHS + 1) // 2), ids=name_of)
def test_schemas(seeds: range) -> None:
    fuzz(seeds, "schemas")
