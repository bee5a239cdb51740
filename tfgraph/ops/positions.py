"""What integer tensors say about positions: start + the sum of step * index over their axes. A bool
is one only where it is the same everywhere: 0 or 1.

Exporters compute masks from positions: `arange`, reshaped, multiplied, compared. Read as such sums,
comparisons of them are causal masks and windows, and indices that run along an axis read all of it.
May import: ir.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.ir import Dim, DType, Exact, Value, as_dim

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.ir import Node, Operand

_ZERO, _ONE = as_dim(0), as_dim(1)


@dataclass(frozen=True)
class Affine:
    """The element at index i is start + the sum of steps[axis] * i[axis]."""

    start: Dim
    steps: tuple[Dim, ...]

    def aligned(self, rank: int) -> Affine:
        """As broadcast to more axes in front."""
        return Affine(self.start, (_ZERO,) * (rank - len(self.steps)) + self.steps)

    def combined(self, other: Affine, f: Callable[[Dim, Dim], Dim]) -> Affine:
        """`f` of starts and steps, which broadcast."""
        rank = max(len(self.steps), len(other.steps))
        a, b = self.aligned(rank), other.aligned(rank)
        steps = tuple(f(x, y) for x, y in zip(a.steps, b.steps, strict=True))
        return Affine(f(a.start, b.start), steps)

    @property
    def is_const(self) -> bool:
        """Whether all elements are equal."""
        return not any(step.terms for step in self.steps)


def affine(value: Operand, producer: Mapping[Value, Node], depth: int = 60) -> Affine | None:
    """The positions that a value holds; None if they are no such sum."""
    if isinstance(value, Exact):
        return Affine(as_dim(int(value.factor)), ()) if value.is_integer else None
    node = producer.get(value) if isinstance(value, Value) else None
    if node is None or not depth or node.output.type.dtype.is_float:
        return None
    whole = _part(node, producer)
    if whole is not None:
        return affine(whole, producer, depth - 1)
    operands = [affine(o, producer, depth - 1) for o in node.operands]
    if any(o is None for o in operands):
        return None
    x = operands[0] if operands else None
    match node.op, x:
        case "iota", _:
            return Affine(_ZERO, (_ZERO if node.output.type.shape[0] == _ONE else _ONE,))
        case "full", _:
            number = node.attrs["value"]
            assert isinstance(number, Exact)
            return Affine(as_dim(int(number.factor)), (_ZERO,) * node.output.type.rank)
        case "reshape", Affine():
            return _reshaped(x, node)
        case "transpose", Affine():
            perm = node.attrs["perm"]
            assert isinstance(perm, tuple)
            return Affine(x.start, tuple(x.steps[int(p)] for p in perm))  # type: ignore[arg-type]
        case (("broadcast_to" | "cast"), Affine()):
            return None if _tells_zero(node) else x.aligned(node.output.type.rank)
        case "concat", Affine():
            return _joined([part for part in operands if part is not None], node)
        case "take_at", Affine():
            return _looked_up(x, [index for index in operands[1:] if index is not None])
        case "cumsum", Affine():
            return x if x.is_const and not x.start.terms else None
        case "equal", Affine():
            return _same(x, operands[1])
        case "logical_not", Affine():
            return Affine(_ONE - x.start, x.steps)
        case "slice", Affine():
            axis, start = node.attrs["axis"], node.attrs["start"]
            assert isinstance(axis, int)
            assert isinstance(start, Dim)
            steps = list(x.steps)
            if node.output.type.shape[axis] == _ONE:
                steps[axis] = _ZERO
            return Affine(x.start + x.steps[axis] * start, tuple(steps))
        case "neg", Affine():
            return Affine(-x.start, tuple(-s for s in x.steps))
        case (("add" | "sub" | "mul"), Affine()):
            return _arithmetic(node.op, x, operands[1])
        case _:
            return None


def _part(node: Node, producer: Mapping[Value, Node]) -> Value | None:
    """The part of a concatenation that a slice is."""
    joined = producer.get(node.inputs[0]) if node.op == "slice" else None
    if joined is None or joined.op != "concat":
        return None
    rank = node.output.type.rank
    axis, along = node.attrs["axis"], joined.attrs["axis"]
    assert isinstance(axis, int)
    assert isinstance(along, int)
    start = _ZERO
    for part in joined.inputs if axis % rank == along % rank else ():
        if node.attrs["start"] == start and part.type == node.output.type:
            return part
        start = start + part.type.shape[axis]
    return None


def _tells_zero(node: Node) -> bool:
    """Whether a node makes bools of integers."""
    return node.output.type.dtype == DType.bool_ != node.inputs[0].type.dtype


def _joined(parts: Sequence[Affine], node: Node) -> Affine | None:
    """Runs of which each goes on where the one before it ends."""
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    sizes = [value.type.shape[axis] for value in node.inputs]
    steps = next((p.steps for p, size in zip(parts, sizes, strict=True) if size != _ONE), None)
    if steps is None:
        return None
    start = parts[0].start
    for part, size in zip(parts, sizes, strict=True):
        own = list(part.steps)
        if size == _ONE:  # a single element does not say how it goes on
            own[axis] = steps[axis]
        if (part.start, tuple(own)) != (start, steps):
            return None
        start = start + steps[axis] * size
    return Affine(parts[0].start, steps)


def _looked_up(x: Affine, indices: Sequence[Affine]) -> Affine:
    """The elements at indices, which lie within: elsewhere there is no value."""
    found = Affine(x.start, ())
    for index, step in zip(indices, x.steps, strict=False):
        part = Affine(index.start * step, tuple(s * step for s in index.steps))
        found = found.combined(part, operator.add)
    return Affine(found.start, found.steps + x.steps[len(indices) :])


def _same(a: Affine, b: Affine | None) -> Affine | None:
    """1, where two are equal everywhere."""
    gap = None if b is None else a.combined(b, operator.sub)
    if gap is None or gap.start.terms or not gap.is_const:
        return None
    return Affine(_ONE, gap.steps)


def _arithmetic(op: str, a: Affine, b: Affine | None) -> Affine | None:
    if b is None:
        return None
    if op != "mul":
        return a.combined(b, (lambda x, y: x + y) if op == "add" else (lambda x, y: x - y))
    if not a.is_const:
        a, b = b, a
    if not a.is_const:
        return None
    b = b.aligned(max(len(a.steps), len(b.steps)))
    return Affine(a.start * b.start, tuple(a.start * s for s in b.steps))


def _reshaped(x: Affine, node: Node) -> Affine | None:
    """Where axes of size 1 come or go alone."""
    before, after = node.inputs[0].type.shape, node.output.type.shape
    kept = axes_kept(before, after)
    if kept is None:
        return None
    return Affine(x.start, tuple(_ZERO if axis is None else x.steps[axis] for axis in kept))


def axes_kept(before: Sequence[Dim], after: Sequence[Dim]) -> list[int | None] | None:
    """For each axis after a reshape the axis that it was, None for new ones of size 1; None where
    axes of other sizes are split or joined."""
    wide = [axis for axis, size in enumerate(before) if size != _ONE]
    if [before[axis] for axis in wide] != [size for size in after if size != _ONE]:
        return None
    left = iter(wide)
    return [None if size == _ONE else next(left) for size in after]
