"""What a backend is, and how one is found by name.

A backend turns a graph and its weights into an executable: a callable from inputs by name to
outputs by name. Backends are imported on use, so that asking for NumPy loads no compiler. May
import: runtime, passes, ops, ir, errors.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tfgraph.backends.rounding import Rounding
from tfgraph.backends.tuning import Tuned, Tuning
from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Constraint, Dim, DType, Graph, Node, Value
from tfgraph.ir.points import settle
from tfgraph.ops.generators import generator
from tfgraph.ops.indices import Range, index_ranges
from tfgraph.ops.limits import implied_constraints
from tfgraph.passes import PassReport, is_attention
from tfgraph.runtime.absent import without_pytorch
from tfgraph.runtime.packages import packages_named
from tfgraph.runtime.runnable import Runnable
from tfgraph.runtime.sizes import Port, SymbolRange

NDArray = np.ndarray[Any, Any]
Weights = Mapping[str, NDArray]


@dataclass(frozen=True)
class Target:
    """What to compile for: a backend's name, and what only some backends ask for."""

    name: str = "cpu"
    arch: str | None = None
    arch_origin: str | None = None
    mcpu: str | None = None
    threads: int | None = None
    shared: bool = False
    tf32: bool = False
    """Whether products of float32 take their factors in tf32, on tensor cores of CUDA."""
    schedules: Path | None = None
    """A database of the user's own schedules, which come before those that ship: how kernels go
    through their work, not what they compute."""

    def __post_init__(self) -> None:
        if self.tf32 and self.name != "cuda":
            raise TfgraphError(f"tf32 is for target cuda, not {self.name}")


Executable = Runnable
"""A compiled graph: a callable from inputs by name to outputs by name."""


class Backend(ABC):
    """One way to run graphs."""

    name: str
    has_functions: ClassVar[bool] = False
    """Whether `compile` and `build` take, after the target, the model's other functions by name."""

    @abstractmethod
    def compile(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Executable:
        """An executable. Raises MissingTool where the machine cannot run it."""

    def resolve(self, graph: Graph, target: Target) -> Graph:
        """The graph with each node that has no kernel expanded to those that have one."""
        return graph

    def rounding(self, node: Node, target: Target) -> Rounding:
        """How the kernel of a node of the resolved graph rounds; the worst case by default."""
        return Rounding()


@dataclass(frozen=True)
class CompiledWeight:
    """A weight in compiled layout; `make` computes the array when it is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    sources: tuple[str, ...]
    make: Callable[[], NDArray]


@dataclass(frozen=True)
class BuiltFunction:
    """A function of an artifact beside `main`: its graph after the passes, what its caller passes
    besides the inputs, and what the manifest says of it besides."""

    graph: Graph
    weights: tuple[CompiledWeight, ...]
    scalars: tuple[str, ...]
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class Built:
    """What a compiling backend puts into an artifact, besides what every artifact holds: the
    weights and scalars are those of `main`. `make_files` makes what takes a compiler long, in a
    thread of its own while the weights are written and `make_texts` makes what people read."""

    files: Mapping[str, bytes]
    weights: tuple[CompiledWeight, ...]
    scalars: tuple[str, ...] = ()
    functions: Mapping[str, BuiltFunction] = field(default_factory=dict[str, BuiltFunction])
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    make_files: Callable[[], Mapping[str, bytes]] = dict
    make_texts: Callable[[], Mapping[str, bytes]] = dict
    notes: PassReport | None = None
    """What became of the nodes, told as the passes tell it."""


class CompilingBackend(Backend):
    """A backend whose result can be written as an artifact."""

    @abstractmethod
    def build(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Built:
        """Compile the graph, and the other functions by name where the backend has such."""

    def settle(self, target: Target) -> Target:
        """The target with what it left open chosen, such as the architecture."""
        return target

    def tune(
        self,
        graphs: Sequence[Graph],
        target: Target,
        seconds: float,
        heard: Callable[[Tuned], None],
    ) -> Tuning:
        """Measure how the kernels of these graphs are fastest on this machine, for some seconds,
        and write that into the target's `schedules`; `heard` hears of each kernel. Raises
        TfgraphError where there is nothing to choose, MissingTool where nothing runs here."""
        raise TfgraphError(
            f"target '{self.name}' cannot be tuned: its kernels have no schedules to choose from",
            hint="tune for --target cpu",
        )

    def runs_here(self, target: Target) -> str | None:
        """Why the result can't run on this machine; None if it can."""
        return None

    def device(self) -> str:
        """What runs the result here besides the CPU, with its driver; "" if nothing does."""
        return ""


_BUILTIN = {
    "numpy": "tfgraph.backends.numpy:NumpyBackend",
    "cpu": "tfgraph.backends.tvm.cpu.backend:CpuBackend",
    "cuda": "tfgraph.backends.tvm.cuda.backend:CudaBackend",
    "opencl": "tfgraph.backends.tvm.portable.backend:OpenCLBackend",
    "metal": "tfgraph.backends.tvm.portable.backend:MetalBackend",
    "webgpu": "tfgraph.backends.tvm.portable.backend:WebGPUBackend",
}
WITNESSES = {
    "onnxruntime": "tfgraph.backends.witness:OnnxRuntimeWitness",
    "onnx-reference": "tfgraph.backends.witness:OnnxReferenceWitness",
}
"""What runs an exported graph in comparisons, and for which nothing is compiled."""

_REGISTERED: dict[str, Callable[[], Backend]] = {}
FLOATS: Mapping[str, tuple[DType, ...]] = {
    **dict.fromkeys(("cpu", "opencl", "metal", "webgpu"), (DType.float32,)),
    "cuda": (DType.float32, DType.float16, DType.bfloat16),
}
"""The float types that the kernels of a built-in target take; NumPy takes all."""

# What others call them; by its letters "gpu" is nearest to "cpu".
_MEANT = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "cl": "opencl",
    "apple": "metal",
    "mps": "metal",
    "wgpu": "webgpu",
    "wgsl": "webgpu",
    "llvm": "cpu",
    "x86": "cpu",
    "reference": "numpy",
}


def register_backend(name: str, make: Callable[[], Backend]) -> None:
    """Make a backend known by its name; plugins call this."""
    if name in _BUILTIN or name in WITNESSES:
        raise TfgraphError(f"backend '{name}' is built in")
    _REGISTERED[name] = make


def backend_names() -> tuple[str, ...]:
    """The names that `find_backend` takes."""
    return (*_BUILTIN, *_REGISTERED)


def check_backend_name(name: str, witnesses: bool = False) -> None:
    """Raise TfgraphError with the nearest name if there is no such backend; imports none. With
    `witnesses` those of comparisons are such, too."""
    known = (*backend_names(), *(WITNESSES if witnesses else ()))
    if name in known:
        return
    if name in WITNESSES:
        raise TfgraphError(
            f"'{name}' is a witness in comparisons, not a target",
            hint=f"tfgraph compare MODEL --backends numpy,{name}",
        )
    meant = _MEANT.get(name.lower())
    hint = f"did you mean '{meant}'?" if meant else nearest(name, known)
    raise TfgraphError(f"unknown target '{name}'", hint=hint or f"one of {', '.join(known)}")


def find_backend(name: str, witnesses: bool = False) -> Backend:
    """The backend of that name, with `witnesses` also one of those that only comparisons run.
    Raises TfgraphError with the nearest name if there is none, and MissingTool where what it needs
    is not installed."""
    check_backend_name(name, witnesses)
    if name in _REGISTERED:
        return _REGISTERED[name]()
    return _built_in((_BUILTIN | WITNESSES)[name])()


@cache
def _built_in(place: str) -> Callable[[], Backend]:
    """The class at `module:name`, imported once."""
    module, _, cls = place.partition(":")
    with packages_named(), without_pytorch():
        found: Callable[[], Backend] = getattr(importlib.import_module(module), cls)
    return found


def input_ports(graph: Graph) -> tuple[Port, ...]:
    """The inputs of a graph as a caller sees them."""
    held = index_ranges(graph)
    return tuple(
        replace(
            _port(item.value.name, item.value, str(generator(graph, item, held))),
            least=_size(held.get(item.value, Range()).least),
            limit=_size(held.get(item.value, Range()).limit),
        )
        for item in graph.inputs
    )


def output_ports(graph: Graph) -> tuple[Port, ...]:
    """The outputs of a graph as a caller sees them."""
    return tuple(
        replace(_port(o.name, o.value, ""), attention=is_attention(graph, o.value))
        for o in graph.outputs
    )


def symbol_ranges(graph: Graph) -> dict[str, SymbolRange]:
    """The symbols that a call needs, sorted by name; together the examples meet the constraints,
    where that is possible."""
    used = {s for v in graph.values() for d in v.type.shape for s in d.symbols}
    names = sorted(used | {s.name for s in graph.symbols})
    found = [graph.symbol(name) for name in names]
    given = {s.name: s.default for s in found}
    examples = settle(given, found, constraints_of(graph)) or given
    return {s.name: SymbolRange(s.low, s.high, examples[s.name]) for s in found}


def constraints_of(graph: Graph) -> tuple[Constraint, ...]:
    """What is checked of the sizes of a call: what the graph states, and what its ops need."""
    return (*graph.constraints, *implied_constraints(graph))


def _port(name: str, value: Value, fill: str) -> Port:
    shape = tuple(int(d) if d.is_const else str(d) for d in value.type.shape)
    return Port(name, value.type.dtype.value, shape, fill)


def _size(dim: Dim | None) -> int | str | None:
    return None if dim is None else int(dim) if dim.is_const else str(dim)
