"""The seeds that ran without a difference, kept in seeds.toml: they run again, and still show none.

TFGRAPH_FUZZ_KEPT names the first of a range to run that one alone.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.fuzz.run import run
from tfgraph.runtime.cores import default_threads

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES: list[Mapping[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "seeds.toml").read_text("utf-8")
)["ranges"]
ONLY = os.environ.get("TFGRAPH_FUZZ_KEPT")


@pytest.mark.long
@pytest.mark.parametrize(
    "kept",
    [kept for kept in RANGES if ONLY in (None, str(kept["first"]))],
    ids=lambda kept: f"{','.join(kept['backends'])} {kept['first']}+{kept['graphs']}",
)
def test_seeds_that_ran_clean_still_do(kept: Mapping[str, Any], tmp_path: Path) -> None:
    report = run(
        kept["backends"],
        seconds=None,
        graphs=kept["graphs"],
        seed=kept["first"],
        kernels=kept["kernels"],
        folder=tmp_path,
        jobs=default_threads(),
    )
    assert [(f.seed, f.why, f.text) for f in report.failures] == []
    assert report.graphs == kept["graphs"]
    # Were the second look needed often, the bound would no longer be what is tested.
    assert report.sensitive <= 0.05 * report.outputs + 2, report.notes
