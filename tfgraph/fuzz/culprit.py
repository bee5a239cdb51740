"""The kernel that `compare` found, shrunk and saved: a model that stands alone and is still wrong.

May import: save, shrink, judge, api, backends, weights, ir, errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.fuzz.alone import KernelJudge
from tfgraph.fuzz.judge import Wrong
from tfgraph.fuzz.save import compare_command, named_inputs, new_folder, write_files
from tfgraph.fuzz.shrink import Failure, shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from tfgraph.api.comparison import Divergence

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
    seeded = KernelJudge(what.backend, what.threads)
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
