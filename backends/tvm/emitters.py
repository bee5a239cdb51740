"""Which kernel runs which op; the same for every target, whose kernels are behind `Kernels`.

An emitter reads a node's values, calls a kernel, and puts the results:

    @emitter("my_op", target="cpu")
    def my_op(low: Lowering, node: Node) -> None:
        kernel = low.kernel(("my_op", ...), lambda: make_prim_func(...), "my_op")
        (y,) = low.call(kernel, [low.value(v) for v in node.inputs], [node.output.type])
        low.put(node.output, y)

May import: lower, the other emitters, kernels, module, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.backends.tvm import append_emitter, attention_emitter, windows
from tfgraph.backends.tvm.kernels import Kernels, LinearShape, NDArray, NormShape
from tfgraph.backends.tvm.lower import Lowering, emitter, number, one_float
from tfgraph.backends.tvm.module import Lowered, Module
from tfgraph.ir import Graph, Node, TensorType, Value, product, tensor
from tfgraph.ops.fused import LINEARS

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHERS = (append_emitter, attention_emitter, windows)  # importing them registers emitters


def lower(
    graph: Graph,
    weights: Mapping[str, NDArray],
    kernels: Kernels,
    functions: Mapping[str, Graph] | None = None,
) -> Lowered:
    """Lower a graph as `main`, and other functions by name, with the kernels of a target."""
    graphs = [graph, *(functions or {}).values()]
    linears = ((g, n) for g in graphs for n in g.nodes if n.op in LINEARS)
    tied = (tied_table(g, node.inputs[1]) for g, node in linears)
    module = Module(weights, kernels, frozenset(t for t in tied if t is not None))
    main = Lowering(graph, module).run()
    others = {name: Lowering(g, module).run(name) for name, g in (functions or {}).items()}
    return module.finish(main, others)


def _const_width(graph: Graph, node: Node) -> bool:
    return one_float(graph, node) and node.inputs[0].type.shape[-1].is_const


def _has_weight(graph: Graph, node: Node) -> bool:
    return one_float(graph, node) and node.inputs[1] in graph.weight_values


def linear_shape(node: Node) -> LinearShape:
    """What the GEMM of one of `LINEARS` computes."""
    k, n = (int(d) for d in node.inputs[1].type.shape)
    activation: str | None = node.attrs.get("activation")  # type: ignore[assignment]
    gate, dtype = node.op == "gated_linear", node.output.type.dtype.value
    return LinearShape(k, n, len(node.inputs) == 3 + gate, activation, gate, dtype)


@emitter(*LINEARS, when=_has_weight, floats=True)
def linear(low: Lowering, node: Node) -> None:
    """The packed GEMM, with bias, activation and gate as its epilogue."""
    shape = linear_shape(node)
    name = node.op if shape.activation is None else f"linear_{shape.activation}"
    kernel = low.kernel(shape, lambda: low.kernels.linear(name, shape), name)
    x, weight, *rest = node.inputs
    gate, bias = (rest[:1], rest[1:]) if shape.gate else ([], rest)
    table = tied_table(low.graph, weight)
    packed = (
        low.weight(weight, *low.kernels.packed(shape.k, shape.n, shape.dtype), low.kernels.pack)
        if table is None
        else tied_weight(low, table)
    )
    arguments = [low.rows(x), packed, *map(low.value, bias), *map(low.rows, gate)]
    rows = product(x.type.shape[:-1])
    (y,) = low.call(kernel, arguments, [tensor(shape.dtype, rows, shape.n)])
    low.put_rows(node.output, y)


def tied_table(graph: Graph, weight: Value) -> Value | None:
    """The parameter [n, k] whose transpose a weight [k, n] is: the table of a tied head."""
    node = graph.producer.get(weight)
    if node is None or node.op != "transpose" or list(node.attrs["perm"]) != [1, 0]:  # type: ignore[arg-type]
        return None
    return node.inputs[0] if node.inputs[0] in graph.param_values else None


def tied_weight(low: Lowering, table: Value) -> Any:
    """The transpose of a parameter [n, k] as `linear` reads it."""
    n, k = (int(d) for d in table.type.shape)
    layout, shape = low.kernels.packed(k, n, table.type.dtype.value)
    if layout == "columns" and shape == (n, k):
        return low.weight(table)
    pack = low.kernels.pack
    return low.weight(table, f"transposed-{layout}", shape, lambda array: pack(array.T))


@emitter("matmul", "weighted_sum", when=one_float, floats=True)
def matmul(low: Lowering, node: Node) -> None:
    """A product of two activations."""
    a, b = node.inputs
    shapes, skip_zeros = [_shape(a.type), _shape(b.type)], node.op == "weighted_sum"
    dtype = a.type.dtype.value
    kernel = low.kernel(
        (node.op, *shapes, dtype),
        lambda: low.kernels.matmul(*shapes, skip_zeros=skip_zeros, dtype=dtype),
        node.op,
    )
    low.put(node.output, low.call(kernel, [low.value(a), low.value(b)], [node.output.type])[0])


@emitter("layer_norm", "rms_norm", target="cpu", when=one_float, floats=True)
@emitter("layer_norm", "rms_norm", when=_const_width, floats=True)
def one_norm(low: Lowering, node: Node) -> None:
    """A norm of rows."""
    scale, bias = (*node.operands[1:], None, None)[:2]
    _emit_norm(low, node, node.operands[0], None, scale, bias, None, False)


@emitter("add_layer_norm", target="cpu", when=one_float, floats=True)
@emitter("add_layer_norm", when=_const_width, floats=True)
def add_layer_norm(low: Lowering, node: Node) -> None:
    """An add and the layer norm of its sum."""
    a, b, scale, bias, shift = (*node.operands, None, None, None)[:5]
    _emit_norm(low, node, a, b, scale, bias, shift, bool(node.attrs["keep_sum"]))


@emitter("add_rms_norm", target="cpu", when=one_float, floats=True)
@emitter("add_rms_norm", when=_const_width, floats=True)
def add_rms_norm(low: Lowering, node: Node) -> None:
    """An add and the RMS norm of its sum."""
    a, b, scale, shift = (*node.operands, None, None)[:4]
    _emit_norm(low, node, a, b, scale, None, shift, bool(node.attrs["keep_sum"]))


def _emit_norm(
    low: Lowering,
    node: Node,
    a: Any,
    b: Any,
    scale: Any,
    bias: Any,
    shift: Any,
    keep_sum: bool,
) -> None:
    width = a.type.shape[-1]
    shape = NormShape(
        kind="rms" if "rms" in node.op else "layer",
        width=int(width) if width.is_const else None,
        eps=number(node.attrs["eps"]),
        add=b is not None,
        shift=shift is not None,
        scale=scale is not None,
        bias=bias is not None,
        keep_sum=keep_sum,
        dtype=a.type.dtype.value,
    )
    kernel = low.kernel(shape, lambda: low.kernels.norm(node.op, shape), node.op)
    arguments = [low.rows(v) for v in (a, b) if v is not None]
    arguments += [low.value(v) for v in (scale, bias, shift) if v is not None]
    rows = tensor(shape.dtype, product(a.type.shape[:-1]), width)
    results = low.call(kernel, arguments, [rows] * len(node.outputs))
    for value, var in zip(node.outputs, results, strict=True):
        low.put_rows(value, var)


def _last_axis(graph: Graph, node: Node) -> bool:
    last = node.inputs[0].type.rank - 1
    return one_float(graph, node) and node.attrs["axis"] in (-1, last)


@emitter("softmax", when=_last_axis, floats=True)
def softmax(low: Lowering, node: Node) -> None:
    """A softmax over the last axis."""
    (x,) = node.inputs
    width = x.type.shape[-1]
    known, dtype = int(width) if width.is_const else None, x.type.dtype.value
    kernel = low.kernel(
        ("softmax", known, dtype), lambda: low.kernels.softmax(known, dtype), "softmax"
    )
    rows = tensor(dtype, product(x.type.shape[:-1]), width)
    low.put_rows(node.output, low.call(kernel, [low.rows(x)], [rows])[0])


@emitter("reshape")
def reshape(low: Lowering, node: Node) -> None:
    """A view."""
    low.put(node.output, low.reshape(low.value(node.inputs[0]), node.output.type.shape))


def _shape(type_: TensorType) -> tuple[int | str, ...]:
    return tuple(int(d) if d.is_const else str(d) for d in type_.shape)
