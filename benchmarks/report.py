"""What was measured, as plain data and as tables. May import: measure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from measure import Result

OURS = "tfgraph"


def to_json(result: Result) -> dict[str, Any]:
    """One workload as plain data; times in milliseconds, [first quartile, median, third]."""
    workload = result.workload
    others = [side for side in result.sides if side != OURS]
    best = min(others, key=lambda side: result.seconds(side)[1], default=None)
    has_ours = OURS in result.sides
    return {
        "workload": workload.name,
        "task": workload.task,
        "sizes": dict(workload.sizes),
        "flops": result.work.flops,
        "bytes": result.work.bytes,
        "rounds": result.rounds,
        "quiet_rounds": result.quiet,
        "max_abs_difference": result.worst,
        "unit": "GB/s" if workload.is_bound_by_memory else "GFLOP/s",
        "limit": None if result.limit is None else result.limit / 1e9,
        "weights_mib": result.weights / 2**20,
        "best": best,
        "tfgraph_to_best": result.ratios(best, OURS) if best and has_ours else None,
        "sides": {
            side: {
                "ms": [1e3 * q for q in result.seconds(side)],
                "rate": result.amount / result.seconds(side)[1] / 1e9,
                "least_ms": 1e3 * min(burst.least for burst in result.bursts[side]),
                "cpu_ms": 1e3 * result.median(side, "cpu"),
                "cores": result.median(side, "cores"),
                "resident_mib": result.resident[side] / 2**20,
                "times_tfgraph": result.ratios(OURS, side) if has_ours else None,
            }
            for side in result.sides
        },
    }


def summary(results: list[dict[str, Any]]) -> str:
    """A row for each workload: tfgraph beside the best of the others, and each other's time as a
    ratio to tfgraph's; at the end the geometric mean."""
    names = dict.fromkeys(side for r in results for side in r["sides"] if side != OURS)
    head = ["workload", "tfgraph ms", "rate", "of limit", "best other", "tfgraph / best"]
    lines = [row(*head, *(f"{n} / tfgraph" for n in names)), row(*["---"] * (6 + len(names)))]
    for r in results:
        ours = r["sides"].get(OURS)
        if ours is None:
            continue
        ratio = r["tfgraph_to_best"]
        shown = (r["sides"].get(n) for n in names)
        lines.append(
            row(
                r["workload"],
                with_quartiles(ours["ms"]),
                f"{ours['rate']:.0f} {r['unit']}",
                _share(ours["rate"], r["limit"]),
                r["best"] or "",
                "" if ratio is None else with_quartiles(ratio),
                *("" if s is None else f"{s['times_tfgraph'][1]:.2f}" for s in shown),
            )
        )
    ratios = [r["tfgraph_to_best"][1] for r in results if r["tfgraph_to_best"]]
    if ratios:
        mean = geometric_mean(ratios)
        lines.append(f"\ntfgraph takes {mean:.2f} times the best other's time (geometric mean).")
    return "\n".join(lines)


def geometric_mean(values: Iterable[float]) -> float:
    """The mean of ratios."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def table(results: list[dict[str, Any]]) -> str:
    """A row for each workload and side, in Markdown."""
    names: tuple[str, ...] = ("workload", "side", "ms (quartiles)", "least ms", "rate", "of limit")
    names += ("CPU ms", "cores", "peak MiB", "of weights", "time / tfgraph's")
    lines = [row(*names), row(*["---"] * len(names))]
    for result in results:
        for side, found in result["sides"].items():
            ratio, weights = found["times_tfgraph"], result["weights_mib"]
            lines.append(
                row(
                    result["workload"],
                    side,
                    with_quartiles(found["ms"]),
                    f"{found['least_ms']:.2f}",
                    f"{found['rate']:.0f} {result['unit']}",
                    _share(found["rate"], result["limit"]),
                    f"{found['cpu_ms']:.2f}",
                    f"{found['cores']:.2f}",
                    f"{found['resident_mib']:.0f}",
                    f"{found['resident_mib'] / weights:.0%}" if weights else "",
                    "" if ratio is None else with_quartiles(ratio),
                )
            )
    return "\n".join(lines)


def _share(rate: float, limit: float | None) -> str:
    return "" if limit is None else f"{rate / limit:.0%}"


def row(*cells: str) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def with_quartiles(values: list[float]) -> str:
    """The median, and the quartiles in brackets."""
    low, middle, high = values
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"
