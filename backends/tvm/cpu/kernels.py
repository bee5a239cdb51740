"""The CPU's kernels, as the emitters ask for them. May import: the kernels, generic, target, ir."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfgraph.backends.tvm.attention_mask import Mask
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cpu.append import append
from tfgraph.backends.tvm.cpu.attention import attention, compact_keys
from tfgraph.backends.tvm.cpu.attention_mask import KeyList
from tfgraph.backends.tvm.cpu.database import AnySchedule, HeadShape, Key, WeightShape
from tfgraph.backends.tvm.cpu.gemm import gemm, pack_weight, packed_shape
from tfgraph.backends.tvm.cpu.gemm_tile import tile_for
from tfgraph.backends.tvm.cpu.matmul import matmul
from tfgraph.backends.tvm.cpu.norm import norm
from tfgraph.backends.tvm.cpu.schedule import AttentionSchedule, Schedule, default_schedule
from tfgraph.backends.tvm.cpu.softmax import softmax
from tfgraph.backends.tvm.generic import NOTHING, Inner, cpu_kernel
from tfgraph.backends.tvm.kernels import (
    AppendShape,
    AttentionShape,
    Kernels,
    LinearShape,
    NDArray,
    NormShape,
    PrimFunc,
)
from tfgraph.backends.tvm.target import CpuMachine
from tfgraph.ir import Node, tensor


class CpuKernels(Kernels):
    """Kernels for one CPU, by the schedules that are known: of GEMMs for a weight's shape, whatever
    follows the product, since all that read a weight read it in one layout."""

    target = "cpu"

    def __init__(
        self, machine: CpuMachine, schedules: Mapping[Key, AnySchedule] | None = None
    ) -> None:
        self.machine, self._schedules = machine, schedules or {}

    def generic(self, node: Node, inner: Inner = NOTHING) -> PrimFunc:
        """A loop nest, parallel where the result is large."""
        return cpu_kernel(node, inner)

    def packed(self, k: int, n: int, dtype: str = "float32") -> tuple[str, tuple[int, ...]]:
        """Panels of a register tile's columns."""
        shape = packed_shape(k, n, self._schedule(k, n).tile)
        return f"packed{shape[2]}", shape

    def pack(self, weight: NDArray) -> NDArray:
        """[panels][k][columns]."""
        return pack_weight(weight, self._schedule(*weight.shape).tile)

    def linear(self, name: str, shape: LinearShape) -> PrimFunc:
        """The register-tiled GEMM."""
        return gemm(shape, self._schedule(shape.k, shape.n))

    def matmul(
        self,
        a: Sequence[int | str],
        b: Sequence[int | str],
        *,
        skip_zeros: bool,
        dtype: str = "float32",
    ) -> PrimFunc:
        """The same tiles, the right operand read where it lies."""
        return matmul(a, b, tile_for(self.machine, b[-1]), skip_zeros=skip_zeros)

    def norm(self, name: str, shape: NormShape) -> PrimFunc:
        """One pass over a row."""
        return norm(name, shape, self.machine)

    def softmax(self, width: int | None, dtype: str = "float32") -> PrimFunc:
        """Row by row."""
        return softmax("softmax", self.machine, width)

    def attention(
        self, shape: AttentionShape, plan: MaskPlan, scale: float, softcap: float | None
    ) -> PrimFunc:
        """Flash attention."""
        known = self._schedules.get(HeadShape(shape.width, shape.value_width))
        return attention(
            "attention",
            shape,
            plan,
            self.machine,
            scale=scale,
            softcap=softcap,
            schedule=known if isinstance(known, AttentionSchedule) else AttentionSchedule(),
        )

    def append(self, name: str, shape: AppendShape) -> PrimFunc:
        """A row at a time, dealt to all threads where there are many."""
        return append(name, shape, self.machine.lanes)

    def key_mask(self, low: Any, keep: Any) -> tuple[Mask, list[Any]]:
        """The list of allowed keys and their number, once a forward for each mask tensor."""
        found: list[Any] | None = low.shared.get(("keys", keep))
        if found is None:
            dtype = keep.type.dtype.value
            kernel = low.kernel(
                ("compact_keys", dtype), lambda: compact_keys("compact_keys", dtype), "compact_keys"
            )
            batch, keys = keep.type.shape
            types = [tensor("i32", batch, keys), tensor("i32", batch)]
            found = list(low.call(kernel, [low.value(keep)], types))
            low.shared["keys", keep] = found
        return KeyList(), found

    def _schedule(self, k: int, n: int) -> Schedule:
        known = self._schedules.get(WeightShape(k, n))
        return known if isinstance(known, Schedule) else default_schedule(self.machine, n)
