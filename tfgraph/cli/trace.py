"""`run MODEL --trace`: every value in order, as the reference computes it.

May import: backends.numpy, numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.cli.numbers import summary, summary_json
from tfgraph.cli.output import at_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tfgraph.cli.output import Output

    NDArray = np.ndarray[Any, np.dtype[Any]]


def traced(
    out: Output, executable: Any, inputs: Mapping[str, NDArray], sizes: dict[str, int]
) -> tuple[dict[str, NDArray], list[dict[str, Any]]]:
    """Print each value as it is computed; the outputs by name, and the lines for `--json`."""
    assert isinstance(executable, NumpyExecutable)
    graph = executable.graph
    kinds = {i.value.name: "input" for i in graph.inputs}
    kinds |= {p.value.name: "weight" for p in graph.params}
    if sizes:
        out.print(f"{graph.name} at {at_sizes(sizes)}")
    wanted = {o.value.name for o in graph.outputs}
    kept: dict[str, NDArray] = {}
    lines: list[dict[str, Any]] = []
    for value, node, array in executable.trace(inputs, sizes):
        op = node.op if node else kinds[value.name]
        if value.name in wanted:
            kept[value.name] = array
        if out.json:
            place = str(node.location) if node and node.location else None
            about = {"name": value.name, "op": op, "location": place}
            kind = {"shape": list(array.shape), "dtype": str(array.dtype)}
            lines.append({**about, **kind, **summary_json(array)})
            continue
        found = summary(array)
        shape = "x".join(map(str, array.shape)) or "scalar"
        out.print(f"{out.style(f'%{value.name}', 'bold')} = {op}  {array.dtype} {shape}")
        numbers = "  ".join(f"{key} {found[key]:<9}" for key in ("min", "max", "mean"))
        out.print(f"    {numbers}  first {found['first']}")
    return {o.name: kept[o.value.name] for o in graph.outputs}, lines
