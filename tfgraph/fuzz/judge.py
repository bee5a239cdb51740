"""The fuzzer's judge: runs graphs on the reference and on a backend, and tells right from wrong.

The bound is the project's own, `tfgraph.api.bounds`, as in `compare` and `verify`. Where an output
exceeds it, the graph may be so ill-conditioned that its dtype cannot do better. So there is a
second look, against float64: a backend is blamed only when it is worse than honest arithmetic
(`tfgraph.api.rounding`). A backend that raises is blamed too. May import: api, backends, weights,
ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import difference, softmax_axis
from tfgraph.api.compile import compile
from tfgraph.api.part import only, untold
from tfgraph.api.rounding import against_float64
from tfgraph.backends.base import Target
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import MissingTool
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
    says what of these was right."""

    backend: str = "cpu"
    threads: int | None = None
    outputs: int = 0
    sensitive: int = 0
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
            return [
                wrong
                for sizes, arrays in feeds
                for wrong in self._at(run, graph, weights, sizes, arrays)
            ]
        finally:
            run.close()

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
        axes = {o.name: softmax_axis(graph, o.value) for o in graph.outputs}
        found: list[Wrong] = []
        for name, want in expected.items():
            self.outputs += 1
            d = difference(name, want, got[name], axes[name])
            if d.ok:
                continue
            self.sensitive += 1
            why = f"off by {d.max_abs:.2e} at {list(d.worst_index)}, bound {d.bound:.2e}"
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
