"""Side-by-side times: `make bench`, or `python benchmarks/run.py --help`.

Each side runs in a process of its own, and they take turns. Every workload's outputs are compared
first, so that all sides compute the same thing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import measure
from prepare import make_ready
from report import summary, table, to_json
from scaling import measure_scaling
from sides import SIDES
from start import DEFAULT, SIDES_OF_START, measure_starts, start_table
from symbolic import LENGTHS, MODELS, measure_exact, symbolic_table
from workloads import WORKLOADS, Workload

from tfgraph.bench import cpu_name

TIMED = [name for name, side in SIDES.items() if side.default]
SCALED = ("tfgraph", "onnxruntime", "openvino", "limit")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Time tfgraph beside other programs.")
    parser.add_argument(
        "workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; default all, or as options say"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--start",
        action="store_true",
        help="time processes to their first result, and their memory",
    )
    kind.add_argument(
        "--symbolic",
        action="store_true",
        help="time the artifact for all sizes beside one for each of ten lengths, for the models "
        f"given as workloads; default {' '.join(MODELS)}",
    )
    kind.add_argument(
        "--scaling", metavar="MODEL", help="time a model of examples/ over length and batch"
    )
    parser.add_argument(
        "--sides",
        help=f"of {', '.join(SIDES)}; default those that are installed, with --scaling "
        f"{','.join(SCALED)}",
    )
    parser.add_argument("--rounds", type=int, default=15, help="default %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    parser.add_argument(
        "--min-cores",
        type=float,
        default=0.0,
        help="leave out rounds in which a side had fewer cores, such as 1.9: others took them",
    )
    parser.add_argument("--folder", type=Path, help="keep artifacts and weights, and reuse them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw there: .svg, .png or .pdf")
    found = parser.parse_args(given)
    default = TIMED
    if found.start:
        default = list(SIDES_OF_START)
    elif found.scaling:
        default = list(SCALED)
    found.sides = found.sides.split(",") if found.sides else default
    known_workloads = MODELS if found.symbolic else WORKLOADS
    for name, known in ((found.workloads, known_workloads), (found.sides, SIDES)):
        if unknown := [n for n in name if n not in known]:
            parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    if found.sides == ["limit"]:
        parser.error("--sides: name one besides limit")
    if found.plot and (found.start or found.symbolic):
        parser.error("--plot: --start and --symbolic have no plot")
    if found.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    return found


def main() -> None:
    """Prepare each model, measure each workload, print."""
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="tfgraph-bench-") as temporary:
        base = args.folder or Path(temporary)
        if args.start:
            chosen = [WORKLOADS[name] for name in args.workloads] or DEFAULT
            results = measure_starts(chosen, args.sides, base, args.threads, args.rounds)
            text = start_table(results)
        elif args.symbolic:
            models = args.workloads or MODELS
            results = measure_exact(
                models, LENGTHS, base, args.threads, args.rounds, args.min_cores
            )
            text = symbolic_table(results)
        elif args.scaling:
            results = measure_scaling(
                args.scaling, args.sides, base, args.threads, args.rounds, args.min_cores
            )
            text = f"{_reached(results)}\n\n{table(results)}"
        else:
            results = _measure_all([WORKLOADS[n] for n in args.workloads or WORKLOADS], args, base)
            text = f"{_reached(results)}\n\n{summary(results)}\n\n{table(results)}"
    head = f"{cpu_name()}, threads: {args.threads}, float32"
    print(f"{head}\n\n{text}\n\n{_remarks(results)}")
    if args.json:
        _write(args.json, args.threads, results)
    if args.plot:
        from plot import plot_scaling, plot_table

        if args.scaling:
            plot_scaling(results, f"{args.scaling}: {head}", args.plot)
        else:
            plot_table(results, head, args.plot)


def _measure_all(
    workloads: Sequence[Workload], args: argparse.Namespace, base: Path
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for workload in workloads:
        ready = make_ready(workload, base)
        result = measure(
            workload,
            ready.sides(args.sides),
            ready.work,
            args.threads,
            args.rounds,
            args.min_cores,
            ready.weights,
        )
        results.append(to_json(result))
        if args.json:  # a long run that is ended leaves what it found
            _write(args.json, args.threads, results)
    return results


def _write(file: Path, threads: int, results: Sequence[dict[str, Any]]) -> None:
    found = {"cpu": cpu_name(), "threads": threads, "results": results}
    file.write_text(json.dumps(found, indent=1) + "\n")


def _reached(results: Sequence[dict[str, Any]]) -> str:
    limits: dict[str, float] = {}
    for r in results:
        if r["limit"] is not None:
            limits[r["unit"]] = max(r["limit"], limits.get(r["unit"], 0.0))
    return "The machine does at most " + ", ".join(f"{n:.0f} {unit}" for unit, n in limits.items())


def _remarks(results: Sequence[dict[str, Any]]) -> str:
    """How many rounds were used, where some were not, and how far outputs are apart."""
    lines: list[str] = []
    for r in results:
        if "quiet_rounds" in r and r["quiet_rounds"] < r["rounds"]:
            used = "kept" if r["quiet_rounds"] else "kept, so that all were used: read with care"
            lines.append(f"{r['workload']}: {r['quiet_rounds']} of {r['rounds']} rounds {used}.")
    worst = max(r["max_abs_difference"] for r in results)
    return "\n".join([*lines, f"The sides' outputs differ by at most {worst:.1g}."])


if __name__ == "__main__":
    main()
