"""What conditions and sums of an exporter say about which keys a query may see.

A condition is followed through broadcasts and intersections down to comparisons of positions, which
are `causal` and `window`, and to masks [batch, keys], which are `padding`; what is not understood
stays a tensor. May import: positions, ops, ir.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tfgraph.ir import Dim, DType, Exact, Value, as_dim
from tfgraph.ir import mask as masks
from tfgraph.ops import Traced, current, logical_not
from tfgraph.ops.positions import Affine, affine
from tfgraph.passes.behind import bare, constant
from tfgraph.passes.windows import at_least_zero, joined, start_of, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Mask, Node, Operand, TensorType

_ZERO, _ONE = as_dim(0), as_dim(1)
_TRUE = Exact(Fraction(1))
_ZERO_OF_INTEGERS = Exact(Fraction(0))


@dataclass(frozen=True)
class Reader:
    """Reads what conditions say about queries and keys."""

    producer: Mapping[Value, Node]

    def hides(self, value: Value) -> bool:
        """Whether a value is a constant that hides a score it is added to, or stands in for."""
        return _hides(constant(value, self.producer))

    def hidden(self, value: Value, scores: TensorType) -> list[Mask] | None:
        """The masks that an added tensor is, if it is 0 where a score counts and a sentinel
        elsewhere."""
        node = self.bare(value)
        if node is None:
            return None
        if self.is_zero(value):
            return []
        if node.op == "where":
            condition, yes, no = node.inputs
            if self.is_zero(yes) and self.hides(no):
                return self.allowed(condition, scores)
            if self.is_zero(no) and self.hides(yes):
                return self.allowed(opposite(condition), scores)
            if self.hides(yes):
                return self._padded(condition, no, scores)
        if node.op == "mul":
            return self._scaled(node, scores)
        return None

    def chosen(self, value: Value, scores: TensorType) -> list[Mask] | None:
        """The masks that an added tensor is, if it is a bias where a score counts and a sentinel
        elsewhere."""
        node = self.bare(value)
        if node is None or node.op != "where":
            return None
        condition, yes, no = node.inputs
        if self.hides(yes) == self.hides(no):  # where both do, nothing is allowed more than another
            return None
        bias, allowed = (yes, condition) if self.hides(no) else (no, opposite(condition))
        return [*self.allowed(allowed, scores), masks.bias(Traced(current(), bias))]

    def _scaled(self, node: Node, scores: TensorType) -> list[Mask] | None:
        """(1 - keep) * -10000, of a keep of 0 and 1 that was an integer or a bool; or hide times
        that, of a hide that was a bool."""
        for factor, value in (node.operands, node.operands[::-1]):
            if _hides(constant(factor, self.producer)):
                return self._hiding(value, scores)
        return None

    def _hiding(self, value: Operand, scores: TensorType) -> list[Mask] | None:
        """The masks that floats of 0 and 1 are where 1 hides: 1 - keep, or a bool."""
        inner = self.bare(value)
        if inner is None:
            return None
        if inner.op == "cast" and inner.inputs[0].type.dtype == DType.bool_:
            return self.allowed(opposite(inner.inputs[0]), scores)
        if inner.op != "sub" or inner.operands[0] != _TRUE:
            return None
        return self._kept(inner.inputs[0], scores)

    def _padded(self, condition: Value, added: Value, scores: TensorType) -> list[Mask] | None:
        """where(added + keep == 0, -3e38, added): hidden is what `added` hides, and where it does
        not, what a keep of 0 and 1 does."""
        same = self.bare(condition)
        if same is None or same.op != "equal" or same.operands[1] != Exact(Fraction(0)):
            return None
        total = self.bare(same.inputs[0])
        if total is None or total.op != "add" or added not in total.inputs:
            return None
        hidden = self.hidden(added, scores)
        kept = self._kept(next((v for v in total.inputs if v != added), added), scores)
        return None if hidden is None or kept is None else [*hidden, *kept]

    def _kept(self, keep: Value, scores: TensorType) -> list[Mask] | None:
        """The masks that floats of 0 and 1 are, which were integers or bools; 1 is to be seen."""
        if constant(keep, self.producer) == _TRUE:
            return []
        node = self.bare(keep)
        if node is None:
            return None
        if node.op != "cast":  # the integers became floats before they got the axes of scores
            keys = self._keys(keep, scores)
            return _padding(keys) if keys is not None and keys.type.dtype.is_int else None
        source = node.inputs[0]
        if source.type.dtype.is_float:
            return None
        if source.type.dtype == DType.bool_:
            return self.allowed(source, scores)
        keys = self._keys(source, scores)
        return None if keys is None else _padding(keys)

    def allowed(self, condition: Value, scores: TensorType) -> list[Mask]:
        """The masks whose intersection a condition is."""
        return [m for part in self._parts(condition, scores) for m in whole(part, scores)]

    def _parts(self, condition: Value, scores: TensorType) -> list[Mask]:
        node = self.bare(condition)
        if node is not None:
            if node.op == "logical_and":
                return joined([m for v in node.inputs for m in self._parts(v, scores)])
            known = affine(node.output, self.producer)
            if known is not None and known.start == _ONE:  # true everywhere
                return []
            for read in (self._compared, self._shorter, self._prefix, self._segments):
                found = read(node, scores)
                if found is not None:
                    return found
        keys = self._keys(condition, scores)
        if keys is not None:
            return _padding(keys)
        return [masks.dense(Traced(current(), self._narrow(condition)))]

    def _compared(self, node: Node, scores: TensorType) -> list[Mask] | None:
        """A comparison of positions: `j < i + n` ends a window, `not i < j` is causal."""
        negated = node.op == "logical_not"
        less = self.bare(node.inputs[0]) if negated else node
        if less is None or less.op != "less":
            return None
        a, b = less.operands
        if negated:  # not a < b: a - b >= 0
            far = self._distance(a, b, scores)
            if far is not None:
                return far
        x, y = affine(a, self.producer), affine(b, self.producer)
        if x is None or y is None:
            return None
        if negated:
            return at_least_zero(x.combined(y, operator.sub), scores)
        gap = y.combined(x, operator.sub)
        start = start_of(x)
        return at_least_zero(Affine(gap.start - 1, gap.steps), scores, window=True, start=start)

    def _shorter(self, node: Node, scores: TensorType) -> list[Mask] | None:
        """j < length[batch]."""
        if node.op != "less" or not all(isinstance(o, Value) for o in node.operands):
            return None
        key, length = node.inputs
        at, rank = affine(key, self.producer), scores.rank
        if at is None or at.aligned(rank) != _unit(rank - 1, rank, scores.shape):
            return None
        source = self._source(length, (scores.shape[0], *[_ONE] * (rank - 1)), scores.shape[:1])
        return None if source is None else _padding(source)

    def _prefix(self, node: Node, scores: TensorType) -> list[Mask] | None:
        """j < length[batch], or causal."""
        if node.op != "logical_or":
            return None
        for one, other in (node.inputs, node.inputs[::-1]):
            short = self.bare(one)
            lengths = None if short is None else self._shorter(short, scores)
            match lengths, self.allowed(other, scores):
                case [masks.Padding(keep)], [masks.Causal(offset)]:
                    return [masks.prefix(keep, offset)]
                case _:
                    pass
        return None

    def _segments(self, node: Node, scores: TensorType) -> list[Mask] | None:
        """Equal ids of queries and keys."""
        if node.op != "equal" or not all(isinstance(o, Value) for o in node.operands):
            return None
        batch, *_, queries, keys = scores.shape
        ones = [_ONE] * (scores.rank - 2)
        for one, other in (node.inputs, node.inputs[::-1]):
            query = self._source(one, (batch, *ones[1:], queries, _ONE), (batch, queries))
            key = self._source(other, (batch, *ones, keys), (batch, keys))
            if query is not None and key is not None:
                return [masks.segments(*(Traced(current(), v) for v in (query, key)))]
        return None

    def _source(self, value: Value, shape: Any, source: Any) -> Value | None:
        """The integers of a shape `source` that a value of `shape` is, by axes of size 1."""
        if value.type.shape != shape or not value.type.dtype.is_int:
            return None
        node = self.producer.get(value)
        while value.type.shape != source:
            if node is None or node.op not in ("reshape", "cast"):
                return None
            value = node.inputs[0]
            node = self.producer.get(value)
        if node is not None and node.op == "cast" and node.inputs[0].type.dtype.is_int:
            value = node.inputs[0]  # positions are compared as i64
        return value if value.type.dtype.is_int else None

    def _distance(self, a: Any, b: Any, scores: TensorType) -> list[Mask] | None:
        """not a < |x|: |x| <= a, which is x <= a and -x <= a."""
        node = self.bare(b)
        if node is None or node.op != "abs":
            return None
        most, x = affine(a, self.producer), affine(node.inputs[0], self.producer)
        if most is None or x is None:
            return None
        windows: list[Mask] = []
        for side in (operator.sub, operator.add):
            found = at_least_zero(most.combined(x, side), scores, window=True)
            if found is None:
                return None
            windows += found
        return joined(windows)

    def _keys(self, value: Value, scores: TensorType) -> Value | None:
        """The mask [batch, keys] that a condition on keys alone is made of, as it is or by
        positions."""
        value = self._narrow(value)
        batch, keys = scores.shape[0], scores.shape[-1]
        if value.type.rank != scores.rank or not _is_row(value.type.shape, batch, keys):
            return None
        node = self._counted(value)
        while node is not None and node.op in ("reshape", "cast"):
            source = node.inputs[0]
            if node.op == "cast" and source.type.dtype.is_float:
                return None
            if source.type.shape == (batch, keys):
                return self.integer(source)
            node = self._counted(source)
        if node is None or node.op not in ("take", "take_at"):
            return None
        return self._table(node, batch, keys)

    def _table(self, node: Node, batch: Dim, keys: Dim) -> Value | None:
        """The mask [batch, keys] that a gather reads all of, row by row."""
        table, *indices = node.inputs
        shape = indices[0].type.shape if node.op == "take" else node.output.type.shape
        if not _is_row(shape, batch, keys):
            return None
        rank = len(shape)
        found = [affine(i, self.producer) for i in indices]
        places = [None if i is None else i.aligned(rank) for i in found]
        row, column = _unit(0, rank, shape), _unit(rank - 1, rank, shape)
        if node.op == "take_at":
            fits = table.type.shape == (batch, keys) and places == [row, column]
            return self.integer(table) if fits else None
        flat = Affine(
            _ZERO, tuple(keys * r + c for r, c in zip(row.steps, column.steps, strict=True))
        )
        inner = self.producer.get(table) if places == [flat] else None
        while inner is not None and inner.op == "reshape":
            table = inner.inputs[0]
            if table.type.shape == (batch, keys):
                return self.integer(table)
            inner = self.producer.get(table)
        return None

    def _narrow(self, value: Value) -> Value:
        """What was repeated."""
        node = self.producer.get(value)
        return node.inputs[0] if node is not None and node.op == "broadcast_to" else value

    def integer(self, value: Value) -> Value:
        """The integers that a bool mask was made of, or one of floats: not 0 is true."""
        node = self.producer.get(value)
        if node is not None and node.op == "cast" and not node.output.type.dtype.is_int:
            source = node.inputs[0]
            return source if source.type.dtype.is_int else value
        inner = None if node is None else self._not_zero(node)
        return value if inner is None else inner

    def _counted(self, value: Value) -> Node | None:
        """The node that makes a value, or the integers of which it says that they are not 0."""
        node = self.producer.get(value)
        inner = None if node is None else self._not_zero(node)
        return node if inner is None else self.producer.get(inner)

    def _not_zero(self, node: Node) -> Value | None:
        """The integers x of `not x == 0`."""
        equal = self.producer.get(node.inputs[0]) if node.op == "logical_not" else None
        if equal is None or equal.op != "equal" or _ZERO_OF_INTEGERS not in equal.operands:
            return None
        (x,) = equal.inputs
        return x if x.type.dtype.is_int else None

    def bare(self, value: Operand) -> Node | None:
        """The node behind broadcasts, and reshapes that add or drop axes in front."""
        return bare(value, self.producer)

    def is_zero(self, value: Value) -> bool:
        """Whether a value is 0 everywhere."""
        number = constant(value, self.producer)
        return number is not None and not number.factor


def opposite(condition: Value) -> Value:
    """Where a condition does not hold."""
    found: Any = logical_not(Traced(current(), condition))
    return found.value  # type: ignore[no-any-return]


def _hides(number: Exact | None) -> bool:
    return number is not None and float(number) <= masks.SENTINEL


def _padding(keep: Value) -> list[Mask]:
    return [masks.padding(Traced(current(), keep))]


def _unit(axis: int, rank: int, shape: tuple[Dim, ...]) -> Affine:
    """The index along one axis."""
    step = _ZERO if shape[axis] == _ONE else _ONE
    return Affine(_ZERO, tuple(step if i == axis else _ZERO for i in range(rank)))


def _is_row(shape: tuple[Dim, ...], batch: Dim, keys: Dim) -> bool:
    """[batch, ..., keys]: where it holds no more than these, one row for each in the batch."""
    return (shape[0], shape[-1]) == (batch, keys)
