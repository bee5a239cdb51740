"""What a tensor holds, whatever axes it was given: the node behind broadcasts, and the number that
is repeated. May import: ir.
"""

from __future__ import annotations

from itertools import dropwhile
from typing import TYPE_CHECKING, Any

from tfgraph.ir import Exact, as_dim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Dim, Node, Operand, Value

    Makers = Mapping[Value, Node]

_ONE = as_dim(1)


def bare(value: Operand, makers: Makers) -> Node | None:
    """The node behind broadcasts, and reshapes that add or drop axes in front."""
    node = maker(value, makers)
    while node is not None and in_front(node):
        node = makers.get(node.inputs[0])
    return node


def constant(value: Operand, makers: Makers) -> Exact | None:
    """The number that an operand is or repeats, under whatever shape."""
    if isinstance(value, Exact):
        return value
    node = maker(value, makers)
    while node is not None and node.op in ("reshape", "broadcast_to"):
        node = makers.get(node.inputs[0])
    if node is None or node.op != "full":
        return None
    attrs: Any = node.attrs
    number: Exact = attrs["value"]
    return number


def in_front(node: Node) -> bool:
    """Whether a node changes nothing but axes in front: a broadcast, or such a reshape."""
    if node.op == "broadcast_to":
        return True
    return node.op == "reshape" and _trimmed(node.inputs[0]) == _trimmed(node.output)


def maker(value: Operand, makers: Makers) -> Node | None:
    """The node that makes an operand; None for inputs and for constants."""
    return makers.get(value)  # type: ignore[arg-type]


def _trimmed(value: Value) -> tuple[Dim, ...]:
    """Its shape without the axes of size 1 in front."""
    return tuple(dropwhile(lambda size: size == _ONE, value.type.shape))
