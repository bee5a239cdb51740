"""How the GPU's kernels round: what each declares, by op. Compiled without fast math.

May import: the kernels, emitters, rounding, ir.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tfgraph.backends.rounding import SMALLEST, TF32, UNITS, Accuracy, Rounding
from tfgraph.backends.tvm.cuda import attention, norm, softmax
from tfgraph.backends.tvm.cuda.flash_tile import (
    LEAST_TILE_KEYS,
    product_depth,
    values_depth,
    weights_depth,
)
from tfgraph.backends.tvm.cuda.vectors import vector_of
from tfgraph.backends.tvm.narrow import NARROW
from tfgraph.ir import Node
from tfgraph.ops.fused import LINEARS

ULPS = {"exp": 2, "tanh": 2, "erf": 2, "sin": 2, "cos": 2, "log": 1, "pow": 4}
"""How far the functions of CUDA's library for float may be from the correctly rounded result: the
table "Single-Precision Mathematical Standard Library Functions with Maximum ULP Error" of the CUDA
C++ programming guide, appendix "Mathematical Functions", full range, without fast math. NVIDIA's
tests for it are extensive, not exhaustive. Roots and quotients are rounded correctly."""

FUNCTIONS = {name: Accuracy(2 * ulps + 1) for name, ulps in ULPS.items()}
"""The same from the exact result, in units u of half an ulp: rounding correctly adds one."""

_NORMS = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")


PRODUCTS = (*LINEARS, "matmul")
"""The ops that tensor cores compute in 16 bits, and on request in tf32."""


def rounding(node: Node, *, tf32: bool = False) -> Rounding:
    """How the kernel of a node rounds: in float32, of floats of 16 bits too, which it rounds to at
    the end."""
    found = _of_op(node)
    if tf32 and node.op in PRODUCTS:
        return replace(found, factors=TF32, matmul=_tf32_depth)
    dtypes = {v.type.dtype.value for v in (*node.inputs, *node.outputs)}
    if dtypes.isdisjoint(NARROW):
        return found
    if node.op in PRODUCTS:
        found = replace(found, matmul=product_depth)
    return replace(found, arithmetic="float32")


def _tf32_depth(terms: int) -> float:
    """As `product_depth`, in steps of 8."""
    return 2 * (terms + -(-terms // 8))


def _of_op(node: Node) -> Rounding:
    if node.op in LINEARS:
        return Rounding(functions=FUNCTIONS, steps={"pow": 2})
    if node.op in _NORMS:
        along = partial(norm.depth, chunk=_chunk(node))
        return Rounding(along=along, functions=FUNCTIONS, steps=norm.STEPS)
    if node.op == "softmax" and node.attrs["axis"] in (-1, node.output.type.rank - 1):
        return Rounding(along=partial(softmax.depth, chunk=_chunk(node)), functions=FUNCTIONS)
    if node.op == "attention":
        return _attention(node)
    return Rounding(functions=FUNCTIONS, steps={"pow": 2})


def _chunk(node: Node) -> int:
    """How many neighbours of its rows a thread takes at a time."""
    type_ = node.inputs[0].type
    width = type_.shape[-1]
    return vector_of(type_.dtype.value, int(width)) if width.is_const else 1


def _attention(node: Node) -> Rounding:
    """Each further tile of keys takes what was added up so far times exp(old - new largest)."""
    dtype = node.inputs[0].type.dtype.value
    if dtype in NARROW:
        return _tensor_attention(dtype)
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


def _tensor_attention(dtype: str) -> Rounding:
    """On tensor cores weights are rounded to 16 bits before they meet a value. Their exponent has
    two constants rounded into it, and a step more where it was a score times the scale; 2^x itself
    is within 2^-22. The sum of weights divides by its inverse. Weights of parts of the keys are
    scaled once more where those are combined."""
    unit, steps = UNITS["float32"], 2
    weight = Accuracy(
        UNITS[dtype] / unit + 2.0**-22 / unit + steps,
        absolute=SMALLEST[dtype] / unit,
        argument=4,
    )
    depth = partial(values_depth, tile_keys=LEAST_TILE_KEYS, further=1 + 2.0**-22 / unit)
    along = partial(weights_depth, tile_keys=LEAST_TILE_KEYS, further=1 + 2.0**-22 / unit)
    return Rounding(
        matmul=product_depth,
        weighted_sum=depth,
        along=along,
        functions={**FUNCTIONS, "exp": weight},
        steps={"div": 2},
        flush=2.0**-126,
    )
