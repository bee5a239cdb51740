"""Which kernel runs which op on the CPU. May import: the kernels, lower, ops, ir.

An emitter reads a node's values, calls a kernel, and puts the results:

    @EMITTERS.register("my_op")
    def my_op(low: Lowering, node: Node) -> None:
        kernel = low.kernel(("my_op", ...), lambda: make_prim_func(...), "my_op")
        low.put(node.output, low.call(kernel, [low.value(v) for v in node.inputs], [node.output.type])[0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.backends.tvm.cpu import attention as attention_kernel
from tfgraph.backends.tvm.cpu import attention_mask as plans
from tfgraph.backends.tvm.cpu.gemm import gemm, pack_weight, packed_shape
from tfgraph.backends.tvm.cpu.matmul import matmul as matmul_kernel
from tfgraph.backends.tvm.cpu.norm import NormShape, norm
from tfgraph.backends.tvm.cpu.softmax import softmax as softmax_kernel
from tfgraph.backends.tvm.lower import EmitterSet, Lowering
from tfgraph.backends.tvm.target import CpuMachine, cpu_machine
from tfgraph.ir import DType, Exact, Graph, Mask, Node, TensorType, Value, product, tensor
from tfgraph.ir import mask as masks

if TYPE_CHECKING:
    from tfgraph.ir import Dim

EMITTERS = EmitterSet("cpu")
_MAX_HEAD_SIZE = 256


class CpuLowering(Lowering):
    """A lowering for a given CPU."""

    def __init__(self, graph: Graph, weights: Any, machine: CpuMachine | None = None) -> None:
        self.machine: CpuMachine
        super().__init__(graph, weights, EMITTERS, machine or cpu_machine())


def _float32(graph: Graph, node: Node) -> bool:
    return all(v.type.dtype == DType.float32 for v in (*node.inputs, *node.outputs))


def _const_width(graph: Graph, node: Node) -> bool:
    return _float32(graph, node) and node.inputs[0].type.shape[-1].is_const


def _has_weight(graph: Graph, node: Node) -> bool:
    return _float32(graph, node) and node.inputs[1] in graph.weight_values


@EMITTERS.register("linear", "linear_activation", when=_has_weight)
def linear(low: CpuLowering, node: Node) -> None:
    """The packed GEMM, with bias and activation as its epilogue."""
    x, weight, *bias = node.inputs
    k, n = (int(d) for d in weight.type.shape)
    activation = node.attrs.get("activation")
    kernel = low.kernel(
        ("gemm", k, n, bool(bias), activation),
        lambda: gemm(
            k=k,
            n=n,
            bias=bool(bias),
            activation=activation,  # type: ignore[arg-type]
            residual=False,
            machine=low.machine,
        ),
        node.op if activation is None else f"linear_{activation}",
    )
    packed = low.weight(
        weight,
        f"packed{packed_shape(k, n, low.machine)[2]}",
        packed_shape(k, n, low.machine),
        lambda array: pack_weight(array, low.machine),
    )
    rows = product(x.type.shape[:-1])
    arguments = [low.rows(x), packed, *(low.value(b) for b in bias)]
    (y,) = low.call(kernel, arguments, [tensor("f32", rows, n)])
    low.put_rows(node.output, y)


@EMITTERS.register("matmul", when=_float32)
def matmul(low: CpuLowering, node: Node) -> None:
    """A product of two activations."""
    a, b = node.inputs
    shapes = [_shape(a.type), _shape(b.type)]
    kernel = low.kernel(
        ("matmul", *shapes), lambda: matmul_kernel(*shapes, low.machine), "matmul"
    )
    low.put(node.output, low.call(kernel, [low.value(a), low.value(b)], [node.output.type])[0])


@EMITTERS.register("layer_norm", "rms_norm", when=_const_width)
def one_norm(low: CpuLowering, node: Node) -> None:
    """A norm of rows."""
    scale, bias = (*node.operands[1:], None, None)[:2]
    _emit_norm(low, node, node.operands[0], None, scale, bias, None, False)


@EMITTERS.register("add_layer_norm", when=_const_width)
def add_layer_norm(low: CpuLowering, node: Node) -> None:
    """An add and the layer norm of its sum."""
    a, b, scale, bias, shift = (*node.operands, None, None, None)[:5]
    _emit_norm(low, node, a, b, scale, bias, shift, bool(node.attrs["keep_sum"]))


@EMITTERS.register("add_rms_norm", when=_const_width)
def add_rms_norm(low: CpuLowering, node: Node) -> None:
    """An add and the RMS norm of its sum."""
    a, b, scale, shift = (*node.operands, None, None)[:4]
    _emit_norm(low, node, a, b, scale, None, shift, bool(node.attrs["keep_sum"]))


def _emit_norm(
    low: CpuLowering,
    node: Node,
    a: Any,
    b: Any,
    scale: Any,
    bias: Any,
    shift: Any,
    keep_sum: bool,
) -> None:
    """The kernel calls the row added before the norm its bias, and the one after it its shift."""
    shape = NormShape(
        kind="rms" if "rms" in node.op else "layer",
        width=int(a.type.shape[-1]),
        eps=_number(node.attrs["eps"]),
        add=b is not None,
        bias=shift is not None,
        scale=scale is not None,
        shift=bias is not None,
        keep_sum=keep_sum,
    )
    kernel = low.kernel(shape, lambda: norm(node.op, shape, low.machine), node.op)
    arguments = [low.rows(v) for v in (a, b) if v is not None]
    arguments += [low.value(v) for v in (shift, scale, bias) if v is not None]
    rows = tensor("f32", product(a.type.shape[:-1]), shape.width)
    results = low.call(kernel, arguments, [rows] * len(node.outputs))
    for value, var in zip(node.outputs, results, strict=True):
        low.put_rows(value, var)


def _last_axis(graph: Graph, node: Node) -> bool:
    last = node.inputs[0].type.rank - 1
    return _float32(graph, node) and node.attrs["axis"] in (-1, last)


@EMITTERS.register("softmax", when=_last_axis)
def softmax(low: CpuLowering, node: Node) -> None:
    """A softmax over the last axis."""
    (x,) = node.inputs
    width = x.type.shape[-1]
    known = int(width) if width.is_const else None
    kernel = low.kernel(
        ("softmax", known), lambda: softmax_kernel("softmax", low.machine, known), "softmax"
    )
    rows = tensor("f32", product(x.type.shape[:-1]), width)
    low.put_rows(node.output, low.call(kernel, [low.rows(x)], [rows])[0])


@EMITTERS.register("reshape")
def reshape(low: Lowering, node: Node) -> None:
    """A view."""
    low.put(node.output, low.reshape(low.value(node.inputs[0]), node.output.type.shape))


@EMITTERS.register("slice", when=lambda graph, node: _is_window(graph, node.output))
def window(low: Lowering, node: Node) -> None:
    """Columns that only attention reads: it reads them where they are."""


def _is_window(graph: Graph, value: Value) -> bool:
    """Whether a value is a constant range of columns that only attention kernels read."""
    node = graph.producer.get(value)
    if node is None or node.op != "slice" or value.type.rank != 3:
        return False
    columns = node.attrs["axis"] in (-1, 2) and node.attrs["start"].is_const  # type: ignore[union-attr]
    users = graph.users.get(value, ())
    return (
        columns
        and value not in graph.output_values
        and node.inputs[0].type.shape[-1].is_const
        and all(u.op == "attention" and _attention_fits(graph, u) for u in users)
    )


def _attention_fits(graph: Graph, node: Node) -> bool:
    q, k, v = node.inputs[:3]
    if not all(x.type.dtype == DType.float32 for x in (q, k, v)):
        return False
    heads, kv_heads = int(node.attrs["heads"]), int(node.attrs["kv_heads"])  # type: ignore[arg-type]
    widths = [q.type.shape[-1], v.type.shape[-1]]
    return all(w.is_const for w in widths) and max(
        int(widths[0]) // heads, int(widths[1]) // kv_heads
    ) <= _MAX_HEAD_SIZE


@EMITTERS.register("attention", when=_attention_fits)
def attention(low: CpuLowering, node: Node) -> None:
    """The flash kernel. Q, K and V may be windows of one merged result."""
    q, k, v = (_place(low, x) for x in node.inputs[:3])
    heads, kv_heads = int(node.attrs["heads"]), int(node.attrs["kv_heads"])  # type: ignore[arg-type]
    shape = attention_kernel.AttentionShape(
        heads=heads,
        kv_heads=kv_heads,
        width=int(node.inputs[0].type.shape[-1]) // heads,
        value_width=int(node.inputs[2].type.shape[-1]) // kv_heads,
        q_pitch=q[1],
        k_pitch=k[1],
        v_pitch=v[1],
        q_offset=q[2],
        k_offset=k[2],
        v_offset=v[2],
    )
    mask = next((o for o in node.operands if isinstance(o, Mask)), None)
    plan, arrays, offsets = _plan(low, mask)
    scale = _number(node.attrs["scale"])
    softcap = node.attrs["softcap"]
    cap = None if softcap is None else _number(softcap)
    kernel = low.kernel(
        ("attention", shape, plan, scale, cap),
        lambda: attention_kernel.attention(
            "attention", shape, plan, low.machine, scale=scale, softcap=cap
        ),
        "attention",
    )
    arguments = [q[0], k[0], v[0], *arrays, *(offsets[name] for name in plan.scalars)]
    low.put(node.output, low.call(kernel, arguments, [node.output.type])[0])


def _place(low: Lowering, value: Value) -> tuple[Any, int, int]:
    """Where a value's columns are: a variable, its width, the first column."""
    if _is_window(low.graph, value):
        node = low.graph.producer[value]
        base = node.inputs[0]
        start = node.attrs["start"]
        return low.value(base), int(base.type.shape[-1]), int(start)  # type: ignore[arg-type]
    return low.value(value), int(value.type.shape[-1]), 0


def _plan(low: CpuLowering, mask: Mask | None) -> tuple[plans.MaskPlan, list[Any], dict[str, Any]]:
    """The kernel's description of a mask, its arrays in order, and its scalars by name."""
    kinds: list[Any] = []
    biases: list[Any] = []
    arrays: list[Any] = []
    bias_arrays: list[Any] = []
    offsets: dict[str, Any] = {}

    def offset(dim: Dim | None) -> int | str:
        if dim is None or dim.is_const:
            return 0 if dim is None else int(dim)
        name = f"offset{len(offsets)}"
        name = next((n for n, e in offsets.items() if e is low.shared.get(("dim", dim))), name)
        offsets[name] = low.shared.setdefault(("dim", dim), low.expr(dim))
        return name

    for part in mask.parts if mask else ():
        match part:
            case masks.Causal():
                kinds.append(plans.Causal(offset(part.offset)))
            case masks.Window():
                left, right = (None if d is None else int(d) for d in (part.left, part.right))
                kinds.append(plans.Window(left, right, offset(part.offset)))
            case masks.Padding() if part.keep.type.rank == 2:
                kinds.append(plans.KeyList())
                arrays += _key_list(low, part.keep)
            case masks.Padding():
                kinds.append(plans.Padding(part.keep.type.dtype.value))
                arrays.append(low.value(part.keep))
            case masks.Prefix():
                kinds.append(plans.Prefix(offset(part.offset), part.length.type.dtype.value))
                arrays.append(low.value(part.length))
            case masks.Segments():
                kinds.append(plans.Segments(part.query.type.dtype.value))
                arrays += [low.value(part.query), low.value(part.key)]
            case masks.Dense():
                axes, var = _broadcast_axes(low, part.allowed)
                kinds.append(plans.Dense(*axes))
                arrays.append(var)
            case masks.Bias():
                axes, var = _broadcast_axes(low, part.values)
                biases.append(plans.DenseBias(*axes))
                bias_arrays.append(var)
            case masks.Alibi():
                biases.append(plans.Alibi(offset(part.offset)))
                bias_arrays.append(low.value(part.slopes))
    return plans.MaskPlan(tuple(kinds), tuple(biases)), [*arrays, *bias_arrays], offsets


def _key_list(low: CpuLowering, keep: Value) -> list[Any]:
    """The allowed keys and their number, once a forward for each mask tensor."""
    found: list[Any] | None = low.shared.get(("keys", keep))
    if found is None:
        dtype = keep.type.dtype.value
        kernel = low.kernel(
            ("compact_keys", dtype),
            lambda: attention_kernel.compact_keys("compact_keys", dtype),
            "compact_keys",
        )
        batch, keys = keep.type.shape
        types = [tensor("i32", batch, keys), tensor("i32", batch)]
        found = list(low.call(kernel, [low.value(keep)], types))
        low.shared["keys", keep] = found
    return found


def _broadcast_axes(low: Lowering, value: Value) -> tuple[tuple[bool, bool, bool], Any]:
    """Whether a mask tensor differs by batch, head and query; and it as a tensor of rank 4."""
    shape = value.type.shape
    var = low.value(value)
    if len(shape) < 4:
        shape = (*tensor("f32", *[1] * (4 - len(shape))).shape, *shape)
        var = low.reshape(var, shape)
    one = tensor("f32", 1).shape[0]
    return (shape[0] != one, shape[1] != one, shape[2] != one), var


def _shape(type_: TensorType) -> tuple[int | str, ...]:
    return tuple(int(d) if d.is_const else str(d) for d in type_.shape)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, Exact) else float(value or 0.0)
