"""The table of what our ops are in ONNX: a function for each op, and from which version on.

    @exports("relu")
    def relu(to: Emitter, node: Node, x: str) -> str:
        return to.node("Relu", x)

Operands are names of ONNX values: numbers are constants by then, "" is an operand that is left out,
and a mask holds names in place of values. May import: ir.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgraph.ir import DType

if TYPE_CHECKING:
    from tfgraph.ir import Node

Exporter = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """How an op is written, from version `since` of the operator set on."""

    since: int
    function: Exporter
    when: Callable[[Node], bool]


_TABLE: dict[str, list[Entry]] = {}


def exports(
    *ops: str, since: int = 0, when: Callable[[Node], bool] = lambda node: True
) -> Callable[[Exporter], Exporter]:
    """Decorator: the function writes these ops in versions of the operator set from `since` on,
    up to the next that has another, where `when` takes the node. Of several for one version the
    last one registered comes first. It returns the name of the result, or a tuple of names."""

    def register(function: Exporter) -> Exporter:
        for op in ops:
            entries = [Entry(since, function, when), *_TABLE.get(op, ())]
            _TABLE[op] = sorted(entries, key=lambda e: -e.since)  # of one version the last first
        return function

    return register


def find_exporter(node: Node, opset: int) -> Exporter | None:
    """The function that writes a node; None where its body has to."""
    entries = _TABLE.get(node.op, ())
    return next((e.function for e in entries if e.since <= opset and e.when(node)), None)


def not_f64(node: Node) -> bool:
    """Whether a fused operator of ONNX, whose constants are float32, is exact enough."""
    return node.output.type.dtype != DType.float64
