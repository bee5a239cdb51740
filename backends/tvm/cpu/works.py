"""What of a model can be tuned: its GEMMs and its attention, each as it is measured.

The weights of a GEMM are read from where a model has them: from one place after another, as many
bytes as all weights take, up to some hundred MiB. Half of a schedule's worth is how it waits for
memory. May import: tvm, emitters, attention_emitter, gemm, attention, database, search, lower,
runtime, ops, ir.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from tfgraph.backends.base import symbol_ranges
from tfgraph.backends.tvm.attention_emitter import attention_shape
from tfgraph.backends.tvm.attention_mask import Causal
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cpu.attention import attention
from tfgraph.backends.tvm.cpu.database import HeadShape, Key, WeightShape
from tfgraph.backends.tvm.cpu.gemm import gemm, packed_shape
from tfgraph.backends.tvm.cpu.gemm_tile import tiles_of
from tfgraph.backends.tvm.cpu.schedule import AttentionSchedule, Schedule, default_schedule
from tfgraph.backends.tvm.cpu.search import S, Steps, attention_steps, gemm_steps
from tfgraph.backends.tvm.emitters import linear_shape
from tfgraph.backends.tvm.lower import find_emitter
from tfgraph.ir import Mask, product
from tfgraph.ir import mask as masks
from tfgraph.ops.fused import LINEARS
from tfgraph.runtime.arrays import aligned_empty
from tfgraph.runtime.jit import as_tensor

if TYPE_CHECKING:
    from tfgraph.backends.tvm.kernels import AttentionShape, LinearShape
    from tfgraph.backends.tvm.target import CpuMachine
    from tfgraph.ir import Graph, Node, Value

ROWS = (1, 16, 128)
"""The numbers of rows that every GEMM is measured at, beside those of the model's example."""
LONGEST = 1024
"""Attention is measured at the model's example, and at its longest sizes up to this."""
MOST_WEIGHTS = 256 << 20
"""Bytes from which weights are read in turn: more than caches hold."""


class Memory:
    """Weights in one place after another, those of all shapes in the same memory. What they are
    does not matter to the time."""

    def __init__(self, size: int) -> None:
        """`size`: the bytes of all weights."""
        self._floats = _filled(max(min(size, MOST_WEIGHTS) // 4, 1))

    def places(self, shapes: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], list[Any]]:
        """For each shape a tensor at every place, one place large enough for the largest."""
        sizes = {shape: math.prod(shape) for shape in shapes}
        pitch = -(-max(sizes.values()) // 16) * 16
        if pitch > self._floats.size:
            self._floats = _filled(pitch)
        starts = range(0, self._floats.size - pitch + 1, pitch)
        return {
            shape: [as_tensor(self._floats[at : at + size].reshape(shape)) for at in starts]
            for shape, size in sizes.items()
        }


class Work(ABC, Generic[S]):
    """Kernels of a model that one schedule is for: the first of them, the numbers of rows at which
    it is measured, and how many operations all of them are at the model's example."""

    rows: tuple[int, ...]
    flops: int
    weight_bytes: int

    @property
    @abstractmethod
    def key(self) -> Key:
        """What a database knows it by."""

    @abstractmethod
    def default(self, machine: CpuMachine) -> S:
        """The schedule where nothing is known."""

    @abstractmethod
    def steps(self, machine: CpuMachine) -> Steps[S]:
        """What to try."""

    @abstractmethod
    def kernel(self, schedule: S, machine: CpuMachine) -> Any:
        """A PrimFunc whose last argument is the result."""

    @abstractmethod
    def arguments(self, machine: CpuMachine, memory: Memory) -> Callable[[S, int], list[Any]]:
        """What calls the kernel of a schedule for a number of rows, each time anew."""


@dataclass(frozen=True)
class GemmWork(Work[Schedule]):
    """GEMMs of one shape of a weight, of which there are `weights`, with what follows the first."""

    shape: LinearShape
    rows: tuple[int, ...]
    weights: int
    flops: int

    def __str__(self) -> str:
        followed = [self.shape.activation or ""] + ["gate"] * self.shape.gate
        return " ".join([str(self.key), *filter(None, followed)])

    @property
    def key(self) -> WeightShape:
        return WeightShape(self.shape.k, self.shape.n)

    @property
    def weight_bytes(self) -> int:  # type: ignore[override]
        """Those that this model reads."""
        return 4 * self.shape.k * self.shape.n * self.weights

    def default(self, machine: CpuMachine) -> Schedule:
        return default_schedule(machine, self.shape.n)

    def steps(self, machine: CpuMachine) -> Steps[Schedule]:
        return gemm_steps(machine)

    def kernel(self, schedule: Schedule, machine: CpuMachine) -> Any:
        return gemm(self.shape, schedule)

    def arguments(
        self, machine: CpuMachine, memory: Memory
    ) -> Callable[[Schedule, int], list[Any]]:
        packed = {tile: packed_shape(*self.key, tile) for tile in tiles_of(machine)}
        places, turn = memory.places(packed.values()), count()
        others = {m: self._others(m) for m in self.rows}

        def given(schedule: Schedule, m: int) -> list[Any]:
            weights = places[packed[schedule.tile]]
            x, *rest = others[m]
            return [x, weights[next(turn) % len(weights)], *rest]

        return given

    def _others(self, m: int) -> list[Any]:
        k, n, shape = *self.key, self.shape
        sizes = [(m, k), *[(n,)] * shape.bias, *[(m, n)] * shape.gate, (m, n)]
        return [as_tensor(_filled(size)) for size in sizes]


@dataclass(frozen=True)
class AttentionWork(Work[AttentionSchedule]):
    """Attention with heads of one shape, as its first node has it: without its mask, but for a
    causal one. `keys` are how many there are for each number of queries, `rows`."""

    shape: AttentionShape
    causal: bool
    keys: Mapping[int, int]
    flops: int
    weight_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.key}{' causal' * self.causal}"

    @property
    def rows(self) -> tuple[int, ...]:  # type: ignore[override]
        """Numbers of queries."""
        return tuple(sorted(self.keys))

    @property
    def key(self) -> HeadShape:
        return HeadShape(self.shape.width, self.shape.value_width)

    def default(self, machine: CpuMachine) -> AttentionSchedule:
        return AttentionSchedule()

    def steps(self, machine: CpuMachine) -> Steps[AttentionSchedule]:
        return attention_steps(machine)

    def kernel(self, schedule: AttentionSchedule, machine: CpuMachine) -> Any:
        plan = MaskPlan((Causal(),)) if self.causal else MaskPlan()
        scale = self.shape.width**-0.5
        return attention("attention", self.shape, plan, machine, scale=scale, schedule=schedule)

    def arguments(
        self, machine: CpuMachine, memory: Memory
    ) -> Callable[[AttentionSchedule, int], list[Any]]:
        arrays = {s: self._arrays(s, t) for s, t in self.keys.items()}
        return lambda _, s: arrays[s]

    def _arrays(self, s: int, t: int) -> list[Any]:
        shape = self.shape
        q, k, v = (
            as_tensor(_filled((1, *size)))
            for size in ((s, shape.q_pitch), (t, shape.k_pitch), (t, shape.v_pitch))
        )
        if s == t and shape.q_pitch == shape.k_pitch == shape.v_pitch > shape.heads * shape.width:
            k = v = q  # windows of one merged result
        return [q, k, v, as_tensor(_filled((1, s, shape.heads * shape.value_width)))]


def works(graphs: Iterable[Graph]) -> list[Work[Any]]:
    """The kernels of graphs as they run that can be tuned, the longest first: GEMMs with packed
    weights, and attention of several queries. Graphs are functions of one model, which share their
    weights."""
    found: dict[Key, Work[Any]] = {}
    weights: dict[Key, set[Value]] = defaultdict(set)
    for graph in graphs:
        for node in graph.nodes:
            if find_emitter("cpu", graph, node) is None:
                continue
            if node.op in LINEARS:
                _add_gemm(found, weights, graph, node)
            if node.op == "attention":
                _add_attention(found, graph, node)
    return sorted(found.values(), key=lambda work: -work.flops)


def _add_gemm(
    found: dict[Key, Work[Any]], weights: dict[Key, set[Value]], graph: Graph, node: Node
) -> None:
    shape, rows = linear_shape(node), product(node.inputs[0].type.shape[:-1])
    new = GemmWork(shape, ROWS, 0, 0)
    m = rows.evaluate(_sizes(graph))
    weights[new.key].add(node.inputs[1])
    old = found.get(new.key, new)
    assert isinstance(old, GemmWork)
    found[new.key] = replace(
        old,
        rows=tuple(sorted({*old.rows, m})),
        weights=len(weights[new.key]),
        flops=old.flops + 2 * shape.k * shape.n * m,
    )


def _add_attention(found: dict[Key, Work[Any]], graph: Graph, node: Node) -> None:
    shape = attention_shape(graph, node)
    batch, s, t = *node.inputs[0].type.shape[:2], node.inputs[1].type.shape[1]
    mask = next((o for o in node.operands if isinstance(o, Mask)), None)
    parts = () if mask is None else mask.parts
    sizes = [_sizes(graph), _sizes(graph, LONGEST)]
    keys = {s.evaluate(size): t.evaluate(size) for size in sizes}
    keys.pop(1, None)  # which takes another way
    if not keys:
        return
    new = AttentionWork(shape, any(isinstance(p, masks.Causal) for p in parts), {}, 0)
    old = found.get(new.key, new)
    assert isinstance(old, AttentionWork)
    pairs = batch.evaluate(sizes[0]) * s.evaluate(sizes[0]) * t.evaluate(sizes[0])
    flops = 2 * pairs * shape.heads * (shape.width + shape.value_width)
    found[new.key] = replace(old, keys=keys | dict(old.keys), flops=old.flops + flops)


def _sizes(graph: Graph, most: int | None = None) -> dict[str, int]:
    """The example's sizes; with `most`, the largest of a symbol's range up to that."""
    ranges = symbol_ranges(graph).items()
    if most is None:
        return {name: s.example for name, s in ranges}
    return {name: max(s.low, min(s.high, most)) for name, s in ranges}


def _filled(shape: int | tuple[int, ...]) -> Any:
    floats = aligned_empty((shape,) if isinstance(shape, int) else shape, np.dtype(np.float32))
    floats.fill(0.01)
    return floats
