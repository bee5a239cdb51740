"""`tfgraph run`: an artifact or a model on inputs from files, or made up.

For an artifact this imports numpy, tvm_ffi, tfgraph.runtime and errors alone. May import: runtime;
for a model api, backends.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfgraph.cli.options import (
    DimOption,
    InputOption,
    ModelOrArtifact,
    SeedOption,
    Session,
    ThreadsOption,
    verb,
)
from tfgraph.cli.output import at_sizes
from tfgraph.cli.source import choose_target, is_artifact, read_source
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from tfgraph.backends.base import Executable
    from tfgraph.runtime.model import Model as Artifact

    NDArray = np.ndarray[Any, np.dtype[Any]]


@verb
def run(
    session: Session,
    model: ModelOrArtifact,
    inputs: InputOption = None,
    dim: DimOption = None,
    save: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write each output as a .npy file")
    ] = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    verify_weights: Annotated[
        bool,
        typer.Option(
            "--verify-weights/--no-verify-weights", help="check an artifact's weights file first"
        ),
    ] = True,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="for a model: numpy, cpu [default: its own, else cpu]"),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="print every value, as the reference computes it")
    ] = False,
) -> int:
    """Run an artifact or a model; inputs left out are made up, seeded."""
    executable: Artifact | Executable
    constraints: Sequence[str]
    if is_artifact(model):
        if target is not None or trace:
            raise TfgraphError(
                f"{'--trace' if trace else '--target'} is for models; {model} is an artifact",
                hint="name what it was compiled from",
            )
        from tfgraph.runtime.model import load

        executable = load(model, threads=threads, verify_weights=verify_weights)
        constraints = executable.manifest["constraints"]
    else:
        if not verify_weights:
            raise TfgraphError(
                f"--no-verify-weights is for artifacts; {model} is a model",
                hint="compile it first: tfgraph compile",
            )
        executable, constraints = _from_model(session, model, target, threads, trace)
    from tfgraph.cli.inputs import parse_dims, read_inputs
    from tfgraph.runtime.examples import complete

    dims = parse_dims(dim, executable.symbols)
    given = read_inputs(inputs, executable.inputs)
    arrays, sizes = complete(executable.inputs, executable.symbols, constraints, given, dims, seed)
    if trace:
        from tfgraph.cli.trace import traced

        outputs, lines = traced(session, executable, arrays, sizes)
    else:
        outputs, lines = executable(dims=sizes, **arrays), None
    files = {} if save is None else _save(outputs, save)
    executable.close()
    results = {
        name: {"shape": list(a.shape), "dtype": str(a.dtype), "file": files.get(name)}
        for name, a in outputs.items()
    }
    found: dict[str, Any] = {"dims": sizes, "outputs": results}
    session.object(found if lines is None else {**found, "trace": lines})
    if not (session.quiet or trace):
        _print(session, model, sizes, arrays, given, seed)
    if not trace:
        session.rows(list(_result_rows(outputs, files)))
    return 0


def _from_model(
    session: Session, spec: str, target: str | None, threads: int | None, trace: bool
) -> tuple[Executable, list[str]]:
    if trace and target not in (None, "numpy"):
        raise TfgraphError(
            f"--trace is of the reference, not of {target}",
            hint="`tfgraph compare` names the first value that differs",
        )
    model = read_source(session, spec)
    from tfgraph.api import compile

    chosen = choose_target(model, "numpy" if trace else target, threads=threads)
    with session.progress(f"compiling for {chosen.name}"):
        made = compile(model.graph, chosen, weights=model.weights)
    return made, [str(c) for c in model.graph.constraints]


def _print(
    session: Session,
    spec: str,
    sizes: dict[str, int],
    arrays: Mapping[str, NDArray],
    given: Mapping[str, NDArray],
    seed: int,
) -> None:
    made = [name for name in arrays if name not in given]
    at = f" at {at_sizes(sizes)}" if sizes else ""
    note = f"; made up with seed {seed}: {', '.join(made)}" if made else ""
    session.print(f"{session.style(spec, 'bold')}{at}{note}")


def _result_rows(outputs: Mapping[str, NDArray], files: Mapping[str, str]) -> Iterable[list[str]]:
    from tfgraph.cli.numbers import summary

    for name, array in outputs.items():
        shape = ",".join(map(str, array.shape))
        numbers = summary(array)
        yield [
            name,
            f"{array.dtype}[{shape}]",
            *(f"{k} {numbers[k]}" for k in ("min", "max", "mean")),
            f"-> {files[name]}" if name in files else "",
        ]


def _save(outputs: Mapping[str, NDArray], folder: Path) -> dict[str, str]:
    """Write the outputs; the path of each by its name. Each file appears whole or not at all."""
    import numpy as np

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise TfgraphError(
            f"cannot write {folder}: it is a file", hint="--save names a folder"
        ) from None
    except OSError as cause:
        raise TfgraphError(f"cannot write {folder}: {cause.strerror}") from cause
    written: dict[str, str] = {}
    for name, stem in safe_names(list(outputs)).items():
        path = folder / f"{stem}.npy"
        partial = folder / f".{stem}.npy.partial"
        try:
            with partial.open("wb") as file:
                np.save(file, outputs[name], allow_pickle=False)
            os.replace(partial, path)
        except OSError as cause:
            raise TfgraphError(f"cannot write {path}: {cause.strerror}") from cause
        finally:
            partial.unlink(missing_ok=True)
        written[name] = str(path)
    return written


def safe_names(names: Sequence[str]) -> dict[str, str]:
    """File names for outputs: letters, digits and `_.-`, none hidden, no two the same."""
    found: dict[str, str] = {}
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100].lstrip(".") or "output"
        stem, number = base, 1
        while stem in found.values():
            stem, number = f"{base}_{number}", number + 1
        found[name] = stem
    return found
