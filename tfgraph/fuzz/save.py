"""A failure as files: the graph as a model file and as text, the inputs, what was wrong; and back
again. May import: api, backends, model, text, ir, errors.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.part import untold
from tfgraph.backends.artifact import write_weights
from tfgraph.backends.base import CompiledWeight
from tfgraph.errors import TfgraphError
from tfgraph.fuzz.alone import KernelJudge
from tfgraph.fuzz.judge import Judge
from tfgraph.model import dump_yaml
from tfgraph.ops.floats import numpy_dtype
from tfgraph.text import parse_graph, print_graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.fuzz.judge import Wrong
    from tfgraph.fuzz.shrink import Failure
    from tfgraph.ir import Graph, Value

NDArray = np.ndarray[Any, Any]
_RECORD, _GRAPH, _MODEL = "failure.json", "graph.tfg", "model.yaml"
_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Saved:
    """A failure that was written to a folder: what is wrong there, and the commands that show it
    again. `compare` is None where its arrays have a dtype that .npy files lack."""

    folder: Path
    seed: int
    backend: str
    output: str
    sizes: Mapping[str, int]
    why: str
    text: str
    replay: str
    compare: str | None

    def to_json(self) -> dict[str, Any]:
        """The object in `fuzz --json`."""
        return {
            "seed": self.seed,
            "backend": self.backend,
            "output": self.output or None,
            "sizes": dict(self.sizes),
            "why": self.why,
            "graph": self.text,
            "folder": str(self.folder),
            "replay": self.replay,
            "compare": self.compare,
        }


def save(
    failure: Failure, judge: Judge | KernelJudge, parent: Path, plugins: Sequence[Path] = ()
) -> Saved:
    """Write the failure to a new folder in `parent`. The commands name the plugins that it takes;
    `replay` alone shows a kernel that was judged alone. Raises OSError."""
    failure = named_inputs(failure)
    alone = isinstance(judge, KernelJudge)
    folder = new_folder(parent, f"{failure.seed}-{judge.backend}")
    files = write_files(failure, folder)
    record = {
        "seed": failure.seed,
        "backend": judge.backend,
        "threads": judge.threads,
        "alone": alone,
        "output": failure.wrong.output,
        "sizes": dict(failure.sizes),
        "why": failure.wrong.why,
        "inputs": files,
    }
    (folder / _RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    loaded = [part for plugin in plugins for part in ("--plugin", str(plugin))]
    return Saved(
        folder=folder,
        seed=failure.seed,
        backend=judge.backend,
        output=failure.wrong.output,
        sizes=failure.sizes,
        why=failure.wrong.why,
        text=print_graph(failure.graph),
        replay=shlex.join(["tfgraph", "fuzz", "--replay", str(folder), *loaded]),
        compare=None if alone else compare_command(failure, folder, files, judge.backend, plugins),
    )


def write_files(failure: Failure, folder: Path) -> dict[str, str]:
    """Write the graph, its inputs, and its weights unless they are seeded; the files of inputs by
    name."""
    text, model = print_graph(failure.graph), dump_yaml(failure.graph)
    if failure.weights is not None:
        names = [p.value.name for p in failure.graph.params]
        write_weights(folder / _WEIGHTS, [_as_it_is(n, failure.weights[n]) for n in names])
        model += f"checkpoint: {_WEIGHTS}\n"
    (folder / _GRAPH).write_text(text, "utf-8")
    (folder / _MODEL).write_text(model, "utf-8")
    files = {name: f"x{i}.npy" for i, name in enumerate(failure.arrays)}
    for name, file in files.items():
        np.save(folder / file, failure.arrays[name])
    return files


def _as_it_is(name: str, array: NDArray) -> CompiledWeight:
    return CompiledWeight(name, str(array.dtype), array.shape, "plain", (name,), lambda: array)


def compare_command(
    failure: Failure,
    folder: Path,
    files: Mapping[str, str],
    backend: str,
    plugins: Sequence[Path],
    more: Sequence[str] = (),
) -> str | None:
    """The command that compares a saved failure; None where .npy files lack a dtype of it."""
    if any(array.dtype.kind == "V" for array in failure.arrays.values()):
        return None
    given = [part for name in files for part in ("--input", f"{name}={folder / files[name]}")]
    dims = untold(failure.graph, failure.sizes)
    given += [part for name, size in dims.items() for part in ("--dim", f"{name}={size}")]
    loaded = [part for plugin in plugins for part in ("--plugin", str(plugin))]
    line = ["tfgraph", "compare", str(folder / _MODEL), "--backends", f"numpy,{backend}"]
    return shlex.join([*line, *more, *given, *loaded])


@dataclass(frozen=True)
class Replayed:
    """A saved failure that was judged again: what is still wrong."""

    seed: int
    backend: str
    graph: Graph
    wrong: Sequence[Wrong]


def replay(folder: Path, backend: str | None = None) -> Replayed:
    """Judge a saved failure again, on its own backend or another one. Raises TfgraphError where the
    folder holds none."""
    path = folder / _RECORD
    try:
        record = json.loads(path.read_text("utf-8"))
        seed, sizes, files = int(record["seed"]), record["sizes"], record["inputs"]
        judged = backend or record["backend"], record["threads"]
        judge = KernelJudge(*judged, strict=True) if record["alone"] else Judge(*judged)
        graph = parse_graph((folder / _GRAPH).read_text("utf-8"), str(folder / _GRAPH))
        arrays = {i.value.name: _read(folder / files[i.value.name], i.value) for i in graph.inputs}
    except OSError as cause:
        raise TfgraphError(
            f"{cause.filename}: {cause.strerror}",
            hint="--replay takes the folder of a failure that `tfgraph fuzz` saved",
        ) from cause
    except (ValueError, KeyError, TypeError, EOFError) as cause:
        raise TfgraphError(f"{folder} cannot be read: {cause}") from cause
    return Replayed(seed, judge.backend, graph, judge.check(graph, [(sizes, arrays)]))


def _read(path: Path, value: Value) -> NDArray:
    """The array of an input; .npy files hold bfloat16 as bytes."""
    array: NDArray = np.load(path, allow_pickle=False)
    dtype = numpy_dtype(value.type.dtype)
    return array.view(dtype) if array.dtype.kind == "V" else array


def new_folder(parent: Path, name: str) -> Path:
    """A folder of that name, or with a number behind it."""
    for number in range(1, 10_000):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise TfgraphError(f"{parent} holds too many failures", hint="--save names another folder")


def named_inputs(failure: Failure) -> Failure:
    """The same failure; inputs that were results, `7`, get names that model files allow, `v7`."""
    graph = failure.graph
    taken = {value.name for value in graph.values()}
    names = {name: name for name in failure.arrays}
    for name in filter(str.isdigit, names):
        new = f"v{name}"
        while new in taken:
            new = f"v{new}"
        taken.add(new)
        names[name] = new

    def renamed(value: Value) -> Value:
        return replace(value, name=names.get(value.name, value.name))

    graph = replace(
        graph,
        inputs=tuple(replace(i, value=renamed(i.value)) for i in graph.inputs),
        nodes=tuple(n.map_values(renamed) for n in graph.nodes),
        outputs=tuple(replace(o, value=renamed(o.value)) for o in graph.outputs),
    )
    arrays = {names[name]: array for name, array in failure.arrays.items()}
    return replace(failure, graph=graph, arrays=arrays)
