"""Which kernel runs which op; the same for every target, whose kernels are behind `Kernels`.

An emitter reads a node's values, calls a kernel, and puts the results:

    @emitter("my_op", target="cpu")
    def my_op(low: Lowering, node: Node) -> None:
        kernel = low.kernel(("my_op", ...), lambda: make_prim_func(...), "my_op")
        (y,) = low.call(kernel, [low.value(v) for v in node.inputs], [node.output.type])
        low.put(node.output, y)

May import: lower, kernels, passes, ops, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfgraph.backends.tvm import attention_mask as kinds
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.kernels import AttentionShape, Kernels, LinearShape, NDArray, NormShape
from tfgraph.backends.tvm.lower import Lowering, emitter
from tfgraph.backends.tvm.module import Lowered, Module
from tfgraph.errors import TfgraphError
from tfgraph.ir import (
    Attr,
    DType,
    Exact,
    Graph,
    Mask,
    Node,
    TensorType,
    Value,
    as_dim,
    exact,
    product,
    tensor,
)
from tfgraph.ir import mask as masks
from tfgraph.ops.fused import LINEARS
from tfgraph.passes import NoMatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Dim

_MAX_HEAD_SIZE = 256
_ONE = as_dim(1)


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


def _float32(graph: Graph, node: Node) -> bool:
    return all(v.type.dtype == DType.float32 for v in (*node.inputs, *node.outputs))


def _const_width(graph: Graph, node: Node) -> bool:
    return _float32(graph, node) and node.inputs[0].type.shape[-1].is_const


def _has_weight(graph: Graph, node: Node) -> bool:
    return _float32(graph, node) and node.inputs[1] in graph.weight_values


def linear_shape(node: Node) -> LinearShape:
    """What the GEMM of one of `LINEARS` computes."""
    k, n = (int(d) for d in node.inputs[1].type.shape)
    activation: str | None = node.attrs.get("activation")  # type: ignore[assignment]
    gate = node.op == "gated_linear"
    return LinearShape(k, n, len(node.inputs) == 3 + gate, activation, gate)


@emitter(*LINEARS, when=_has_weight)
def linear(low: Lowering, node: Node) -> None:
    """The packed GEMM, with bias, activation and gate as its epilogue."""
    shape = linear_shape(node)
    name = node.op if shape.activation is None else f"linear_{shape.activation}"
    kernel = low.kernel(shape, lambda: low.kernels.linear(name, shape), name)
    x, weight, *rest = node.inputs
    gate, bias = (rest[:1], rest[1:]) if shape.gate else ([], rest)
    table = tied_table(low.graph, weight)
    packed = (
        low.weight(weight, *low.kernels.packed(shape.k, shape.n), low.kernels.pack)
        if table is None
        else tied_weight(low, table)
    )
    arguments = [low.rows(x), packed, *map(low.value, bias), *map(low.rows, gate)]
    rows = product(x.type.shape[:-1])
    (y,) = low.call(kernel, arguments, [tensor("f32", rows, shape.n)])
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
    layout, shape = low.kernels.packed(k, n)
    pack = low.kernels.pack
    return low.weight(table, f"transposed-{layout}", shape, lambda array: pack(array.T))


@emitter("matmul", "weighted_sum", when=_float32)
def matmul(low: Lowering, node: Node) -> None:
    """A product of two activations."""
    a, b = node.inputs
    shapes, skip_zeros = [_shape(a.type), _shape(b.type)], node.op == "weighted_sum"
    kernel = low.kernel(
        (node.op, *shapes), lambda: low.kernels.matmul(*shapes, skip_zeros=skip_zeros), node.op
    )
    low.put(node.output, low.call(kernel, [low.value(a), low.value(b)], [node.output.type])[0])


@emitter("layer_norm", "rms_norm", target="cpu", when=_float32)
@emitter("layer_norm", "rms_norm", when=_const_width)
def one_norm(low: Lowering, node: Node) -> None:
    """A norm of rows."""
    scale, bias = (*node.operands[1:], None, None)[:2]
    _emit_norm(low, node, node.operands[0], None, scale, bias, None, False)


@emitter("add_layer_norm", target="cpu", when=_float32)
@emitter("add_layer_norm", when=_const_width)
def add_layer_norm(low: Lowering, node: Node) -> None:
    """An add and the layer norm of its sum."""
    a, b, scale, bias, shift = (*node.operands, None, None, None)[:5]
    _emit_norm(low, node, a, b, scale, bias, shift, bool(node.attrs["keep_sum"]))


@emitter("add_rms_norm", target="cpu", when=_float32)
@emitter("add_rms_norm", when=_const_width)
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
        eps=_number(node.attrs["eps"]),
        add=b is not None,
        shift=shift is not None,
        scale=scale is not None,
        bias=bias is not None,
        keep_sum=keep_sum,
    )
    kernel = low.kernel(shape, lambda: low.kernels.norm(node.op, shape), node.op)
    arguments = [low.rows(v) for v in (a, b) if v is not None]
    arguments += [low.value(v) for v in (scale, bias, shift) if v is not None]
    rows = tensor("f32", product(a.type.shape[:-1]), width)
    results = low.call(kernel, arguments, [rows] * len(node.outputs))
    for value, var in zip(node.outputs, results, strict=True):
        low.put_rows(value, var)


def _last_axis(graph: Graph, node: Node) -> bool:
    last = node.inputs[0].type.rank - 1
    return _float32(graph, node) and node.attrs["axis"] in (-1, last)


@emitter("softmax", when=_last_axis)
def softmax(low: Lowering, node: Node) -> None:
    """A softmax over the last axis."""
    (x,) = node.inputs
    width = x.type.shape[-1]
    known = int(width) if width.is_const else None
    kernel = low.kernel(("softmax", known), lambda: low.kernels.softmax(known), "softmax")
    rows = tensor("f32", product(x.type.shape[:-1]), width)
    low.put_rows(node.output, low.call(kernel, [low.rows(x)], [rows])[0])


@emitter("reshape")
def reshape(low: Lowering, node: Node) -> None:
    """A view."""
    low.put(node.output, low.reshape(low.value(node.inputs[0]), node.output.type.shape))


@emitter("slice", when=lambda graph, node: _is_window(graph, node.output))
def window(low: Lowering, node: Node) -> None:
    """Columns that only attention, rotary and caches read: they read them where they are."""


def _is_window(graph: Graph, value: Value) -> bool:
    """Whether a value is a constant range of columns that only kernels read which may."""
    node = graph.producer.get(value)
    if node is None or node.op != "slice" or value.type.rank != 3:
        return False
    columns = node.attrs["axis"] in (-1, 2) and node.attrs["start"].is_const  # type: ignore[union-attr]
    users = graph.users.get(value, ())
    return (
        columns
        and value not in graph.output_values
        and node.inputs[0].type.shape[-1].is_const
        and all(_reads_windows(graph, user, value) for user in users)
    )


def _reads_windows(graph: Graph, user: Node, value: Value) -> bool:
    """Whether the kernel of a node reads this operand as columns of something wider."""
    if user.op == "rotary":
        return _float32(graph, user) and value not in user.inputs[1:]
    if user.op == "cache_append":
        return user.inputs[0] != value
    return user.op == "attention" and not _attention_misfit(user)


@emitter("rotary")
def rotary(low: Lowering, node: Node) -> None:
    """The generic kernel; x may be a window of a merged result."""
    x, *tables = node.inputs
    if not _is_window(low.graph, x):
        low.emit_generic(node)
        return
    source = low.graph.producer[x]
    attrs: dict[str, Attr] = {**node.attrs, "start": int(source.attrs["start"])}  # type: ignore[arg-type]
    low.emit_generic(replace(node, operands=(source.inputs[0], *tables), attrs=attrs))


def _attention_fits(graph: Graph, node: Node) -> bool:
    if reason := _attention_misfit(node):
        raise NoMatch(reason)
    return True


def _attention_misfit(node: Node) -> str:
    """Why the attention kernel cannot run a node; "" if it can."""
    q, k, v = node.inputs[:3]
    if other := [x for x in (q, k, v) if x.type.dtype != DType.float32]:
        return f"the kernel takes float32, not {other[0].type.dtype.value}"
    heads, kv_heads = int(node.attrs["heads"]), int(node.attrs["kv_heads"])  # type: ignore[arg-type]
    widths = q.type.shape[-1], v.type.shape[-1]
    if not all(width.is_const for width in widths):
        return "the width of heads is symbolic"
    width = max(int(widths[0]) // heads, int(widths[1]) // kv_heads)
    if width > _MAX_HEAD_SIZE:
        return f"heads of {width} are wider than the kernel's {_MAX_HEAD_SIZE}"
    mask = next((o for o in node.operands if isinstance(o, Mask)), None)
    for part in () if mask is None else mask.parts:
        if not _mask_fits(part, k.type.shape[1]):
            shape = next(iter(part.tensors())).type
            return f"the kernel cannot read a mask of {shape}, which has no element for each key"
    return ""


def _mask_fits(part: Mask, keys: Dim) -> bool:
    """Whether the kernel can read the mask's tensor: one element a key, at most rank 4."""
    if not isinstance(part, masks.Dense | masks.Bias):
        return True
    type_: TensorType = next(iter(part.tensors())).type
    return 1 <= type_.rank <= 4 and type_.shape[-1] == keys


@emitter("attention", when=_attention_fits)
def attention(low: Lowering, node: Node) -> None:
    """The flash kernel. Q, K and V may be windows of one merged result."""
    q, k, v = (place(low, x) for x in node.inputs[:3])
    heads, kv_heads = int(node.attrs["heads"]), int(node.attrs["kv_heads"])  # type: ignore[arg-type]
    shape = AttentionShape(
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
    lengths = node.inputs[0].type.shape[1], node.inputs[1].type.shape[1]
    plan, arrays, offsets = _plan(low, mask, *lengths)
    scale = _number(node.attrs["scale"])
    softcap = node.attrs["softcap"]
    cap = None if softcap is None else _number(softcap)
    kernel = low.kernel(
        ("attention", shape, plan, scale, cap),
        lambda: low.kernels.attention(shape, plan, scale, cap),
        "attention",
    )
    arguments = [q[0], k[0], v[0], *arrays, *(offsets[name] for name in plan.scalars)]
    low.put(node.output, low.call(kernel, arguments, [node.output.type])[0])


def place(low: Lowering, value: Value) -> tuple[Any, int, int]:
    """Where a value's columns are: a variable, its width, the first column. For kernels that read
    windows."""
    if _is_window(low.graph, value):
        node = low.graph.producer[value]
        base = node.inputs[0]
        start = node.attrs["start"]
        return low.value(base), int(base.type.shape[-1]), int(start)  # type: ignore[arg-type]
    return low.value(value), int(value.type.shape[-1]), 0


def _plan(
    low: Lowering, mask: Mask | None, queries: Dim, keys: Dim
) -> tuple[MaskPlan, list[Any], dict[str, Any]]:
    """The kernel's description of a mask, its arrays in order, and its scalars by name."""
    terms: list[kinds.Mask] = []
    biases: list[kinds.Bias] = []
    arrays: list[Any] = []
    bias_arrays: list[Any] = []
    names: dict[Dim, str] = {}

    def offset(dim: Dim | None) -> int | str:
        if dim is None or dim.is_const:
            return 0 if dim is None else int(dim)
        return names.setdefault(dim, f"offset{len(names)}")

    listed = False
    for part in () if mask is None else mask.parts:
        match part:
            case masks.Causal():
                terms.append(kinds.Causal(offset(part.offset)))
            case masks.Window(left=None, right=None):
                pass  # hides nothing
            case masks.Window():
                left, right = (None if d is None else int(d) for d in (part.left, part.right))
                terms.append(kinds.Window(left, right, offset(part.offset)))
            case masks.Padding() if part.keep.type.rank == 1:
                terms.append(kinds.Padding(part.keep.type.dtype.value))
                arrays.append(low.value(part.keep))
            case masks.Padding() if not listed:
                term, found = low.kernels.key_mask(low, part.keep)
                terms.append(term)
                arrays += found
                listed = True
            case masks.Padding():  # a second one: any tensor may mask pairs
                batch, keys = part.keep.type.shape
                terms.append(kinds.Dense(batch != _ONE, False, False, part.keep.type.dtype.value))
                arrays.append(low.reshape(low.value(part.keep), (batch, _ONE, _ONE, keys)))
            case masks.Prefix():
                terms.append(kinds.Prefix(offset(part.offset), part.length.type.dtype.value))
                arrays.append(low.value(part.length))
            case masks.Segments():
                dtypes = (t.type.dtype.value for t in (part.query, part.key))
                terms.append(kinds.Segments(*dtypes))
                arrays += [low.value(part.query), low.value(part.key)]
            case masks.Dense():
                axes, var = _broadcast_axes(low, part.allowed)
                terms.append(kinds.Dense(*axes))
                arrays.append(var)
            case masks.Bias():
                axes, var = _broadcast_axes(low, part.values)
                biases.append(kinds.DenseBias(*axes))
                bias_arrays.append(var)
            case masks.Relative():
                biases.append(kinds.ByDistance())
                bias_arrays.append(_by_distance(low, part, queries, keys))
            case masks.Alibi():
                biases.append(kinds.Alibi(offset(part.offset)))
                bias_arrays.append(low.value(part.slopes))
            case _:
                raise TfgraphError(f"the attention kernel does not know the mask {part}")
    plan = MaskPlan(tuple(terms), tuple(biases))
    return plan, [*arrays, *bias_arrays], {name: low.expr(dim) for dim, name in names.items()}


def _by_distance(low: Lowering, mask: masks.Relative, queries: Dim, keys: Dim) -> Any:
    """What a bias adds at each distance, [heads, queries + keys - 1]: it is that of one query, the
    last, before as many keys as there are distances. Made once for all that share it."""
    key = ("by distance", mask, queries, keys)
    if key not in low.shared:
        count, heads = queries + keys - 1, mask.table.type.shape[1]
        type_ = TensorType(DType.float32, (_ONE, heads, _ONE, count))
        zeros, added = Value("zeros", type_), Value("by_distance", type_)
        last = replace(mask, offset=(mask.offset or as_dim(0)) + queries - 1)
        attrs: dict[str, Attr] = {"shape": type_.shape, "value": exact(0), "dtype": type_.dtype}
        low.emit_generic(Node("full", (), (zeros,), attrs))
        low.emit_generic(Node("mask", (zeros, last), (added,), {}))
        low.shared[key] = low.reshape(low.value(added), (heads, count))
    return low.shared[key]


def _broadcast_axes(low: Lowering, value: Value) -> tuple[tuple[bool, bool, bool], Any]:
    """Whether a mask tensor differs by batch, head and query; and it as a tensor of rank 4."""
    shape = value.type.shape
    var = low.value(value)
    if len(shape) < 4:
        shape = (*[_ONE] * (4 - len(shape)), *shape)
        var = low.reshape(var, shape)
    return (shape[0] != _ONE, shape[1] != _ONE, shape[2] != _ONE), var


def _shape(type_: TensorType) -> tuple[int | str, ...]:
    return tuple(int(d) if d.is_const else str(d) for d in type_.shape)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, Exact) else float(value or 0.0)
