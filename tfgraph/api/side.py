"""One of the two backends of a comparison: what it compiled, what that gives, and what its kernels
give when they are replayed.

May import: empty_rows, fuse, replay, source, backends, runtime, text, ir, errors.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.empty_rows import as_written
from tfgraph.api.fuse import fuse
from tfgraph.api.part import kernels, untold
from tfgraph.api.replay import Replay
from tfgraph.backends.base import WITNESSES, Executable, Target, find_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph, Output
from tfgraph.passes import Pass, parse_pipeline
from tfgraph.runtime import format as layout
from tfgraph.runtime.model import Model, load
from tfgraph.text import parse_graph, print_graph

if TYPE_CHECKING:
    from tfgraph.api.source import Opened
    from tfgraph.backends.base import Weights

NDArray = np.ndarray[Any, Any]


@dataclass
class Side:
    """A backend, the graph that it runs, and the inputs. `passes` made that graph of the model's,
    where that is known, and may have made rows with no allowed key zeros (`changes_empty_rows`);
    `original` is the ONNX file where it runs that."""

    name: str
    target: Target
    graph: Graph
    weights: Weights
    feeds: Mapping[str, NDArray]
    sizes: Mapping[str, int]
    executable: Executable
    passes: Sequence[Pass] | None = ()
    original: Path | None = None
    changes_empty_rows: bool = False

    @property
    def replays(self) -> bool:
        """Whether its kernels are not the reference's."""
        return self.name != "numpy" and self.original is None

    @property
    def artifact(self) -> Model | None:
        """What it runs, where that is an artifact."""
        return self.executable if isinstance(self.executable, Model) else None

    @cached_property
    def outputs(self) -> dict[str, NDArray]:
        """What it gives, by output name."""
        if self.name == "numpy":
            return {o.name: self.values[o.value.name] for o in self.graph.outputs}
        copies = {name: np.array(array) for name, array in self.feeds.items()}
        return self.executable(dims=untold(self.graph, self.sizes), **copies)

    def read_as_written(self, graph: Graph, reference: Mapping[str, NDArray]) -> int:
        """Take outputs and values for those of the graph as it was written, with the same errors,
        where the passes made rows with no allowed key zeros; how many rows of outputs depend on
        such. `reference` is what the reference gives for that graph, by value name."""
        given = self.weights, self.feeds, self.sizes
        want = {o.name: reference[o.value.name] for o in graph.outputs}
        self.outputs, rows = as_written(want, self.outputs, self.graph, *given)
        made = (v for node in self.graph.nodes for v in node.outputs)
        shared = [v for v in made if v.name in reference and v.name in self.values]
        tapped = replace(self.graph, outputs=tuple(Output(v.name, v) for v in shared))
        want = {v.name: reference[v.name] for v in shared}
        found, _ = as_written(want, {n: self.values[n] for n in want}, tapped, *given)
        self.values = {**self.values, **found}
        return rows

    @cached_property
    def values(self) -> Mapping[str, NDArray]:
        """What it computes in between, by value name: the kernels one after another, each compiled
        alone; of a witness what a file gives of which all that are outputs."""
        if self.name == "numpy":
            return self.reference
        if self.original is not None:
            return {}
        if self.name in WITNESSES:
            return self._witnessed()
        return self.replay.chain(self.feeds, self.sizes)

    @cached_property
    def reference(self) -> Mapping[str, NDArray]:
        """What the reference computes for its graph, weights left out that are no outputs."""
        return reference_values(self.graph, self.weights, self.feeds, self.sizes)

    @cached_property
    def replay(self) -> Replay:
        """Its kernels, each compiled alone."""
        return Replay(self.graph, self.weights, self.target)

    def _witnessed(self) -> dict[str, NDArray]:
        known = self.graph.weight_values
        values = [v for n in self.graph.nodes for v in n.outputs if v not in known]
        open_graph = replace(self.graph, outputs=tuple(Output(v.name, v) for v in values))
        backend = find_backend(self.name, witnesses=True)
        try:
            with backend.compile(open_graph, self.weights, self.target) as run:
                return run(dims=untold(open_graph, self.sizes), **self.feeds)
        except TfgraphError:  # it runs what the outputs need, and not every value beside that
            return {}

    def close(self) -> None:
        """Free what it compiled."""
        self.executable.close()
        if "replay" in self.__dict__:
            self.replay.close()


def reference_values(
    graph: Graph, weights: Weights, feeds: Mapping[str, NDArray], sizes: Mapping[str, int]
) -> dict[str, NDArray]:
    """What the reference computes for a graph, weights left out that are no outputs."""
    run = NumpyExecutable(graph, weights)
    names = {v.name for kernel in kernels(graph) for v in kernel.node.outputs}
    names |= {v.name for v in (*(i.value for i in graph.inputs), *graph.output_values)}
    found = run.trace(feeds, untold(graph, sizes), keep=names)
    return {value.name: array for value, _, array in found}


@contextmanager
def open_side(
    opened: Opened,
    weights: Weights,
    target: Target,
    passes: str | None,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    artifact: str | Path | None = None,
) -> Generator[Side]:
    """What `compile` makes of the model for a backend, or the artifact; the model itself for the
    reference and for witnesses, who run the ONNX file that it was read from where there is one."""
    pipeline = passes or opened.passes
    ran: Sequence[Pass] | None = ()
    graph, original, fused = opened.graph, None, None
    if artifact is not None:
        loaded = load(artifact, threads=target.threads)
        executable: Executable = loaded
        tf32 = bool(loaded.manifest.get("cuda", {}).get("tf32"))
        target = Target(executable.target, threads=target.threads, tf32=tf32)
        fused = fuse(graph, target, pipeline)
        graph = _graph_of(artifact, fused.compiled)
        ran = parse_pipeline(pipeline) if graph is fused.compiled else None
    else:
        backend = find_backend(target.name, witnesses=True)
        if target.name not in (*WITNESSES, "numpy"):
            fused = fuse(graph, target, pipeline)
            graph, ran = fused.compiled, parse_pipeline(pipeline)
        if target.name in WITNESSES and opened.onnx is not None:
            original = opened.onnx
            from tfgraph.backends.original import OriginalFile  # needs onnx, as the file did

            executable = OriginalFile(graph, original, target.name)
        else:
            executable = backend.compile(graph, weights, target)
    side = Side(target.name, target, graph, weights, feeds, sizes, executable, ran, original)
    side.changes_empty_rows = fused is not None and fused.changes_empty_rows
    try:
        yield side
    finally:
        side.close()


def _graph_of(artifact: str | Path, fused: Graph) -> Graph:
    """The graph that an artifact was compiled from: that of the model where it is the same, which
    knows the places in the user's file. Raises TfgraphError for an artifact of another model."""
    file = Path(artifact) / layout.GRAPH
    text = file.read_text("utf-8")
    if text == print_graph(fused):
        return fused
    graph = parse_graph(text, str(file))
    theirs = {p.value for p in graph.params}, {i.value for i in graph.inputs}
    ours = {p.value for p in fused.params}, {i.value for i in fused.inputs}
    names = [o.name for o in graph.outputs]
    if theirs[0] <= ours[0] and theirs[1] == ours[1] and names == [o.name for o in fused.outputs]:
        return graph
    raise TfgraphError(
        f"{artifact} was compiled from another model",
        hint="compile the model again, or name the one that the artifact was made of",
    )
