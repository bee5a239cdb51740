"""Graphs that become kernels of each kind, in any float type: calls at sizes above a thread's share
and a tile, and random calls of every op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from helpers.op_samples import SAMPLES, Sample

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType
from tfgraph.ir.mask import alibi, bias, causal, padding, relative

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Graph
    from tfgraph.ops import Traced

NO_KERNEL = (DType.float64, DType.int4)


def _sample(op: str, dtype: DType) -> Sample | None:
    """A random call of an op; None of one that takes no floats."""
    for seed in range(8):
        try:
            found = Sample(op, dtype, seed)
        except TfgraphError:
            continue
        values = [v.type.dtype for v in found.graph.values()]
        if dtype in values and not any(kind in NO_KERNEL for kind in values):
            return found
    return None


def _cases(dtype: DType) -> dict[str, Callable[[Any], Any]]:
    """Calls in each of the forms of a kernel."""

    def x(g: Any, *shape: Any, name: str = "x") -> Any:
        return g.input(name, dtype, *shape)

    def row(g: Any, name: str, size: int) -> Any:
        return g.input(name, dtype, size)

    def attended(g: Any, mask: Any = None) -> Any:
        q, k, v = (x(g, "a", "b", width, name=n) for n, width in (("q", 48), ("k", 24), ("v", 24)))
        return ops.attention(
            q, k, v, *([] if mask is None else [mask]), heads=4, kv_heads=2, scale=0.3
        )

    return {
        "layer_norm": lambda g: ops.layer_norm(
            x(g, "a", "b", 300), row(g, "s", 300), row(g, "t", 300), eps=1e-12
        ),
        "rms_norm": lambda g: ops.rms_norm(x(g, "a", "b", 1100), row(g, "s", 1100), eps=1e-6),
        "norm_of_any_width": lambda g: ops.layer_norm(x(g, "a", "b"), None, None, eps=1e-12),
        "add_layer_norm": lambda g: ops.add_layer_norm(
            x(g, "a", "b", 130), x(g, "a", "b", 130, name="y"), row(g, "s", 130), row(g, "t", 130),
            row(g, "shift", 130), eps=1e-12, keep_sum=True,
        ),
        "add_rms_norm": lambda g: ops.add_rms_norm(
            x(g, "a", "b", 64), x(g, "a", "b", 64, name="y"), row(g, "s", 64), eps=1e-5,
            keep_sum=True,
        ),
        "softmax": lambda g: ops.softmax(x(g, "a", "b", 300)),
        "softmax_of_any_width": lambda g: ops.softmax(x(g, 3, "b")),
        "softmax_of_columns": lambda g: ops.softmax(x(g, "a", 300, 3), axis=1),
        "gelu": lambda g: ops.linear_activation(
            x(g, "a", "b", 70), g.input("w", dtype, 70, 65), row(g, "t", 65), activation="gelu"
        ),
        "gated": lambda g: ops.gated_linear(
            x(g, "a", "b", 70), g.input("w", dtype, 70, 65), x(g, "a", "b", 65, name="gate")
        ),
        "matmul": lambda g: ops.matmul(x(g, "a", "b", 130), g.input("y", dtype, "a", 130, 66)),
        "attention": attended,
        "causal": lambda g: attended(g, causal()),
        "biased": lambda g: attended(
            g, padding(g.input("lengths", "i64", "a")) & bias(x(g, "b", "b", name="bias"))
        ),
        "alibi": lambda g: attended(g, alibi(row(g, "slopes", 4))),
        "relative": lambda g: attended(g, relative(g.input("table", dtype, 32, 4))),
        "gelu_alone": lambda g: ops.gelu(x(g, "a", "b", 75)),
        "sum": lambda g: ops.sum_(x(g, "a", "b", 300)),
        "cumsum": lambda g: ops.cumsum(x(g, 2, "b", 3), axis=1),
        "to_bool": lambda g: ops.cast(x(g, "a", "b"), dtype="bool"),
        "to_integer": lambda g: ops.cast(x(g, "a", "b"), dtype="i32"),
        "to_float32": lambda g: ops.cast(x(g, "a", "b"), dtype="f32"),
        "from_float32": lambda g: ops.cast(g.input("x", "f32", "a", "b"), dtype=dtype),
        "scaled": lambda g: ops.mul(x(g, "a", "b"), 0.1),
    }  # fmt: skip


def _graph_of(make: Callable[[Any], Any]) -> Graph:
    with ops.graph("case") as g:
        for symbol in ("a", "b"):
            g.symbol(symbol)
        made = make(g)
        results = made if isinstance(made, tuple) else (made,)
        for i, result in enumerate(results):
            g.output(f"y{i}", cast("Traced", result))
    return g.build()


def forms(dtype: DType) -> dict[str, Graph]:
    """A graph of each form of a kernel, by name; its symbols are a and b."""
    return {name: _graph_of(make) for name, make in _cases(dtype).items()}


def samples(dtype: DType) -> dict[str, Sample]:
    """A random call of each op that takes such floats, by its name."""
    found = {op: _sample(op, dtype) for op in SAMPLES}
    return {op: sample for op, sample in found.items() if sample is not None}
