"""The emitter of attention: the kernel's shape, and its plan of the mask. May import: windows,
attention_fit, attention_mask, attention_plan, kernels, lower, passes, ir, errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfgraph.backends.tvm import attention_mask as kinds
from tfgraph.backends.tvm.attention_fit import attention_misfit
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.backends.tvm.lower import Lowering, emitter, number
from tfgraph.backends.tvm.windows import window_of
from tfgraph.errors import TfgraphError
from tfgraph.ir import Attr, DType, Graph, Mask, Node, TensorType, Value, as_dim, exact
from tfgraph.ir import mask as masks
from tfgraph.passes import NoMatch

if TYPE_CHECKING:
    from tfgraph.ir import Dim

_ONE = as_dim(1)


def _attention_fits(graph: Graph, node: Node) -> bool:
    if reason := attention_misfit(node):
        raise NoMatch(reason)
    return True


def attention_shape(graph: Graph, node: Node) -> AttentionShape:
    """The static sizes of a node's kernel. Q, K and V may be windows of one merged result."""
    heads, kv_heads = int(node.attrs["heads"]), int(node.attrs["kv_heads"])  # type: ignore[arg-type]
    (_, *q), (_, *k), (_, *v) = (window_of(graph, x) for x in node.inputs[:3])
    return AttentionShape(
        heads=heads,
        kv_heads=kv_heads,
        width=int(node.inputs[0].type.shape[-1]) // heads,
        value_width=int(node.inputs[2].type.shape[-1]) // kv_heads,
        q_pitch=q[0],
        k_pitch=k[0],
        v_pitch=v[0],
        q_offset=q[1],
        k_offset=k[1],
        v_offset=v[1],
        dtype=node.output.type.dtype.value,
    )


@emitter("attention", when=_attention_fits, floats=True)
def attention(low: Lowering, node: Node) -> None:
    """The flash kernel."""
    shape = attention_shape(low.graph, node)
    mask = next((o for o in node.operands if isinstance(o, Mask)), None)
    lengths = node.inputs[0].type.shape[1], node.inputs[1].type.shape[1]
    plan, arrays, offsets = _plan(low, mask, *lengths)
    scale = number(node.attrs["scale"])
    softcap = node.attrs["softcap"]
    cap = None if softcap is None else number(softcap)
    kernel = low.kernel(
        ("attention", shape, plan, scale, cap),
        lambda: low.kernels.attention(shape, plan, scale, cap),
        "attention",
    )
    read = [low.value(window_of(low.graph, x)[0]) for x in node.inputs[:3]]
    arguments = [*read, *arrays, *(offsets[name] for name in plan.scalars)]
    low.put(node.output, low.call(kernel, arguments, [node.output.type])[0])


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
                biases.append(kinds.DenseBias(*axes, part.values.type.dtype.value))
                bias_arrays.append(var)
            case masks.Relative():
                biases.append(kinds.ByDistance())
                bias_arrays.append(_by_distance(low, part, queries, keys))
            case masks.Alibi():
                biases.append(kinds.Alibi(offset(part.offset), part.slopes.type.dtype.value))
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
