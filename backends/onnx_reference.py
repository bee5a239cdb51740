"""ONNX's ReferenceEvaluator: runs the ONNX file that was written for a graph, in plain NumPy.

May import: onnx_file, errors; onnx.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.backends.onnx_file import OnnxFile
from tfgraph.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.backends.base import NDArray


@dataclass(repr=False)
class ReferenceExecutable(OnnxFile):
    """An ONNX file in ONNX's own evaluator, whose operators are the standard's formulas."""

    target: str = field(init=False, default="onnx-reference")
    library = "ONNX's ReferenceEvaluator"

    def start(self) -> Any:
        """The evaluator."""
        return start_evaluator(str(self.path))

    def results(self, session: Any, names: list[str], given: dict[str, NDArray]) -> Sequence[Any]:
        """See `OnnxFile.results`."""
        with np.errstate(all="ignore"):
            return session.run(names, given)  # type: ignore[no-any-return]


def start_evaluator(file: Any) -> Any:
    """An evaluator of a file or a ModelProto. Raises CheckFailed where it refuses it."""
    from onnx.reference import ReferenceEvaluator

    try:
        return ReferenceEvaluator(file)
    except Exception as cause:  # whatever the library raises
        raise CheckFailed(f"ONNX's ReferenceEvaluator refuses the file: {cause}") from cause
