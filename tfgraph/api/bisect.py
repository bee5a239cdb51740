"""`bisect`: the first wrong step between a model and its compiled graph: importer and passes.

May import: wrong_pass, comparison, import_check, feeds, backends, passes, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.feeds import feed
from tfgraph.api.source import Opened
from tfgraph.api.wrong_pass import Reference, Step, as_divergence, steps
from tfgraph.backends.base import WITNESSES
from tfgraph.errors import MissingTool
from tfgraph.passes import parse_pipeline
from tfgraph.runtime.columns import columns

if TYPE_CHECKING:
    from tfgraph.api.comparison import Divergence
    from tfgraph.api.import_check import ImportReport
    from tfgraph.api.source import Source
    from tfgraph.backends.base import Weights

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bisection:
    """What `bisect` found: the passes up to the first wrong one, of an ONNX file also the importer,
    `first` the culprit; prints as a table."""

    dims: Mapping[str, int]
    imported: ImportReport | None
    steps: tuple[Step, ...]
    first: Divergence | None

    @property
    def ok(self) -> bool:
        """Whether every step is right."""
        return self.first is None

    def to_json(self) -> dict[str, Any]:
        """The object that `compare --bisect passes --json` prints."""
        return {
            "ok": self.ok,
            "dims": dict(self.dims),
            "import": None if self.imported is None else self.imported.to_json(),
            "passes": [step.to_json() for step in self.steps],
            "first_divergence": None if self.first is None else self.first.to_json(),
        }

    def __str__(self) -> str:
        sizes = ", ".join(f"{n}={s}" for n, s in self.dims.items())
        lines = ["the reference after every pass" + (f", at {sizes}" if sizes else "")]
        rows: list[tuple[str, ...]] = [("pass", "max abs", "<= bound", "", "exact check")]
        if self.imported is not None:
            rows.append(("import", "", "", _verdict(self.imported.first), str(self.imported)))
        for step in self.steps:
            if not step.changed:
                rows.append((step.name, "", "", "", "changes nothing"))
                continue
            d = step.worst
            numbers = ("", "") if d is None else (f"{d.max_abs:.2e}", f"{d.bound:.2e}")
            proof = "" if step.proof is None else str(step.proof)
            rows.append((step.name, *numbers, _verdict(step.culprit), proof))
        lines += columns(rows, right=(1, 2))
        lines += [] if self.first is None else [str(self.first)]
        lines.append("every step is right" if self.ok else "WRONG")
        return "\n".join(lines)


def _verdict(wrong: object) -> str:
    return "ok" if wrong is None else "wrong"


def bisect(
    source: Source,
    inputs: Mapping[str, NDArray] | None = None,
    *,
    weights: Weights | None = None,
    dims: Mapping[str, int] | None = None,
    passes: str | None = None,
    seed: int = 0,
    witness: str | None = None,
) -> Bisection:
    """Run the reference after every pass, and check each exactly; name the first wrong pass, its
    rule, and the node in the user's file. Arguments are those of `compare`.

    Of an ONNX file every node's translation is compared with `witness` first: `onnxruntime`, or
    `onnx-reference` where that is not installed. Raises TfgraphError, MissingTool.
    """
    fed = feed(source, weights, inputs, dims, seed)
    opened, arrays, feeds, sizes = fed.opened, fed.weights, fed.feeds, fed.sizes
    graph = opened.graph
    imported = _imported(opened, arrays, feeds, sizes, witness)
    if imported is not None and imported.first is not None:
        return Bisection(sizes, imported, (), imported.first)
    pipeline = parse_pipeline(opened.passes if passes is None else passes)
    found = tuple(steps(Reference(graph, arrays, feeds, sizes), pipeline))
    wrong = next((step for step in found if step.culprit is not None), None)
    return Bisection(sizes, imported, found, None if wrong is None else as_divergence(wrong))


def _imported(
    opened: Opened,
    weights: Weights,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    witness: str | None,
) -> ImportReport | None:
    """How an ONNX file was translated, by the witness that is asked for or else the first that runs
    it."""
    if opened.onnx is None:
        return None
    from tfgraph.api.import_check import check_import  # needs onnx, as the file did

    names = (witness,) if witness else tuple(WITNESSES)
    for name in names[:-1]:
        try:
            return check_import(opened.onnx, name, opened.graph, weights, feeds, sizes)
        except MissingTool:
            continue
    return check_import(opened.onnx, names[-1], opened.graph, weights, feeds, sizes)
