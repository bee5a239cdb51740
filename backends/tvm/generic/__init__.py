"""Generic kernels: a correct one for every core op that nobody wrote a special kernel for, and for
two whose parts would be many: `rotary` and `embedding_sum`.

`cpu_kernel`, `gpu_kernel` and `cuda_kernel` build a node's PrimFunc from the same definition of its
op. Its parameters are the node's inputs in order, an int64 for each of `symbols_of(node)`, the
outputs. With `inner` it computes some of the inputs itself: it reads the `leaves` instead.
May import: tvm, tfgraph.ir, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.backends.tvm.generic import (
    elementwise,
    embedding,
    masking,
    movement,
    reduction,
    rotary,
)
from tfgraph.backends.tvm.generic.inline import (
    NOTHING,
    Inner,
    computed_by,
    inlinable,
    leaves,
    symbols_of,
)
from tfgraph.backends.tvm.generic.kernel import EMITTERS, build, kernel_key
from tfgraph.backends.tvm.generic.loops import CpuLoops, CudaLoops, GpuLoops

if TYPE_CHECKING:
    from tfgraph.ir import Node

__all__ = [
    "NOTHING",
    "SUPPORTED",
    "Inner",
    "computed_by",
    "cpu_kernel",
    "cuda_kernel",
    "gpu_kernel",
    "inlinable",
    "kernel_key",
    "leaves",
    "symbols_of",
]

_EMITTER_MODULES = (
    elementwise,
    embedding,
    masking,
    movement,
    reduction,
    rotary,
)  # importing them registers emitters

SUPPORTED = frozenset(EMITTERS)
"""The ops that have a generic kernel."""


def cpu_kernel(node: Node, inner: Inner = NOTHING) -> Any:
    """The PrimFunc of a node for the CPU, parallel where the result is large.

    Raises TfgraphError for an op or an element type that has no generic kernel.
    """
    return build(node, CpuLoops(), inner)


def cuda_kernel(node: Node, inner: Inner = NOTHING) -> Any:
    """The PrimFunc of a node for CUDA: as `gpu_kernel`, or a thread sixteen bytes of elements.

    Raises TfgraphError for an op or an element type that has no generic kernel.
    """
    return build(node, CudaLoops(), inner)


def gpu_kernel(node: Node, inner: Inner = NOTHING) -> Any:
    """The PrimFunc of a node for any GPU, a thread an element, or a row where it is reduced.

    Raises TfgraphError for an op or an element type that has no generic kernel.
    """
    return build(node, GpuLoops(), inner)
