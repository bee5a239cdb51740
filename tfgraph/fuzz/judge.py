"""The fuzzer's judge: runs graphs on the reference and on a backend, and tells right from wrong.

The bound is the project's own, end to end, as in `compare` and `verify`. Where an output exceeds
it, or where none can be told, since roundings may turn a comparison, there is a second look,
against float64: a backend is blamed only when it is worse than honest arithmetic
(`tfgraph.api.rounding`). A backend that raises is blamed too. May import: api, backends, weights,
ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import difference, of_worst
from tfgraph.api.compile import compile
from tfgraph.api.part import only, untold
from tfgraph.api.rounding import against_float64
from tfgraph.backends.base import WITNESSES, Target, find_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import CheckFailed, MissingTool, TfgraphError
from tfgraph.rounding import end_to_end
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.backends.base import Executable, Weights
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]
Feeds = Sequence[tuple[Mapping[str, int], Arrays]]
_LONGEST = 2000  # characters of an error that a backend raises


@dataclass(frozen=True)
class Wrong:
    """An output that is wrong at some sizes; `output` is empty where the backend raised."""

    output: str
    sizes: Mapping[str, int]
    why: str


class Refused(TfgraphError):
    """A witness does not take the graph: nodes have no form in ONNX, or no kernel there."""


@dataclass
class Judge:
    """Compares a backend or a witness with the reference. It counts outputs, and those looked at
    twice; `notes` says what of these was right."""

    backend: str = "cpu"
    threads: int | None = None
    outputs: int = 0
    sensitive: int = 0
    notes: list[str] = field(default_factory=list[str])

    def check(self, graph: Graph, feeds: Feeds) -> list[Wrong]:
        """What is wrong at any of the sizes with their inputs. Raises MissingTool where the backend
        cannot run on this machine, Refused where a witness does not take the graph."""
        weights = Seeded(graph.params)
        try:
            run = self._compiled(graph, weights)
        except (MissingTool, Refused):
            raise
        except Exception as error:  # a compiler must not fail, in whatever way
            return [Wrong("", feeds[0][0], _raised("compile", error))]
        reference = NumpyExecutable(graph, weights)
        with closing(run):
            return [
                wrong
                for sizes, arrays in feeds
                for wrong in self._at(run, reference, sizes, arrays)
            ]

    def _compiled(self, graph: Graph, weights: Weights) -> Executable:
        target = Target(self.backend, threads=self.threads)
        if self.backend not in WITNESSES:
            return compile(graph, target, weights=weights)
        try:
            return find_backend(self.backend, witnesses=True).compile(graph, weights, target)
        except CheckFailed:  # the library finds the file that was written wrong
            raise
        except TfgraphError as error:
            raise Refused(error.message) from error

    def _at(
        self,
        run: Executable,
        reference: NumpyExecutable,
        sizes: Mapping[str, int],
        arrays: Arrays,
    ) -> list[Wrong]:
        graph, weights = reference.graph, reference.weights
        dims = untold(graph, sizes)
        expected = reference(dims=dims, **arrays)
        try:
            got = run(dims=dims, **arrays)
        except Exception as error:
            return [Wrong("", sizes, _raised("run", error))]
        values = {o.name: o.value.name for o in graph.outputs}
        kernels = None if self.backend in WITNESSES else self.backend
        bounds = end_to_end(graph, weights, arrays, sizes, kernels)
        found: list[Wrong] = []
        for name, want in expected.items():
            self.outputs += 1
            bound = bounds[values[name]]
            told = np.isfinite(bound)
            d = difference(name, want, got[name], bound if told else 0.0)
            if d.ok:
                continue
            self.sensitive += 1
            why = f"off by {of_worst(d.error, bound, d.worst_index)}"
            part = only(graph, name)
            honest = against_float64(part, weights, sizes, arrays, want, got[name])
            if honest is not None:
                why += (
                    f"; against float64 {honest.error:.2e}, the reference {honest.reference:.2e}, "
                    f"rounding {honest.allowed:.2e}"
                )
            if honest is not None and honest.ok:
                self.notes.append(f"{name} at {dict(sizes)}: {why}")
            else:
                found.append(Wrong(name, sizes, why))
        return found


def _raised(doing: str, error: Exception) -> str:
    return f"{doing}: {type(error).__name__}: {error}"[:_LONGEST]
