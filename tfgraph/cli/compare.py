"""`tfgraph compare MODEL`: two backends on the same inputs, value by value.

May import: api, backends, errors.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tfgraph.cli.options import (
    DimOption,
    InputOption,
    ModelArgument,
    PassesOption,
    SeedOption,
    ThreadsOption,
    verb,
)
from tfgraph.cli.session import Session
from tfgraph.cli.source import check_dtype, read_source
from tfgraph.errors import TfgraphError


@verb
def compare(
    session: Session,
    model: ModelArgument,
    backends: Annotated[
        str, typer.Option(metavar="A,B", help="the reference, and what to compare with it")
    ] = "numpy,cpu",
    inputs: InputOption = None,
    dim: DimOption = None,
    seed: SeedOption = 0,
    passes: PassesOption = None,
    threads: ThreadsOption = None,
) -> int:
    """Compare two backends, and name the first value that differs."""
    names = [name.strip() for name in backends.split(",") if name.strip()]
    if len(names) != 2:
        raise TfgraphError(
            f"--backends {backends}: expected two names", hint="such as --backends numpy,cpu"
        )
    read = read_source(session, model)
    from tfgraph.api import compare
    from tfgraph.backends.base import find_backend, input_ports, symbol_ranges
    from tfgraph.cli.inputs import parse_dims, read_inputs
    from tfgraph.passes import DEFAULT_PIPELINE

    for name in names:
        find_backend(name)
        check_dtype(read, name)
    graph = read.graph
    ports, symbols = input_ports(graph), symbol_ranges(graph)
    dims = parse_dims(dim, symbols)
    given = read_inputs(inputs, ports)
    with session.progress(f"comparing {' and '.join(names)}"):
        found = compare(
            graph,
            names,
            given,
            weights=read.weights,
            dims=dims,
            passes=DEFAULT_PIPELINE if passes is None else passes,
            seed=seed,
            threads=threads,
        )
    session.object(found.to_json())
    session.print(str(found) if not session.quiet else "equal" if found.ok else "different")
    return 0 if found.ok else 1
