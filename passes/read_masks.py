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
from tfgraph.passes.windows import at_least_zero, joined, start_of, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Mask, Node, TensorType

SENTINEL = -1e4
"""Constants up to this one, added to a score, hide it: e^-10000 is 0 in every float type."""
_ZERO, _ONE = as_dim(0), as_dim(1)
_TRUE = Exact(Fraction(1))
_ZERO_OF_INTEGERS = Exact(Fraction(0))


@dataclass(frozen=True)
class Reader:
    """Reads what conditions say about queries and keys."""

    producer: Mapping[Value, Node]

    def hides(self, value: Value) -> bool:
        """Whether a value is a constant that hides a score it is added to, or stands in for."""
        number = self._constant(value)
        return number is not None and float(number) <= SENTINEL

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

    def _scaled(self, node: Node, scores: TensorType) -> list[Mask] | None:
        """(1 - keep) * -10000, of a keep of 0 and 1 that was an integer or a bool; or hide times
        that, of a hide that was a bool."""
        for factor, value in (node.operands, node.operands[::-1]):
            number = self._constant(factor) if isinstance(factor, Value) else factor
            if isinstance(number, Exact) and float(number) <= SENTINEL and isinstance(value, Value):
                return self._hiding(value, scores)
        return None

    def _hiding(self, value: Value, scores: TensorType) -> list[Mask] | None:
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
        if self._constant(keep) == _TRUE:
            return []
        node = self.bare(keep)
        if node is None:
            return None
        if node.op != "cast":  # the integers became floats before they got the axes of scores
            keys = self._keys(keep, scores) or ()
            whole = all(isinstance(m, masks.Padding) and m.keep.type.dtype.is_int for m in keys)
            return list(keys) if keys and whole else None
        source = node.inputs[0]
        if source.type.dtype.is_float:
            return None
        if source.type.dtype != DType.bool_:
            return self._keys(source, scores)
        return self.allowed(source, scores)

    def allowed(self, condition: Value, scores: TensorType) -> list[Mask]:
        """The masks whose intersection a condition is."""
        found = [whole(m, scores) for m in self._parts(condition, scores)]
        return [m for m in found if m is not None]

    def _parts(self, condition: Value, scores: TensorType) -> list[Mask]:
        node = self.bare(condition)
        if node is not None:
            if node.op == "logical_and":
                return joined([m for v in node.inputs for m in self._parts(v, scores)])
            if node.op == "full" and node.attrs["value"] == _TRUE:
                return []
            for read in (self._compared, self._shorter, self._prefix, self._segments):
                found = read(node, scores)
                if found is not None:
                    return found
        keys = self._keys(condition, scores)
        if keys is not None:
            return keys
        made = self.producer.get(condition)
        if made is not None and made.op == "broadcast_to":
            condition = made.inputs[0]
        return [masks.dense(Traced(current(), condition))]

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
        return None if source is None else [masks.padding(Traced(current(), source))]

    def _prefix(self, node: Node, scores: TensorType) -> list[Mask] | None:
        """j < length[batch], or causal."""
        if node.op != "logical_or":
            return None
        for one, other in (node.inputs, node.inputs[::-1]):
            short, rest = self.bare(one), self.bare(other)
            lengths = None if short is None else self._shorter(short, scores)
            after = None if rest is None else self._compared(rest, scores)
            match lengths, [whole(m, scores) for m in after or ()]:
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
        ones = [_ONE] * (scores.rank - 3)
        for one, other in (node.inputs, node.inputs[::-1]):
            query = self._source(one, (batch, *ones, queries, _ONE), (batch, queries))
            key = self._source(other, (batch, *ones, _ONE, keys), (batch, keys))
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
        node = self.bare(b) if isinstance(b, Value) else None
        if node is None or node.op != "abs":
            return None
        most, x = affine(a, self.producer), affine(node.inputs[0], self.producer)
        if most is None or x is None:
            return None
        sides = [most.combined(x, operator.sub), most.combined(x, operator.add)]
        found = [at_least_zero(side, scores, window=True) for side in sides]
        if any(side is None for side in found):
            return None
        windows = [m for side in found for m in side or ()]
        return joined(windows)

    def _keys(self, value: Value, scores: TensorType) -> list[Mask] | None:
        """A condition on keys alone: a mask [batch, keys], read as it is or by positions."""
        batch, keys = scores.shape[0], scores.shape[-1]
        if value.type.rank != scores.rank or value.type.shape[-1] != keys:
            return None  # its first axis is not the batch, or its last not the keys
        node = self._counted(value)
        while node is not None and node.op in ("reshape", "broadcast_to", "cast"):
            source = node.inputs[0]
            if node.op == "cast" and source.type.dtype.is_float:
                return None
            if node.op == "broadcast_to" and (
                source.type.rank != node.output.type.rank or source.type.shape[-1] != keys
            ):
                return None  # a condition on queries, repeated for each key, is none on keys
            if node.op == "reshape":
                if not _is_row(node.output.type.shape, batch, keys):
                    return None
                if source.type.shape == (batch, keys):
                    return [masks.padding(Traced(current(), self.integer(source)))]
            node = self._counted(source)
        if node is None or node.op not in ("take", "take_at"):
            return None
        table = self._table(node, batch, keys)
        return None if table is None else [masks.padding(Traced(current(), self.integer(table)))]

    def _table(self, node: Node, batch: Dim, keys: Dim) -> Value | None:
        """The mask [batch, keys] that a gather reads all of, row by row."""
        table, *indices = node.inputs
        found = [affine(i, self.producer) for i in indices]
        shape = indices[0].type.shape if node.op == "take" else node.output.type.shape
        if any(i is None for i in found) or not _is_row(shape, batch, keys):
            return None
        rank = len(shape)
        places = [i.aligned(rank) for i in found if i is not None]
        row, column = _unit(0, rank, shape), _unit(rank - 1, rank, shape)
        if node.op == "take_at":
            fits = table.type.shape == (batch, keys) and places == [row, column]
            return table if fits else None
        if node.attrs["axis"] != 0 or len(places) != 1:
            return None
        flat = Affine(
            _ZERO, tuple(keys * r + c for r, c in zip(row.steps, column.steps, strict=True))
        )
        inner = self.producer.get(table)
        while inner is not None and inner.op == "reshape":
            source = inner.inputs[0]
            if source.type.shape == (batch, keys):
                return source if places[0] == flat else None
            inner = self.producer.get(source)
        return None

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

    def bare(self, value: Value) -> Node | None:
        """The node behind broadcasts, and reshapes that add or drop axes in front."""
        node = self.producer.get(value)
        while node is not None and (
            node.op == "broadcast_to"
            or (
                node.op == "reshape"
                and _trimmed(node.inputs[0].type.shape) == _trimmed(node.output.type.shape)
            )
        ):
            node = self.producer.get(node.inputs[0])
        return node

    def _constant(self, value: Value) -> Exact | None:
        """The number that a value repeats, under whatever shape."""
        node = self.producer.get(value)
        while node is not None and node.op in ("reshape", "broadcast_to"):
            node = self.producer.get(node.inputs[0])
        number = None if node is None or node.op != "full" else node.attrs["value"]
        return number if isinstance(number, Exact) else None

    def is_zero(self, value: Value) -> bool:
        """Whether a value is 0 everywhere."""
        number = self._constant(value)
        return number is not None and not number.factor


def opposite(condition: Value) -> Value:
    """Where a condition does not hold."""
    found: Any = logical_not(Traced(current(), condition))
    return found.value  # type: ignore[no-any-return]


def _trimmed(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """A shape without the axes of size 1 in front."""
    wide = [i for i, size in enumerate(shape) if size != _ONE]
    return shape[wide[0] :] if wide else ()


def _unit(axis: int, rank: int, shape: tuple[Dim, ...]) -> Affine:
    """The index along one axis."""
    step = _ZERO if shape[axis] == _ONE else _ONE
    return Affine(_ZERO, tuple(step if i == axis else _ZERO for i in range(rank)))


def _is_row(shape: tuple[Dim, ...], batch: Dim, keys: Dim) -> bool:
    """[batch, 1, ..., 1, keys], perhaps with axes of size 1 behind it."""
    first, *rest = shape
    wide = [size for size in rest if size != _ONE]
    return first == batch and wide == [size for size in (keys,) if size != _ONE]
