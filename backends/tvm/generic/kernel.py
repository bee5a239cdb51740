"""A generic kernel under construction: the operands and results of a node as buffers of TVM.

Each op's emitter is a function `emit(kernel)`, registered by `@emitter("name")`; it says what every
element of the result is, and `kernel.loops` in which order. May import: tvm, tfgraph.ir, errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cuda.kernel import loop
from tfgraph.backends.tvm.cuda.vectors import copy_vector, load_vector, store_vector
from tfgraph.backends.tvm.generic.dims import to_expr
from tfgraph.backends.tvm.generic.inline import NOTHING, Inner, symbols_of
from tfgraph.backends.tvm.generic.loops import Loops, i64, product
from tfgraph.backends.tvm.narrow import computed, rounded, widened
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Exact, Mask, Node, TensorType, Value, map_operand
from tfgraph.ops.floats import held

if TYPE_CHECKING:
    from tfgraph.backends.tvm.generic.loops import Indices

Expr = Any
Emitter = Callable[["Kernel"], None]
EMITTERS: dict[str, Emitter] = {}

OTHERS = (DType.int64, DType.int32, DType.int8, DType.uint8, DType.bool_)
"""The element types beside floats."""


@dataclass(frozen=True)
class Tensor:
    """An operand or result: its type in the IR, its buffer, its shape as expressions.

    Elements are as one computes with them: floats of 16 bits as float32, unless they only move.
    """

    type: TensorType
    buffer: Any
    shape: tuple[Expr, ...]
    moves: bool

    @property
    def raw(self) -> Tensor:
        """The same, its elements as they are in memory, to be moved."""
        return replace(self, moves=True)

    @property
    def dtype(self) -> str:
        """The name in TVM, which is NumPy's, of the type in which elements are computed."""
        return computed(self.type.dtype.value)

    def __getitem__(self, indices: Sequence[Expr]) -> Expr:
        element = self.buffer[tuple(indices)] if indices else self.buffer[()]
        return element if self.moves else widened(element)

    def at(self, indices: Sequence[Expr]) -> Expr:
        """The element that stands at `indices` once the tensor is broadcast to that rank."""
        return self[self.place(indices)]

    def place(self, indices: Sequence[Expr]) -> list[Expr]:
        """Its own indices of that element."""
        own = indices[len(indices) - self.type.rank :]
        return [i64(0) if _is_one(d) else i for d, i in zip(self.type.shape, own, strict=True)]

    def address(self, indices: Sequence[Expr]) -> tuple[Any, Sequence[Expr]]:
        """Where the element of `at` stands in memory: a buffer, and the indices in it."""
        return self.buffer, self.place(indices)

    def store(self, indices: Sequence[Expr], value: Expr) -> None:
        """self[indices] = value, rounded to the element type."""
        T.buffer_store(self.buffer, rounded(value, self.type.dtype.value), list(indices))

    def flat(self) -> Tensor:
        """The same memory with one axis."""
        size = product(self.shape)
        buffer = T.decl_buffer((size,), self.type.dtype.value, data=self.buffer.data)
        IRBuilder.name(self.buffer.name, buffer)
        return replace(self, buffer=buffer, shape=(size,))


@dataclass(frozen=True)
class Moved(Tensor):
    """Elements of another tensor, read where they are: each stands `where` of its own index."""

    source: Tensor
    where: Callable[[Indices], Indices]

    def __getitem__(self, indices: Sequence[Expr]) -> Expr:
        source = self.source.raw if self.moves else self.source
        return source[self.where(tuple(indices))]

    def address(self, indices: Sequence[Expr]) -> tuple[Any, Sequence[Expr]]:
        return self.source.address(self.where(tuple(self.place(indices))))


@dataclass(frozen=True)
class Computed(Tensor):
    """Elements that are computed where they are read, and have no memory."""

    value: Callable[[Indices], Expr]

    def __getitem__(self, indices: Sequence[Expr]) -> Expr:
        return self.value(tuple(indices))


@dataclass(frozen=True)
class Kernel:
    """The node, its operands (tensors in place of values, in masks too) and its results."""

    node: Node
    loops: Loops
    sizes: Mapping[str, Expr]
    operands: tuple[Any, ...]
    results: tuple[Tensor, ...]

    @property
    def result(self) -> Tensor:
        """The only result, or the first."""
        return self.results[0]

    def attr(self, name: str) -> Any:
        """An attribute; a dimension as an expression."""
        value = self.node.attrs[name]
        return self.dim(value) if isinstance(value, Dim) else value

    def dim(self, dim: Dim) -> Expr:
        """A dimension as an expression."""
        return to_expr(dim, self.sizes)

    def element(self, operand: Tensor | Exact, indices: Sequence[Expr]) -> Expr:
        """An operand's element by broadcasting; of a scalar, its value."""
        if isinstance(operand, Tensor):
            return operand.at(indices)
        return constant(operand, self.node.inputs[0].type.dtype)

    def fill(self, value: Callable[[Indices], Expr]) -> None:
        """Each element of the result is `value` of its index."""
        result = self.result
        self.loops.each(result.shape, lambda at: result.store(at, value(at)))

    def map(self, function: Callable[..., Expr], given: Sequence[Any] | None = None) -> None:
        """Each element of the result is `function` of the elements of the operands, or of what is
        `given` in place of them, broadcast."""
        operands = self.operands if given is None else given
        chunk = self.loops.chunk(self.result.type)
        if chunk == 1:
            self.fill(lambda at: function(*(self.element(o, at) for o in operands)))
            return

        def neighbours(at: Indices) -> None:
            reads = [self._neighbours(o, at, chunk) for o in operands]
            made = self.loops.cells(self.result.dtype, chunk, "y")
            with loop("e", chunk, unroll=True) as e:
                T.buffer_store(made, function(*(read(e) for read in reads)), [e])
            store_vector(self.result.buffer, at, made, chunk)

        self._each_chunk(chunk, neighbours)

    def move(self, x: Tensor, place: Callable[[Indices], Indices]) -> None:
        """Each element of the result is that of x at `place` of its index, whose last index is the
        same."""
        widths = x.type.shape[-1:] + self.result.type.shape[-1:]
        chunk = self.loops.chunk(self.result.type) if len(set(widths)) == 1 else 1
        if chunk == 1:
            self.fill(lambda at: x.raw[place(at)])
            return
        buffer = self.result.buffer
        self._each_chunk(chunk, lambda at: copy_vector(buffer, at, x.buffer, place(at), chunk))

    def _each_chunk(self, chunk: int, body: Callable[[Indices], None]) -> None:
        """`body` of the index of the first of each `chunk` neighbours."""
        *outer, width = self.result.shape

        def first_of(at: Indices) -> None:
            body((*at[:-1], self.loops.hold(at[-1] * chunk, "column")))

        self.loops.each((*outer, T.truncdiv(width, i64(chunk))), first_of)

    def _neighbours(self, operand: Any, at: Indices, chunk: int) -> Callable[[Expr], Expr]:
        """The elements of an operand that belong to those of the result from `at` on, by number."""
        if not isinstance(operand, Tensor):
            return lambda e: self.element(operand, at)
        width = operand.type.shape[-1:]
        if not width or _is_one(width[0]):
            value = self.loops.hold(operand.at(at), operand.buffer.name)
            return lambda e: value
        if operand.type.dtype == self.result.type.dtype:
            buffer, place = operand.address(at)
            numbers = load_vector(f"own_{buffer.name}", chunk, buffer, *place)
            return lambda e: numbers[e]
        return lambda e: operand.at((*at[:-1], at[-1] + e))


def emitter(*names: str) -> Callable[[Emitter], Emitter]:
    """Register the function as the emitter of these ops."""

    def register(emit: Emitter) -> Emitter:
        EMITTERS.update(dict.fromkeys(names, emit))
        return emit

    return register


def kernel_key(node: Node, inner: Inner = NOTHING) -> tuple[Any, ...]:
    """Equal for nodes that one kernel computes: names of values take no part in it."""
    types = tuple(v.type for v in (*node.inputs, *node.outputs))
    shapes = tuple(str(map_operand(o, lambda v: Value("", v.type))) for o in node.operands)
    parts = tuple(kernel_key(inner[v], inner) if v in inner else None for v in node.inputs)
    return node.op, types, shapes, tuple(node.attrs.items()), parts


def build(node: Node, loops: Loops, inner: Inner = NOTHING) -> Any:
    """The PrimFunc of a node, which computes the operands in `inner` where it reads them. Raises
    TfgraphError for an op or dtype that has no generic kernel."""
    if node.op not in EMITTERS:
        raise TfgraphError(f"{node.op} has no generic kernel", node.location)
    for value in (*node.inputs, *node.outputs):
        if value.type.dtype not in (*loops.floats, *OTHERS):
            raise TfgraphError(
                f"{node.op} of {value.type.dtype} has no compiled kernel",
                node.location,
                f"convert {value} with cast(x, dtype=f32), or use --target numpy",
            )
    with IRBuilder() as builder:
        with T.prim_func(is_private=True, s_tir=True):
            T.func_name(node.op)
            T.func_attr({"tirx.noalias": True})
            if loops.scheduled:
                T.func_attr({"tirx.is_scheduled": True})
            kernel = _declare(node, loops, inner)
            with T.sblock("root"):
                T.reads()
                T.writes()
                EMITTERS[node.op](kernel)
    return builder.get()


def _declare(node: Node, loops: Loops, inner: Inner) -> Kernel:
    """The parameters: what it reads, symbols, outputs."""
    sizes: dict[str, Expr] = {name: tirx.Var(name, "int64") for name in symbols_of(node, inner)}
    numbers = count()

    def argument(name: str, value: Value) -> Tensor:
        shape = tuple(to_expr(d, sizes) for d in value.type.shape)
        buffer = T.buffer(shape, value.type.dtype.value, buffer_name=name)
        return Tensor(value.type, T.arg(name, buffer), shape, False)

    def given(value: Value) -> Tensor:
        if value in inner:
            return inlined(inner[value], loops, sizes, given)
        return argument(f"x{next(numbers)}", value)

    operands = tuple(_operand(o, given) for o in node.operands)
    for name, variable in sizes.items():
        T.arg(name, variable)
    outputs = [argument(f"y{i}", value) for i, value in enumerate(node.outputs)]
    return Kernel(node, loops, sizes, operands, tuple(outputs))


def _operand(operand: Any, given: Callable[[Value], Tensor]) -> Any:
    if isinstance(operand, Mask):
        return operand.map(given)
    return given(operand) if isinstance(operand, Value) else operand


@dataclass(frozen=True)
class _Inline(Kernel):
    """A kernel within another: it keeps what an element of its result is, and loops over none."""

    found: list[Tensor]

    def fill(self, value: Callable[[Indices], Expr]) -> None:
        type_, buffer, shape = self.result.type, self.result.buffer, self.result.shape
        self.found.append(Computed(type_, buffer, shape, False, value))

    def map(self, function: Callable[..., Expr], given: Sequence[Any] | None = None) -> None:
        operands = self.operands if given is None else given
        self.fill(lambda at: function(*(self.element(o, at) for o in operands)))

    def move(self, x: Tensor, place: Callable[[Indices], Indices]) -> None:
        self.found.append(Moved(self.result.type, x.buffer, self.result.shape, False, x, place))


def inlined(node: Node, loops: Loops, sizes: Mapping[str, Expr], given: Any) -> Tensor:
    """The result of a node as the kernel that reads it computes it, see `inline`."""
    operands = tuple(_operand(o, given) for o in node.operands)
    shape = tuple(to_expr(d, sizes) for d in node.output.type.shape)
    result = Tensor(node.output.type, None, shape, False)
    kernel = _Inline(node, loops, sizes, operands, (result,), [])
    EMITTERS[node.op](kernel)
    return kernel.found[0]


def constant(value: Exact, dtype: DType) -> Expr:
    """An exact number as the element type holds it."""
    if dtype.is_float:
        return tirx.const(held(value, dtype), computed(dtype.value))
    if dtype == DType.bool_:
        return tirx.const(value.factor != 0, dtype.value)
    return tirx.const(int(value.factor) if value.is_integer else int(float(value)), dtype.value)


def _is_one(dim: Dim) -> bool:
    return dim.is_const and int(dim) == 1
