"""What `compare` found, and how it prints. May import: blame, bounds, part, runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import of_worst
from tfgraph.runtime.columns import columns

if TYPE_CHECKING:
    from tfgraph.api.blame import Judgement
    from tfgraph.api.bounds import Difference
    from tfgraph.api.part import Kernel
    from tfgraph.backends.base import Weights

NDArray = np.ndarray[Any, Any]
_NUMBERS = ("isolated", "isolated_max", "accumulated", "bound")


@dataclass(frozen=True)
class Origin:
    """The op that made a value, and its place in the user's file, "" where that is not known."""

    op: str
    place: str


@dataclass(frozen=True)
class Reproduction:
    """A kernel that is wrong alone: the backend, the weights it reads, its inputs and the sizes."""

    kernel: Kernel
    backend: str
    threads: int | None
    weights: Weights
    arrays: Mapping[str, NDArray]
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Divergence:
    """The first culprit of a difference.

    `kind` says what it is: a `kernel` that is wrong on the reference's inputs; a `weight` whose
    bytes are not the model's; a `pass` that changes the graph; a `node` of an ONNX file that was
    not translated right; `between kernels`, where each of them is right alone; or `accumulated`,
    where they are and their errors grow. `value` is what it makes, `op` by which op.

    Of a kernel on the reference's inputs, `isolated` is the error of the element that is furthest
    beyond its `bound`, at `worst_index`, and `isolated_max` the largest error of any. `accumulated`
    is the largest on what the kernels before it gave.
    """

    value: str
    op: str
    location: str | None
    isolated: float | None
    accumulated: float
    bound: float
    kind: str = "kernel"
    worst_index: tuple[int, ...] = ()
    why: str = ""
    reproduction: Reproduction | None = None
    isolated_max: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The object under "first_divergence"."""
        numbers = {k: _finite(getattr(self, k)) for k in _NUMBERS}
        return {
            "kind": self.kind,
            "value": self.value,
            "op": self.op,
            "location": self.location,
            **numbers,
            "worst_index": list(self.worst_index),
            "why": self.why or None,
        }

    def __str__(self) -> str:
        place = f" at {self.location}" if self.location else ""
        what = f"%{self.value} = {self.op}{place}" if self.op else self.value + place
        rows = [("first culprit", f"{self.kind} {what}")]
        if self.isolated is not None and self.isolated_max is not None:
            worst = of_worst(self.isolated, self.bound, self.worst_index)
            rows += [
                ("worst element", worst),
                ("largest error", f"{self.isolated_max:.2e}, on the reference's inputs as that is"),
                (
                    "accumulated",
                    f"{self.accumulated:.2e}, the largest on what kernels before it gave",
                ),
            ]
        rows += [("", self.why)] if self.why else []
        return "\n".join(f"  {label:13}  {text}" for label, text in rows)


@dataclass(frozen=True)
class Comparison:
    """The report of `compare`; prints as a table.

    Of the `of` values that the second backend computes, `intermediates` were compared; the rest,
    counted by reason in `left_out`, the first has not. `origins` says of each value which op made
    it and where. `judgements` are those of float64, of outputs that exceed their bounds.
    """

    ok: bool
    a: str
    b: str
    dims: Mapping[str, int]
    outputs: tuple[Difference, ...]
    intermediates: tuple[Difference, ...]
    of: int
    first_divergence: Divergence | None
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    origins: Mapping[str, Origin] = field(default_factory=lambda: dict[str, Origin]())
    judgements: tuple[Judgement, ...] = ()
    empty_rows: int = 0
    """Rows of outputs that depend on rows with no allowed key, which the passes made zeros: errors
    there are those of the graph after the passes, see `tfgraph.api.empty_rows`."""

    def to_json(self) -> dict[str, Any]:
        """The object that `compare --json` prints."""
        first = self.first_divergence
        return {
            "ok": self.ok,
            "a": self.a,
            "b": self.b,
            "outputs": [d.to_json() for d in self.outputs],
            "intermediates": {"compared": len(self.intermediates), "of": self.of},
            "empty_rows": self.empty_rows,
            "judgements": [j.to_json() for j in self.judgements],
            "first_divergence": None if first is None else first.to_json(),
        }

    def __str__(self) -> str:
        sizes = ", ".join(f"{n}={s}" for n, s in self.dims.items())
        lines = [f"{self.a} against {self.b}" + (f" at {sizes}" if sizes else "")]
        rows = [("value", "max abs", "<= bound", "", "op", "place")]
        named = {d.name for d in self.outputs}
        inner = [d for d in self.intermediates if d.name not in named]
        worst = sorted(inner, key=lambda d: d.severity, reverse=True)[:5]
        labels = [f"output {d.name}" for d in self.outputs] + [f"%{d.name}" for d in worst]
        for label, d in zip(labels, (*self.outputs, *worst), strict=True):
            origin = self.origins.get(label, Origin("", ""))
            numbers = f"{d.max_abs:.2e}", f"{d.bound:.2e}"
            rows.append((label, *numbers, self._verdict(label, d), origin.op, origin.place))
        lines += columns(rows, right=(1, 2))
        if self.of:
            reasons = "".join(f"; {n} {why}" for why, n in self.left_out.items())
            lines.append(f"{len(self.intermediates)} of {self.of} intermediates compared{reasons}")
        if self.empty_rows:
            noun = "row" if self.empty_rows == 1 else "rows"
            lines.append(f"{self.empty_rows} {noun} with no allowed key, as after the passes")
        lines += [f"{judgement.output}: {judgement}" for judgement in self.judgements]
        lines += [str(self.first_divergence)] if self.first_divergence is not None else []
        lines.append("equal within bounds" if self.ok else "DIFFERENT")
        return "\n".join(lines)

    def _verdict(self, label: str, d: Difference) -> str:
        honest = {f"output {j.output}" for j in self.judgements if not j.blamed}
        if d.ok:
            return "ok"
        return "honest" if self.ok or label in honest else f"differs at {list(d.worst_index)}"


def _finite(number: float | None) -> float | None:
    return number if number is not None and np.isfinite(number) else None
