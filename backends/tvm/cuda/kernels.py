"""CUDA kernels, as the emitters ask for them. May import: the kernels, generic, ir."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfgraph.backends.tvm.attention_mask import Mask
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.append import append
from tfgraph.backends.tvm.cuda.arch import ARCHITECTURES, DEFAULT_ARCH
from tfgraph.backends.tvm.cuda.attention import attention
from tfgraph.backends.tvm.cuda.attention_mask import KeyMask
from tfgraph.backends.tvm.cuda.linear import linear, linear_pitch
from tfgraph.backends.tvm.cuda.matmul import matmul
from tfgraph.backends.tvm.cuda.norm import layer_norm, rms_norm
from tfgraph.backends.tvm.cuda.softmax import softmax
from tfgraph.backends.tvm.cuda.tensor_attention import attention as tensor_attention
from tfgraph.backends.tvm.generic import NOTHING, Inner, cuda_kernel
from tfgraph.backends.tvm.kernels import (
    AppendShape,
    AttentionShape,
    Kernels,
    LinearShape,
    NDArray,
    NormShape,
    PrimFunc,
)
from tfgraph.backends.tvm.narrow import NARROW
from tfgraph.ir import Node

SHARED_BYTES = ARCHITECTURES[DEFAULT_ARCH].shared_bytes_per_block


class CudaKernels(Kernels):
    """Kernels for NVIDIA GPUs."""

    target = "cuda"

    def __init__(self, shared_bytes: int = SHARED_BYTES, *, tf32: bool = False) -> None:
        """For GPUs whose blocks may have so much shared memory. With `tf32` products of float32
        take their factors in tf32."""
        self._shared_bytes, self._tf32 = shared_bytes, tf32

    def generic(self, node: Node, inner: Inner = NOTHING) -> PrimFunc:
        """A thread an element, or a row where it is reduced."""
        return cuda_kernel(node, inner)

    def packed(self, k: int, n: int, dtype: str = "float32") -> tuple[str, tuple[int, ...]]:
        """By columns, each filled up with zeros to a multiple of 16 bytes."""
        return "columns", (n, linear_pitch(k, dtype))

    def pack(self, weight: NDArray) -> NDArray:
        """Its columns, [n, pitch]."""
        k, n = weight.shape
        columns = np.zeros((n, linear_pitch(k, weight.dtype.name)), weight.dtype)
        columns[:, :k] = weight.T
        return columns

    def linear(self, name: str, shape: LinearShape) -> PrimFunc:
        """A GEMM tiled through shared memory."""
        return linear(
            ("m",),
            shape.k,
            shape.n,
            bias=shape.bias,
            activation=shape.activation,
            gate=shape.gate,
            dtype=shape.dtype,
            tf32=self._tf32,
            name=name,
        )

    def matmul(
        self,
        a: Sequence[int | str],
        b: Sequence[int | str],
        *,
        skip_zeros: bool,
        dtype: str = "float32",
    ) -> PrimFunc:
        """The same tiles, batched."""
        leading = tuple(a[:-2]), tuple(b[:-2])
        name = "weighted_sum" if skip_zeros else "matmul"
        sizes = a[-2], b[-1], a[-1]
        options: dict[str, Any] = {"dtype": dtype, "tf32": self._tf32, "name": name}
        return matmul(*leading, *sizes, skip_zeros=skip_zeros, **options)

    def norm(self, name: str, shape: NormShape) -> PrimFunc:
        """A block a row."""
        flags: dict[str, Any] = {
            "eps": shape.eps,
            "add": shape.add,
            "scale": shape.scale,
            "shift": shape.shift,
            "keep_sum": shape.keep_sum,
            "dtype": shape.dtype,
            "name": name,
        }
        assert shape.width is not None  # norms of a symbolic width go to the generic kernels
        if shape.kind == "rms":
            return rms_norm(("m",), shape.width, **flags)
        return layer_norm(("m",), shape.width, bias=shape.bias, **flags)

    def softmax(self, width: int | None, dtype: str = "float32") -> PrimFunc:
        """A block a row."""
        return softmax(("m",), "n" if width is None else width, dtype=dtype)

    def attention(
        self, shape: AttentionShape, plan: MaskPlan, scale: float, softcap: float | None
    ) -> PrimFunc:
        """Flash attention, of floats of 16 bits on tensor cores."""
        if shape.dtype in NARROW:
            return tensor_attention(
                shape, plan, shared_bytes=self._shared_bytes, scale=scale, softcap=softcap
            )
        return attention(shape, plan, scale=scale, softcap=softcap)

    def append(self, name: str, shape: AppendShape) -> PrimFunc:
        """A row of blocks for each row."""
        return append(name, shape)

    def key_mask(self, low: Any, keep: Any) -> tuple[Mask, list[Any]]:
        """The mask as it is."""
        return KeyMask(keep.type.dtype.value), [low.value(keep)]
