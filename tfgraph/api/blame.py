"""Which of two results is wrong: the one that is worse than honest arithmetic in its dtype.

Each is compared with the same graph in float64, where nothing is rounded. A backend whose error
is no larger than that of the reference and what rounding may do (`rounding`) is not blamed, however
far it is from the other. May import: differ, rounding, part, backends.numpy, ir.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.differ import apart
from tfgraph.api.part import only, untold
from tfgraph.api.rounding import Float64
from tfgraph.backends.numpy import NumpyExecutable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Judgement:
    """What float64 says of an output: how far each backend is from it, infinite where it is no
    number there; what honest arithmetic may be; and who is farther."""

    output: str
    backends: tuple[str, ...]
    errors: tuple[float, ...]
    allowed: float
    blamed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object under "judgements"."""
        finite = [e if np.isfinite(e) else None for e in self.errors]
        return {
            "output": self.output,
            "errors": dict(zip(self.backends, finite, strict=True)),
            "allowed": self.allowed,
            "blamed": list(self.blamed),
        }

    def __str__(self) -> str:
        """`numpy 1.1e-07, cpu 3.2e-02 from float64, honest up to 4.0e-06: cpu to blame`."""
        pairs = zip(self.backends, self.errors, strict=True)
        said = ", ".join(f"{name} {error:.1e}" for name, error in pairs)
        verdict = " and ".join(self.blamed) + " to blame" if self.blamed else "none to blame"
        return f"{said} from float64, honest up to {self.allowed:.1e}: {verdict}"


def judge(
    graph: Graph,
    output: str,
    weights: Weights,
    sizes: Mapping[str, int],
    arrays: Mapping[str, NDArray],
    results: Sequence[tuple[str, NDArray]],
) -> Judgement:
    """Judge what backends, by name, give for an output of the graph. The first of equal names
    counts. Results that are no floats, or not finite where the reference is, are right where they
    are the reference's."""
    part = only(graph, output)
    inputs = {i.value.name: arrays[i.value.name] for i in part.inputs}
    expected = NumpyExecutable(part, weights)(dims=untold(part, sizes), **inputs)[output]
    exact = Float64(part, weights, sizes, arrays)
    errors: list[float] = []
    blamed: list[str] = []
    allowed = 0.0
    for name, got in results:
        honest = exact.judge(expected, got)
        if honest is None:
            errors.append(apart(expected, got))
            right = errors[-1] == 0
        else:
            errors.append(honest.error)
            allowed = honest.allowed + honest.reference
            right = honest.ok
        if not right:
            blamed.append(name)
    return Judgement(output, tuple(n for n, _ in results), tuple(errors), allowed, tuple(blamed))
