"""The kernel that `compare` found, shrunk and saved: a model that stands alone and is still wrong.

May import: save, shrink, judge, api, backends, weights, ir, errors.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.api.part import untold
from tfgraph.api.replay import judge_kernel
from tfgraph.backends.base import Target, find_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import MissingTool
from tfgraph.fuzz.judge import Feeds, Wrong
from tfgraph.fuzz.save import compare_command, named_inputs, new_folder, write_files
from tfgraph.fuzz.shrink import Failure, shrink
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tfgraph.api.comparison import Divergence
    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph

    NDArray = np.ndarray[Any, Any]

FOLDER = Path("culprits")
_AS_IT_IS = ("--passes", "dce")
"""The kernel is compared as it was compiled, and not rewritten once more."""


@dataclass(frozen=True)
class SavedKernel:
    """A kernel in a folder: the model, and the command that shows it again, None where its inputs
    have a dtype that .npy files lack."""

    folder: Path
    model: Path
    text: str
    why: str
    compare: str | None

    def to_json(self) -> dict[str, Any]:
        """The object under "saved" in `compare --json`."""
        return {"folder": str(self.folder), "model": str(self.model), "compare": self.compare}


@dataclass(frozen=True)
class KernelJudge:
    """Compares kernels as they are with the reference, as `compare` does; `weights` None are
    seeded."""

    backend: str
    threads: int | None
    weights: Weights | None

    def check(self, graph: Graph, feeds: Feeds) -> list[Wrong]:
        """What is wrong; nothing where the backend does not take the graph."""
        weights = Seeded(graph.params) if self.weights is None else self.weights
        target = Target(self.backend, threads=self.threads)
        try:
            run = find_backend(self.backend, witnesses=True).compile(graph, weights, target)
        except MissingTool:
            raise
        except Exception:  # it compiled before: what is left of the graph is another failure
            return []
        with closing(run):
            return [
                w for sizes, arrays in feeds for w in self._at(run, graph, weights, sizes, arrays)
            ]

    def _at(
        self,
        run: Any,
        graph: Graph,
        weights: Weights,
        sizes: Mapping[str, int],
        arrays: Mapping[str, NDArray],
    ) -> list[Wrong]:
        dims = untold(graph, sizes)
        want = NumpyExecutable(graph, weights)(dims=dims, **arrays)
        got = run(dims=dims, **arrays)
        found = judge_kernel(graph, weights, arrays, sizes, want, got, self.backend)
        return [
            Wrong(
                d.name,
                sizes,
                f"off by {d.max_abs:.2e} at {list(d.worst_index)}, bound {d.bound:.2e}; {said}",
            )
            for d, said in found
        ]


def save_kernel(
    first: Divergence, parent: Path, plugins: Sequence[Path] = (), seconds: float = 15
) -> SavedKernel | None:
    """Shrink the kernel of a divergence and write it to a new folder in `parent`: with seeded
    weights if it is wrong with those too, else with its own. None where there is no such kernel.
    Raises OSError."""
    what = first.reproduction
    if what is None:
        return None
    graph = what.kernel.graph
    own = {p.value.name: what.weights[p.value.name] for p in graph.params}
    arrays = {name: what.arrays[name] for name in what.kernel.reads}
    seeded = KernelJudge(what.backend, what.threads, None)
    found = seeded.check(graph, [(what.sizes, arrays)])
    judge = seeded if found else KernelJudge(what.backend, what.threads, own)
    wrong = found[0] if found else Wrong(first.value, what.sizes, first.why)
    failure = Failure(0, graph, what.sizes, arrays, wrong, None if found else own)
    failure = named_inputs(shrink(failure, judge, seconds))
    folder = new_folder(parent, f"{first.value}-{what.backend}")
    files = write_files(failure, folder)
    command = compare_command(failure, folder, files, what.backend, plugins, _AS_IT_IS)
    text = (folder / "graph.tfg").read_text("utf-8")
    return SavedKernel(folder, folder / "model.yaml", text, failure.wrong.why, command)
