"""`Site`: one node of an ONNX file while it is translated, and what translators may ask of it.

A value is a tensor of the graph (`Traced`), a tensor of the file that no op has read yet
(`Stored`), or numbers known at import (`Known`). May import: file, known, constants, dims, ops, ir,
errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Exact, TensorType, as_dim
from tfgraph.onnx.constants import formula
from tfgraph.onnx.file import NEWEST, Stored, from_proto
from tfgraph.onnx.known import (
    LONGEST,
    Known,
    Undecided,
    from_array,
    known,
    shortest,
    size_of,
)
from tfgraph.ops import Traced
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.onnx.dims import Sizes
    from tfgraph.onnx.importer import Importer

Tensor = Traced | Stored | Known
NDArray = np.ndarray[Any, Any]
One = Callable[[Any], Any]
Two = Callable[[Any, Any], Any]
Exactly = One | Two | Callable[[Any, Any, Any], Any]
"""What an operator does to exact numbers."""

MOST_FLOATS = 8
"""Vectors of more floats are weights, and no numbers that sizes are computed with."""
_INEXACT = (Undecided, ValueError, ZeroDivisionError, OverflowError, TypeError, TfgraphError)


@dataclass(frozen=True)
class Site:
    """A node that is being translated."""

    importer: Importer
    node: onnx.NodeProto
    opset: int

    @property
    def sizes(self) -> Sizes:
        """The symbols of the file."""
        return self.importer.sizes

    @property
    def results(self) -> int:
        """How many results the node has, those left out at the end not counted."""
        return len(self.node.output)

    @cached_property
    def schema(self) -> onnx.defs.OpSchema | None:
        """What ONNX says about the operator; None of one that is not ONNX's."""
        for version in (self.opset, NEWEST):  # files of old versions have some newer operators
            try:
                return onnx.defs.get_schema(self.node.op_type, version, self.node.domain)
            except onnx.defs.SchemaError:
                continue
        return None

    def has_attribute(self, name: str) -> bool:
        """Whether ONNX gives the operator such an attribute; so too where ONNX has no such one."""
        return self.schema is None or name in self.schema.attributes

    def attributes(self) -> dict[str, Any]:
        """The node's attributes by name. Raises TfgraphError for those of types not ONNX's."""
        found: dict[str, Any] = {}
        for attribute in self.node.attribute:
            known = None if self.schema is None else self.schema.attributes.get(attribute.name)
            kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
            if known is not None and str(known.type).rpartition(".")[2] != kind:
                raise TfgraphError(f"the attribute '{attribute.name}' is of another type")
            found[attribute.name] = attribute_value(attribute)
        return found

    def wants(self, i: int) -> bool:
        """Whether the node names result i."""
        return i < self.results and bool(self.node.output[i])

    def type(self, x: Tensor) -> TensorType:
        """The type of a value."""
        if isinstance(x, Stored):
            return TensorType(x.dtype, tuple(map(as_dim, x.shape)))
        return x.type

    def shape(self, x: Tensor) -> tuple[Dim, ...]:
        """The shape of a value."""
        return self.type(x).shape

    def tensor(self, x: Tensor) -> Any:
        """The value as a tensor of the graph."""
        if isinstance(x, Traced):
            return x
        if isinstance(x, Known):
            return self.importer.from_known(x, self)
        return self.importer.tensor(x)

    def known(self, x: Tensor | None) -> Known | None:
        """The numbers of a scalar or short vector that are known at import; else None."""
        if isinstance(x, Stored):
            return self.importer.known(x)
        return x if isinstance(x, Known) else None

    def numbers(self, x: Tensor, what: str) -> list[Any]:
        """The sizes or integers in a vector or scalar. Raises TfgraphError where they depend on
        what the inputs hold."""
        found = self.known(x)
        if found is None:
            raise TfgraphError(f"{what} depends on the elements of tensors, {_SHAPES}")
        return list(found.data.reshape(-1))

    def ints(self, x: Tensor, what: str) -> tuple[int, ...]:
        """The plain integers in a vector or scalar; raises TfgraphError."""
        numbers = self.numbers(x, what)
        if any(not isinstance(n, int) for n in numbers):
            raise TfgraphError(f"{what} depends on sizes of the inputs, {_SHAPES}")
        return tuple(numbers)

    def dims(self, x: Tensor, what: str) -> tuple[Dim, ...]:
        """The sizes in a vector; raises TfgraphError."""
        return tuple(as_dim(n) for n in self.numbers(x, what))

    def scalar(self, x: Tensor) -> Exact | None:
        """The exact number that a value of one element is; None if it is not known."""
        found = self.known(x)
        if found is None or found.data.size != 1 or not found.is_const:
            return None
        number = found.data.item()
        return number if isinstance(number, Exact) else Exact(as_fraction(number))

    def is_lowest(self, x: Tensor) -> bool:
        """Whether a value is the constant -inf, which the IR has in masks alone."""
        return (
            isinstance(x, Stored)
            and x.dtype.is_float
            and x.size == 1
            and bool(np.isneginf(x.read().astype(np.float64)).all())
        )

    def fold(self, dtype: DType, f: Exactly, *values: Tensor) -> Known | None:
        """`f` of the numbers, with broadcasting, where all are known and the result is exact."""
        given = [self.known(x) for x in values]
        data = [x.data for x in given if x is not None]
        if len(data) < len(given):
            return None
        try:
            result = np.frompyfunc(f, len(data), 1)(*data)
            return known(dtype, result)
        except _INEXACT:
            return None

    def kept(self, folded: Known, make: Callable[[], Any], *values: Tensor) -> Known:
        """Folded numbers with the formula that they came from, where an operand has one: positions
        as they are counted say more than the numbers do."""
        if not any(isinstance(x, Known) and x.make is not None for x in values):
            return folded
        return replace(folded, make=self.later(make))

    def later(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """What makes a tensor when it is first asked for, at the place of this node."""
        step = self.importer.step

        def made() -> Any:
            with self.importer.at_step(step):
                return make()

        return cache(made)

    def move(self, f: Callable[[Any], Any], *values: Tensor) -> Known | None:
        """`f` of the array of numbers, or of the list of several, where all are known and the
        result is a vector at most."""
        given = [self.known(x) for x in values]
        data = [x.data for x in given if x is not None]
        if len(data) < len(given):
            return None
        try:
            return known(
                self.type(values[0]).dtype, np.asarray(f(data if data[1:] else data[0]), object)
            )
        except (Undecided, ValueError, IndexError):
            return None

    def require_equal(self, a: Dim, b: Dim, why: str = "") -> None:
        """Two sizes are the same from now on; see `Sizes.require_equal`."""
        self.sizes.require_equal(a, b, f"{self}: {why}" if why else f"{self}: sizes differ")

    def broadcast(self, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
        """The common shape, where sizes that must be equal become so."""
        rank, one = max(map(len, shapes)), as_dim(1)
        result: list[Dim] = []
        for axis in range(-rank, 0):
            found = [s[axis] for s in shapes if len(s) >= -axis and s[axis] != one]
            for other in found[1:]:
                self.require_equal(found[0], other, "shapes do not broadcast")
            result.append(found[0] if found else one)
        return tuple(result)

    def operands(self, *values: Tensor) -> list[Any]:
        """Operands of an elementwise op: single numbers as such, the rest as tensors."""
        shape = self.broadcast(*map(self.shape, values))
        numbers = [self.scalar(x) for x in values]
        keep = [
            i
            for i, (x, number) in enumerate(zip(values, numbers, strict=True))
            if number is None or (len(self.shape(x)) == len(shape) and shape)
        ]
        tensors = [i for i in keep if numbers[i] is None]
        if not tensors or max(len(self.shape(values[i])) for i in tensors) < len(shape):
            tensors = keep or [0]
        return [
            self.tensor(x) if i in tensors else number
            for i, (x, number) in enumerate(zip(values, numbers, strict=True))
        ]

    def constant(self, proto: onnx.TensorProto) -> Tensor:
        """The value of an attribute that holds a tensor."""
        stored = from_proto(proto, f"the constant of {self}")
        return Stored(self.node.output[0], stored.dtype, stored.shape, stored.read)

    def __str__(self) -> str:
        return f"{self.node.op_type} '{self.node.name or next(iter(self.node.output), '')}'"


_SHAPES = "but a graph's shapes are known when it is compiled"


def as_fraction(number: Any) -> Any:
    """An int or bool as a rational."""
    from fractions import Fraction

    return Fraction(int(number))


def small(stored: Stored, make: Callable[[], Any]) -> Known | None:
    """The numbers of a small vector or scalar, which `make` makes a tensor; None for what is a
    weight."""
    most = MOST_FLOATS if stored.dtype.is_float else LONGEST
    if len(stored.shape) > 1 or stored.size > most:
        return None
    try:
        found = from_array(stored.read(), stored.dtype)
    except Undecided:
        return None
    return replace(found, make=make) if stored.size > 1 else found


def array_of(found: Known) -> NDArray:
    """The numbers, none of which is symbolic, as an array."""
    numbers = [float(n) if isinstance(n, Exact) else n for n in found.data.reshape(-1)]
    return np.array(numbers, numpy_dtype(found.dtype)).reshape(found.data.shape)


def size_tensor(size: Dim, sizes: Sizes) -> Any:
    """A size as i64[1], in the graph being built: the last of as many positions and one more."""
    low, _ = sizes.bounds(size)
    if low is not None and low >= 0:
        return ops.slice_(ops.iota(length=size + 1), axis=0, start=size, stop=size + 1)
    zero = as_dim(0)
    below = sum((Dim(((m, -c),)) for m, c in size.terms if c < 0), start=zero)
    above = sum((Dim(((m, c),)) for m, c in size.terms if c > 0), start=zero)
    if not below.terms or (sizes.bounds(below)[0] or -1) < 0:
        raise TfgraphError(f"the size {size} may be negative")
    return size_tensor(above, sizes) - size_tensor(below, sizes)


def elements(found: Known, sizes: Sizes) -> Any:
    """A tensor of sizes and integers, in the graph being built."""
    if not found.data.size:
        raise TfgraphError("a tensor without elements")
    parts: list[Any] = []
    for number in found.data.reshape(-1):
        if isinstance(number, Dim):
            parts.append(size_tensor(number, sizes))
        else:
            parts.append(ops.full(shape=(1,), value=int(size_of(number)), dtype=DType.int64))
    joined = parts[0] if len(parts) == 1 else ops.concat(*parts, axis=0)
    if found.dtype != DType.int64:
        joined = ops.cast(joined, dtype=found.dtype)
    return joined if found.data.ndim else ops.reshape(joined, shape=())


def literal(array: NDArray, dtype: DType) -> Any:
    """An array as a formula, in the graph being built; None if it follows none."""
    if not array.size:
        raise TfgraphError("a tensor without elements, which the IR does not have")
    if dtype.is_float and array.ndim == 1 and array.size > 1:
        return None  # weights, even where they are all 1
    return formula(array, dtype)


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """An attribute's value: numbers of floats as the decimals that they were written as."""
    kind = attribute.type
    match kind:
        case onnx.AttributeProto.FLOAT:
            return _float(attribute.f)
        case onnx.AttributeProto.FLOATS:
            return tuple(map(_float, attribute.floats))
        case onnx.AttributeProto.INT:
            return attribute.i
        case onnx.AttributeProto.INTS:
            return tuple(attribute.ints)
        case onnx.AttributeProto.STRING:
            return attribute.s.decode("utf-8", "replace")
        case onnx.AttributeProto.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
        case onnx.AttributeProto.TENSOR:
            return attribute.t
        case _:
            name = onnx.AttributeProto.AttributeType.Name(kind)
            raise TfgraphError(f"the attribute '{attribute.name}' is a {name.lower()}")


def _float(value: float) -> Any:
    return shortest(np.float32(value)) if np.isfinite(value) else value
