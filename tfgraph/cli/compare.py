"""`tfgraph compare MODEL`: two backends on the same inputs, value by value; or two models.

May import: api, fuzz, backends, errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfgraph.cli.options import (
    DimOption,
    DtypeOption,
    InputOption,
    InputsOption,
    InterveneOption,
    ModelOrArtifact,
    PassesOption,
    SeedOption,
    StrictMasksOption,
    ThreadsOption,
    verb,
)
from tfgraph.cli.session import Session
from tfgraph.cli.source import (
    check_dtype,
    choose_passes,
    choose_target,
    in_dtype,
    is_artifact,
    read_source,
)
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tfgraph.api import Comparison
    from tfgraph.fuzz.culprit import SavedKernel
    from tfgraph.model import Model
    from tfgraph.runtime.runnable import Runnable
    from tfgraph.runtime.sizes import Port

    NDArray = np.ndarray[Any, np.dtype[Any]]


@verb
def compare(
    session: Session,
    model: ModelOrArtifact,
    other: Annotated[
        str | None,
        typer.Argument(metavar="[OTHER]", show_default=False, help="a model to compare it with"),
    ] = None,
    backends: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            show_default=False,
            help="the reference, and what to compare with it [default: numpy,cpu]",
        ),
    ] = None,
    inputs: InputOption = None,
    inputs_file: InputsOption = None,
    dim: DimOption = None,
    seed: SeedOption = 0,
    intervene: InterveneOption = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="for two models: numpy, cpu [default: numpy]"),
    ] = None,
    dtype: DtypeOption = None,
    passes: PassesOption = None,
    strict_masks: StrictMasksOption = False,
    threads: ThreadsOption = None,
    artifact: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="what MODEL was compiled to, to run in place of cpu"),
    ] = None,
    bisect: Annotated[
        str | None,
        typer.Option(metavar="passes", help="name the first pass that changes what is computed"),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="for a kernel that is wrong [default: culprits]"),
    ] = None,
) -> int:
    """Compare two backends, and name the first culprit of a difference; or two models, and print
    how outputs change. With --intervene alone, the model before and after."""
    from tfgraph.cli.inputs import read_edits

    edits = read_edits(intervene)
    strict = strict_masks or None
    alone = {
        "--strict-masks": strict,
        "--backends": backends,
        "--dtype": dtype,
        "--passes": passes,
        "--artifact": artifact,
        "--bisect": bisect,
    }
    if other is None and (any(v is not None for v in alone.values()) or not edits):
        if target is not None:
            raise TfgraphError(
                "--target is for two models", hint="--backends names what runs one of them"
            )
        read = read_source(session, model)
        read = read.intervene(edits) if edits else read
        given = inputs, inputs_file
        passes = choose_passes(read, passes, strict_masks)
        if dtype is not None:
            for name in () if bisect is not None else _two(backends or "numpy,cpu"):
                check_dtype(read, name, dtype)
            read = in_dtype(read, dtype, passes)
            passes = read.passes or passes
        if bisect is not None:
            return _bisect(session, read, bisect, backends, given, dim, seed, passes)
        pair = _two(backends or "numpy,cpu")
        return _backends(session, read, pair, given, dim, seed, passes, threads, artifact, save)
    for option, value in alone.items():
        if value is not None:
            raise TfgraphError(f"{option} is for one model", hint="--target runs two of them")
    names = model, (other or model) + (f" with {', '.join(intervene)}" if intervene else "")
    sources = model, other or model
    given = inputs, inputs_file
    return _models(session, sources, names, edits, given, dim, seed, target, threads)


Given = tuple["Sequence[str] | None", "Path | None"]  # --input and --inputs


def _given(given: Given, ports: Sequence[Port]) -> dict[str, NDArray]:
    """The inputs that are given one by one, and those of a file."""
    from tfgraph.cli.inputs import read_inputs, read_inputs_file

    single, whole = read_inputs(given[0], ports), read_inputs_file(given[1], ports)
    for name in single:
        if name in whole:
            raise TfgraphError(f"--input {name}: '{name}' is in --inputs {given[1]} too")
    return {**single, **whole}


def _two(backends: str) -> list[str]:
    names = [name.strip() for name in backends.split(",") if name.strip()]
    if len(names) != 2:
        raise TfgraphError(
            f"--backends {backends}: expected two names", hint="such as --backends numpy,cpu"
        )
    return names


def _backends(
    session: Session,
    read: Model,
    names: list[str],
    given: Given,
    dim: Sequence[str] | None,
    seed: int,
    passes: str | None,
    threads: int | None,
    artifact: Path | None,
    save: Path | None,
) -> int:
    from tfgraph.api import compare
    from tfgraph.backends.base import find_backend, input_ports, symbol_ranges
    from tfgraph.cli.inputs import parse_dims

    for name in names:
        find_backend(name, witnesses=True)
        check_dtype(read, name)
    ports, symbols = input_ports(read.graph), symbol_ranges(read.graph)
    dims, arrays = parse_dims(dim, symbols), _given(given, ports)
    with session.progress(f"comparing {' and '.join(names)}") as say:
        found = compare(
            read,
            names,
            arrays,
            dims=dims,
            passes=passes,
            seed=seed,
            threads=threads,
            artifact=artifact,
        )
        say("shrinking the kernel that is wrong")
        saved = _saved(session, found, save)
    session.object(found.to_json() | {"saved": None if saved is None else saved.to_json()})
    if session.quiet:
        session.print("equal" if found.ok else "different")
        return 0 if found.ok else 1
    session.print(str(found))
    if saved is not None:
        again = [] if saved.compare is None else [("compare", saved.compare)]
        session.rows([("saved in", str(saved.folder)), *again])
    return 0 if found.ok else 1


def _saved(session: Session, found: Comparison, save: Path | None) -> SavedKernel | None:
    """The kernel that is wrong, in a folder; a note where it cannot be written."""
    if found.first_divergence is None:
        return None
    from tfgraph.fuzz.culprit import FOLDER, save_kernel

    folder = FOLDER if save is None else save
    try:
        return save_kernel(found.first_divergence, folder, session.plugins)
    except OSError as cause:
        session.note(f"the kernel was not saved: {cause.filename}: {cause.strerror}")
        return None


def _bisect(
    session: Session,
    read: Model,
    what: str,
    backends: str | None,
    given: Given,
    dim: Sequence[str] | None,
    seed: int,
    passes: str | None,
) -> int:
    """The first pass that is wrong, or node of an ONNX file."""
    from tfgraph.api import bisect
    from tfgraph.backends.base import WITNESSES, input_ports, symbol_ranges
    from tfgraph.cli.inputs import parse_dims

    if what != "passes":
        raise TfgraphError(f"--bisect {what}: expected passes", hint="--bisect passes")
    witness = None if backends is None else backends.strip()
    if witness is not None and witness not in WITNESSES:
        raise TfgraphError(
            f"--backends {witness}: with --bisect it names the witness of an ONNX file",
            hint=f"one of {', '.join(WITNESSES)}",
        )
    ports, symbols = input_ports(read.graph), symbol_ranges(read.graph)
    dims, arrays = parse_dims(dim, symbols), _given(given, ports)
    with session.progress("running the reference after every pass"):
        found = bisect(read, arrays, dims=dims, passes=passes, seed=seed, witness=witness)
    session.object(found.to_json())
    session.print(str(found) if not session.quiet else "right" if found.ok else "wrong")
    return 0 if found.ok else 1


def _models(
    session: Session,
    sources: tuple[str, str],
    names: tuple[str, str],
    edits: Mapping[str, Any],
    given: Given,
    dim: Sequence[str] | None,
    seed: int,
    target: str | None,
    threads: int | None,
) -> int:
    """Two models, or one before and after an intervention."""
    from tfgraph.api import compare_models
    from tfgraph.cli.inputs import parse_dims

    with session.progress("compiling"):
        with (
            _ready(session, sources[0], {}, target, threads) as a,
            _ready(session, sources[1], edits, target, threads) as b,
        ):
            arrays, dims = _given(given, a.inputs), parse_dims(dim, {**b.symbols, **a.symbols})
            found = compare_models(a, b, arrays, dims=dims, seed=seed, names=names)
    session.object(found.to_json())
    if session.quiet:
        largest = [change.max_abs for change in found.outputs]
        session.print("equal" if all(n == 0 for n in largest) else "different")
    else:
        session.print(str(found))
    return 0


def _ready(
    session: Session, spec: str, edits: Mapping[str, Any], target: str | None, threads: int | None
) -> Runnable:
    """The artifact, or the model after the edits and compiled."""
    if is_artifact(spec):
        if edits:
            raise TfgraphError(
                f"--intervene is for models; {spec} is an artifact",
                hint="name what it was compiled from",
            )
        from tfgraph.runtime.model import load

        return load(spec, threads=threads)
    read = read_source(session, spec)
    from tfgraph.api import compile

    chosen = choose_target(read, target or "numpy", threads=threads)
    return compile(read.intervene(edits) if edits else read, chosen)
