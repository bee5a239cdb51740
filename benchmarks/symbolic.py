"""One artifact for all sizes beside one that was compiled for the very size: `--symbolic`.

May import: measure, prepare, report, workloads.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import measure
from prepare import make_ready, open_model, prepare_exact
from report import geometric_mean, row, with_quartiles
from workloads import encoder

MODELS = ("minilm", "bert-base")
LENGTHS = (16, 17, 32, 63, 64, 100, 128, 129, 256, 512)
ONE, EXACT = "tfgraph", "tfgraph exact"


def measure_exact(
    models: Sequence[str],
    lengths: Sequence[int],
    base: Path,
    threads: int,
    rounds: int,
    cores: float,
) -> list[dict[str, Any]]:
    """Let both take turns at each length; the artifact for a length is removed behind it."""
    found: list[dict[str, Any]] = []
    for name in models:
        model = open_model(name)
        for length in lengths:
            ready = make_ready(encoder(name, 1, length), base)
            exact = ready.folder / f"exact-{length}"
            prepare_exact(model, ready.workload.sizes, exact)
            places = {ONE: (ready.folder, ready.inputs), EXACT: (exact, ready.inputs)}
            result = measure(ready.workload, places, ready.work, threads, rounds, cores)
            shutil.rmtree(exact)
            found.append(
                {
                    "workload": ready.workload.name,
                    "rounds": rounds,
                    "quiet_rounds": result.quiet,
                    "max_abs_difference": result.worst,
                    "ms": [1e3 * s for s in result.seconds(ONE)],
                    "exact_ms": [1e3 * s for s in result.seconds(EXACT)],
                    "to_exact": result.ratios(EXACT, ONE),
                }
            )
    return found


def symbolic_table(results: Sequence[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = [
        row("workload", "one for all, ms", "exact, ms", "one for all / exact"),
        row(*["---"] * 4),
    ]
    for found in results:
        cells = (with_quartiles(found[key]) for key in ("ms", "exact_ms", "to_exact"))
        lines.append(row(found["workload"], *cells))
    ratios = [found["to_exact"][1] for found in results]
    mean, most = geometric_mean(ratios), max(ratios)
    lines.append(f"\none for all / exact: {mean:.3f} (geometric mean), at most {most:.3f}.")
    return "\n".join(lines)
