"""Graphs as witnesses take them: each alone, since one node without a form in ONNX refuses all of a
batch, and without what docs/onnx-out.md says differs.

May import: inputs, judge, shrink.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgraph.fuzz.judge import Refused
from tfgraph.fuzz.shrink import Failure, alone, shrink
from tfgraph.ir import DType

if TYPE_CHECKING:
    from tfgraph.fuzz.inputs import Case
    from tfgraph.fuzz.judge import Judge
    from tfgraph.fuzz.shrink import Points
    from tfgraph.ir import Graph

_BESIDE = ("constant", "full", "minimum", "maximum")


@dataclass(frozen=True)
class Fault:
    """What a witness is known to do wrong: ops, in one dtype or in any."""

    backend: str
    ops: frozenset[str]
    dtype: DType | None
    why: str

    def shows(self, graph: Graph) -> bool:
        """Whether this is all that a graph, which was shrunk, computes. Limits stay in one where
        the error of small results is looked at, and large ones would hide it."""
        made = [n for n in graph.nodes if n.op not in _BESIDE]
        types = {v.type.dtype for n in made for v in n.outputs}
        ops = {n.op for n in made}
        return bool(ops) and ops <= self.ops and self.dtype in (None, *types)


FAULTS = (
    Fault("onnxruntime", frozenset({"max"}), None, "its ReduceMax loses NaN"),
    Fault("onnxruntime", frozenset({"softmax"}), None, "its Softmax loses NaN"),
    Fault(
        "onnxruntime",
        frozenset({"sigmoid", "silu", "quick_gelu"}),
        None,
        "its Sigmoid errs by 1e-7, however small the result is",
    ),
    Fault("onnx-reference", frozenset({"gelu", "erf"}), DType.float64, "its Erf is of float32"),
    Fault(
        "onnx-reference",
        frozenset({"rms_norm"}),
        DType.float16,
        "its RMSNormalization squares in float16",
    ),
)
"""Found by the fuzzer, in onnxruntime 1.32 and onnx 1.23; a failure that shrinks to one is counted,
and no failure."""

_VALUE = re.compile(r"^%\S+ = ")


def one_by_one(
    cases: Sequence[Case], judge: Judge, points: Points, at_most: int, seconds: float
) -> tuple[list[Failure], Counter[str]]:
    """The failures of cases on a witness, `at_most` of them, each shrunk for so many seconds; and
    how many cases it refuses, or is known to do wrong, by reasons."""
    found: list[Failure] = []
    refused: Counter[str] = Counter()
    for case in map(nothing_hidden, cases):
        try:
            failure = alone(case, judge, points)
        except Refused as error:
            refused[_VALUE.sub("", error.message)] += 1
            continue
        if failure is None or len(found) == at_most:
            continue
        failure = shrink(failure, judge, seconds)
        known = [f.why for f in FAULTS if f.backend == judge.backend and f.shows(failure.graph)]
        if known:
            refused[known[0]] += 1
        else:
            found.append(failure)
    return found, refused


def nothing_hidden(case: Case) -> Case:
    """The case with numbers where a mask of attention may hide NaN and infinities, which ONNX
    multiplies by 0."""
    read: set[str] = {v.name for n in case.graph.nodes if n.op == "attention" for v in n.inputs}
    fills = {
        name: ("normal", None) if kind == "hidden" or (kind == "special" and name in read) else fill
        for name, fill in case.fills.items()
        for kind in (fill[0],)
    }
    return replace(case, fills=fills)
