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

    from tfgraph.cli.options import Session

    NDArray = np.ndarray[Any, np.dtype[Any]]

_NUMBERS = ("min", "max", "mean")


def traced(
    session: Session, executable: Any, inputs: Mapping[str, NDArray], sizes: dict[str, int]
) -> tuple[dict[str, NDArray], list[dict[str, Any]]]:
    """Print each value as it is computed; the outputs by name, and the lines for `--json`."""
    assert isinstance(executable, NumpyExecutable)
    graph = executable.graph
    kinds = {i.value.name: "input" for i in graph.inputs} | {p.value.name: "weight" for p in graph.params}
    name_width = min(32, max(len(v.name) for v in graph.values()) + 1)
    op_width = max([6, *(len(node.op) for node in graph.nodes)])
    if sizes:
        session.print(f"{graph.name} at {at_sizes(sizes)}")
    head = "".join(text.rjust(11) for text in _NUMBERS)
    session.print(f"{'value'.ljust(name_width)}  {'op'.ljust(op_width)}  shape{head}  first")
    wanted = {o.value.name for o in graph.outputs}
    kept: dict[str, NDArray] = {}
    lines: list[dict[str, Any]] = []
    for value, node, array in executable.trace(inputs, sizes):
        op = node.op if node else kinds[value.name]
        if value.name in wanted:
            kept[value.name] = array
        if session.json:
            place = str(node.location) if node and node.location else None
            about = {"name": value.name, "op": op, "location": place}
            shape = {"shape": list(array.shape), "dtype": str(array.dtype)}
            lines.append({**about, **shape, **summary_json(array)})
            continue
        found = summary(array)
        shape_text = "x".join(map(str, array.shape)) or "scalar"
        numbers = "".join(found[key].rjust(11) for key in _NUMBERS)
        name = f"%{value.name}".ljust(name_width)
        session.print(f"{name}  {op.ljust(op_width)}  {shape_text}")
        session.print(f"{' ' * (name_width + op_width + 9)}{numbers}  {found['first']}")
    return {o.name: kept[o.value.name] for o in graph.outputs}, lines
