"""The fuzzer's judge: runs graphs on the reference and on a backend, and tells right from wrong.

The bound is the project's own, end to end, as in `compare` and `verify`. Where an output exceeds
it, or where none can be told, since roundings may turn a comparison, there is a second look,
against float64: a backend is blamed only when it is worse than honest arithmetic
(`tfgraph.api.rounding`). A backend that raises is blamed too. May import: api, backends, weights,
ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import difference
from tfgraph.api.compile import compile
from tfgraph.api.part import only, untold
from tfgraph.api.rounding import against_float64
from tfgraph.backends.base import Target
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import MissingTool
from tfgraph.fuzz.alone import each_alone
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


@dataclass
class Judge:
    """Compares a backend with the reference. It counts outputs, and those looked at twice; `notes`
    says what of these was right. With `alone` each kernel is compared by itself too, and counted.
    """

    backend: str = "cpu"
    threads: int | None = None
    alone: bool = False
    outputs: int = 0
    sensitive: int = 0
    kernels: int = 0
    notes: list[str] = field(default_factory=list[str])

    def check(self, graph: Graph, feeds: Feeds) -> list[Wrong]:
        """What is wrong at any of the sizes with their inputs. Raises MissingTool where the backend
        cannot run on this machine."""
        weights = Seeded(graph.params)
        try:
            run = compile(graph, Target(self.backend, threads=self.threads), weights=weights)
        except MissingTool:
            raise
        except Exception as error:  # a compiler must not fail, in whatever way
            return [Wrong("", feeds[0][0], _raised("compile", error))]
        try:
            found = [
                wrong
                for sizes, arrays in feeds
                for wrong in self._at(run, graph, weights, sizes, arrays)
            ]
        finally:
            run.close()
        return found + (self._alone(graph, weights, feeds) if self.alone else [])

    def _alone(self, graph: Graph, weights: Weights, feeds: Feeds) -> list[Wrong]:
        """The kernels that are beyond their isolated bounds."""
        found: list[Wrong] = []
        for sizes, op, d in each_alone(graph, weights, feeds, Target(self.backend)):
            self.kernels += 1
            if not d.ok:
                why = f"{op} alone is off by {d.max_abs:.2e} at {list(d.worst_index)}"
                found.append(Wrong(d.name, sizes, f"{why}, isolated bound {d.bound:.2e}"))
        return found

    def _at(
        self,
        run: Executable,
        graph: Graph,
        weights: Weights,
        sizes: Mapping[str, int],
        arrays: Arrays,
    ) -> list[Wrong]:
        dims = untold(graph, sizes)
        expected = NumpyExecutable(graph, weights)(dims=dims, **arrays)
        try:
            got = run(dims=dims, **arrays)
        except Exception as error:
            return [Wrong("", sizes, _raised("run", error))]
        values = {o.name: o.value.name for o in graph.outputs}
        bounds = end_to_end(graph, weights, arrays, sizes, self.backend)
        found: list[Wrong] = []
        for name, want in expected.items():
            self.outputs += 1
            bound = bounds[values[name]]
            told = np.isfinite(bound)
            d = difference(name, want, got[name], bound if told else 0.0)
            if d.ok:
                continue
            self.sensitive += 1
            why = f"off by {d.max_abs:.2e} at {list(d.worst_index)}, bound {bound:.2e}"
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
