"""How the CPU's kernels round: what each declares, by op. May import: the kernels, generic, ops,
ir."""

from __future__ import annotations

from functools import partial

from tfgraph.backends.rounding import Accuracy, Rounding
from tfgraph.backends.tvm.cpu import attention_tile, gemm, norm, softmax
from tfgraph.backends.tvm.cpu.vector_math import ACCURACY
from tfgraph.backends.tvm.generic import reduction
from tfgraph.backends.tvm.generic.loops import CpuLoops
from tfgraph.backends.tvm.target import CpuMachine
from tfgraph.ir import Node
from tfgraph.ops.fused import LINEARS

_LIBRARY = {name: Accuracy(2) for name in ("sin", "cos", "pow")}  # the C library's, within 1 ulp
_FUNCTIONS = {**_LIBRARY, **{name: ACCURACY[name] for name in ("exp", "log", "tanh", "erf")}}

# Phi(x) stands for (1 + erf) / 2, so that its error is twice one of erf.
_EPILOGUE = {**_FUNCTIONS, "erf": Accuracy(0, absolute=2 * ACCURACY["normal_cdf"].absolute)}

_NORMS = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")


def rounding(node: Node, machine: CpuMachine) -> Rounding:
    """How the kernel of a node rounds."""
    if node.op in LINEARS:
        # An activation multiplies x by its own quotient: one step more than the formula.
        return Rounding(matmul=gemm.depth, functions=_EPILOGUE, steps={"div": 2})
    if node.op in _NORMS:
        depth = partial(norm.depth, lanes=machine.lanes)
        return Rounding(along=depth, functions=_FUNCTIONS, steps=norm.STEPS)
    if node.op == "softmax":
        return Rounding(along=partial(softmax.depth, lanes=machine.lanes), functions=_FUNCTIONS)
    if node.op == "attention":
        return _attention(machine)
    along = partial(reduction.depth, lanes=CpuLoops.lanes)
    return Rounding(along=along, functions=_FUNCTIONS, steps={"pow": 2})


def _attention(machine: CpuMachine) -> Rounding:
    """Scores in base 2, or in base e times log2(e): in both, the constants are rounded, into q and
    into the exponent. The sum of weights divides by its inverse."""
    exponent = Accuracy(ACCURACY["exp2"].relative, argument=2)
    return Rounding(
        matmul=lambda width: width + 2,
        weighted_sum=partial(attention_tile.depth, machine=machine),
        along=partial(attention_tile.depth, machine=machine),
        functions={**_FUNCTIONS, "exp": exponent},
        steps={"div": 2},
        flush=2.0**-126,
    )
