"""What `tfgraph inspect ARTIFACT --memory` prints: the storages that its kernels write, and which
results follow one another in each.

May import: runtime; inputs, output, session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.cli.inputs import parse_dims
from tfgraph.cli.output import at_sizes, plural, size
from tfgraph.errors import TfgraphError
from tfgraph.runtime.sizes import SymbolRange, evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.cli.session import Session

_SHOWN = 4
"""So many results of a storage are named, unless `--verbose`."""


def print_memory(
    session: Session, manifest: Mapping[str, Any], dim: list[str] | None
) -> dict[str, Any]:
    """Print the plan of each function at these sizes, those of the example where none is given;
    the same as plain data, by function."""
    functions = {"main": manifest, **manifest.get("functions", {})}
    return {name: _print_plan(session, name, entry, dim) for name, entry in functions.items()}


def _print_plan(
    session: Session, name: str, entry: Mapping[str, Any], dim: list[str] | None
) -> dict[str, Any]:
    if "storages" not in entry:
        raise TfgraphError(
            "the artifact does not say how its memory is planned: an earlier version compiled it, "
            "or it is for a GPU",
            hint="compile it again, for the CPU",
        )
    ranges = {
        symbol: SymbolRange(s["min"], s["max"], s["example"])
        for symbol, s in entry["symbols"].items()
    }
    given = parse_dims([d for d in dim or () if d.partition("=")[0] in ranges], ranges)
    sizes = {symbol: given.get(symbol, r.example) for symbol, r in ranges.items()}
    held: list[list[str]] = [[] for _ in entry["storages"]]
    for launch in entry["launches"]:
        for storage in launch["into"]:
            held[int(storage)].append(launch.get("value", launch["kernel"]))
    amounts = [evaluate(dim, sizes) for dim in entry["storages"]]
    most = evaluate(entry["memory"], sizes)
    at = f" at {at_sizes(sizes)}" if sizes else ""
    session.print(
        f"{session.style(f'memory of {name}', 'bold')}{at}: "
        f"{size(most)} at most, in {plural(len(held), 'storage')}"
    )
    rows = [["storage", "bytes", "", "holds, one after another"]]
    for i, (amount, values) in enumerate(zip(amounts, held, strict=True)):
        shown = values if session.verbose else values[:_SHOWN]
        more = [f"{len(values) - len(shown)} more"] if len(shown) < len(values) else []
        rows.append([str(i), size(amount), str(entry["storages"][i]), ", ".join([*shown, *more])])
    session.rows(rows, right=(0, 1))
    session.print()
    storages = [
        {"size": entry["storages"][i], "bytes": amount, "holds": values}
        for i, (amount, values) in enumerate(zip(amounts, held, strict=True))
    ]
    return {"dims": sizes, "memory": entry["memory"], "bytes": most, "storages": storages}
