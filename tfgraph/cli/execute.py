"""What `tfgraph run` does with what it loaded: inputs from files or made up, the call, the results.

Imports numpy, tfgraph.runtime and errors: nothing that is not needed to run an artifact.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tfgraph.cli.inputs import parse_dims, read_inputs
from tfgraph.cli.numbers import summary
from tfgraph.cli.output import at_sizes
from tfgraph.errors import TfgraphError
from tfgraph.runtime.examples import complete

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from tfgraph.backends.base import Executable
    from tfgraph.cli.output import Output

    NDArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Request:
    """What `run` is asked for beside the model."""

    inputs: Sequence[str] | None = None
    dim: Sequence[str] | None = None
    save: Path | None = None
    seed: int = 0
    trace: bool = False
    text: Sequence[str] | None = None
    prefix: str | None = None


def run_artifact(
    out: Output, spec: str, request: Request, threads: int | None, verify_weights: bool
) -> int:
    """Load the artifact and run it once."""
    from tfgraph.runtime.model import load

    with load(spec, threads=threads, verify_weights=verify_weights) as model:
        return execute(out, spec, model, model.manifest["constraints"], request)


def execute(
    out: Output, spec: str, executable: Executable, constraints: Sequence[str], request: Request
) -> int:
    """Run it once and print the results; the exit code."""
    dims = parse_dims(request.dim, executable.symbols)
    texts = _texts(executable, request)
    given = {**texts, **read_inputs(request.inputs, executable.inputs, taken=texts)}
    arrays, sizes = complete(
        executable.inputs, executable.symbols, constraints, given, dims, request.seed
    )
    if request.trace:
        from tfgraph.cli.trace import traced

        outputs, lines = traced(out, executable, arrays, sizes)
    else:
        outputs, lines = executable(dims=sizes, **arrays), None
    files = {} if request.save is None else _save(outputs, request.save)
    results = {
        name: {"shape": list(a.shape), "dtype": str(a.dtype), "file": files.get(name)}
        for name, a in outputs.items()
    }
    found: dict[str, Any] = {"dims": sizes, "outputs": results}
    tokens = _token_names(executable, texts)
    found |= {"tokens": tokens} if tokens else {}
    out.object(found if lines is None else {**found, "trace": lines})
    if not (out.quiet or request.trace):
        _print(out, spec, sizes, arrays, given, request.seed)
        for row in tokens:
            out.print(f"  tokens  {' '.join(row)}")
    if not request.trace:
        out.rows(list(_result_rows(outputs, files)))
    return 0


def _texts(executable: Executable, request: Request) -> dict[str, NDArray]:
    """The inputs that `--text` makes."""
    if request.text:
        return executable.tokenize(list(request.text), prefix=request.prefix)
    if request.prefix is not None:
        raise TfgraphError("--prefix goes with --text")
    return {}


def _token_names(executable: Executable, texts: Mapping[str, NDArray]) -> list[list[str]]:
    """How the tokenizer writes the tokens of each text, padding included."""
    rows: Sequence[NDArray] = list(texts["input_ids"]) if texts else []
    return [[executable.tokenizer.name(int(token)) for token in row] for row in rows]


def _print(
    out: Output,
    spec: str,
    sizes: dict[str, int],
    arrays: Mapping[str, NDArray],
    given: Mapping[str, NDArray],
    seed: int,
) -> None:
    made = [name for name in arrays if name not in given]
    at = f" at {at_sizes(sizes)}" if sizes else ""
    note = f"; made up with seed {seed}: {', '.join(made)}" if made else ""
    out.print(f"{out.style(spec, 'bold')}{at}{note}")


def _result_rows(outputs: Mapping[str, NDArray], files: Mapping[str, str]) -> Iterable[list[str]]:
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
                # Not the file itself, whose contents NumPy would write without the system's errors.
                np.save(cast("Any", SimpleNamespace(write=file.write)), outputs[name])
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
