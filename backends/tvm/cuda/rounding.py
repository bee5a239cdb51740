"""How the GPU's kernels round: what each declares, by op. Compiled without fast math.

May import: the kernels, emitters, rounding, ir.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tfgraph.backends.rounding import Accuracy, Rounding
from tfgraph.backends.tvm.cuda import attention, norm, softmax
from tfgraph.backends.tvm.narrow import NARROW
from tfgraph.ir import Node
from tfgraph.ops.fused import LINEARS

FUNCTIONS = {
    **{name: Accuracy(4) for name in ("exp", "tanh", "erf", "sin", "cos")},
    "log": Accuracy(2),
    "pow": Accuracy(8),
}
"""Those of CUDA's libraries for float, in units u: twice the ulps of the table "Mathematical
Functions" in the CUDA C++ programming guide (2 ulp, 1 ulp, 4 ulp). Roots and quotients are rounded
correctly."""

_NORMS = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")


def rounding(node: Node) -> Rounding:
    """How the kernel of a node rounds: in float32, of floats of 16 bits too, which it rounds to at
    the end."""
    found = _of_op(node)
    dtypes = {v.type.dtype.value for v in (*node.inputs, *node.outputs)}
    return found if dtypes.isdisjoint(NARROW) else replace(found, arithmetic="float32")


def _of_op(node: Node) -> Rounding:
    if node.op in LINEARS:
        return Rounding(functions=FUNCTIONS, steps={"pow": 2})
    if node.op in _NORMS:
        return Rounding(along=norm.depth, functions=FUNCTIONS, steps=norm.STEPS)
    if node.op == "softmax" and node.attrs["axis"] in (-1, node.output.type.rank - 1):
        return Rounding(along=softmax.depth, functions=FUNCTIONS)
    if node.op == "attention":
        return _attention(node)
    return Rounding(functions=FUNCTIONS, steps={"pow": 2})


def _attention(node: Node) -> Rounding:
    """Each further tile of keys takes what was added up so far times exp(old - new largest)."""
    widths = node.inputs[0].type.shape[-1], node.inputs[2].type.shape[-1]
    heads = node.attrs["heads"], node.attrs["kv_heads"]
    width, value_width = (int(w) // int(n) for w, n in zip(widths, heads, strict=True))  # type: ignore[arg-type]
    tiles = attention.Tiles(width, value_width)
    further = 1 + FUNCTIONS["exp"].relative
    return Rounding(
        weighted_sum=partial(attention.values_depth, tiles=tiles, further=further),
        along=partial(attention.weights_depth, tiles=tiles, further=further),
        functions=FUNCTIONS,
    )
