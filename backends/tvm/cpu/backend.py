"""The CPU backend: our kernels through TVM and LLVM, run by the lean runtime.

May import: base, artifact, build, source, link, emitters, plan, runtime, ir.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from tfgraph.backends.artifact import write_artifact
from tfgraph.backends.base import (
    Built,
    BuiltFunction,
    CompilingBackend,
    Executable,
    Target,
    Weights,
)
from tfgraph.backends.rounding import Rounding
from tfgraph.backends.tuning import Tuned, Tuning
from tfgraph.backends.tvm.build import Program

# Registers its emitter.
from tfgraph.backends.tvm.cpu import embedding as _embedding  # noqa: F401 # pyright: ignore[reportUnusedImport]
from tfgraph.backends.tvm.cpu.database import known_schedules
from tfgraph.backends.tvm.cpu.kernels import CpuKernels
from tfgraph.backends.tvm.cpu.rounding import rounding
from tfgraph.backends.tvm.cpu.schedule import SCHEDULE
from tfgraph.backends.tvm.cpu.source import kernel_sources
from tfgraph.backends.tvm.cpu.tune import tune
from tfgraph.backends.tvm.cpu.works import works
from tfgraph.backends.tvm.emitters import lower
from tfgraph.backends.tvm.link import find_compiler, link_shared
from tfgraph.backends.tvm.lower import resolve
from tfgraph.backends.tvm.module import Lowered
from tfgraph.backends.tvm.plan import plan
from tfgraph.backends.tvm.target import CpuMachine, cpu_machine
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.ir import Graph, Node
from tfgraph.runtime import format as layout
from tfgraph.runtime.cores import check_threads, cpu_flags, default_threads
from tfgraph.runtime.model import load


class CpuBackend(CompilingBackend):
    """Compiles for this CPU, or for the one that the target names."""

    name = "cpu"
    has_functions = True

    def build(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Built:
        """Object files for the graphs, what people read of them, and their weights in packed
        layout."""
        machine = cpu_machine(target.mcpu)
        compiler = find_compiler() if target.shared else None
        lowered = lower(graph, weights, _kernels(machine, target), functions)
        program = Program(lowered.module, machine)

        def make_files() -> dict[str, bytes]:
            objects = program.objects()
            shared = {layout.SHARED: link_shared([*objects.values()], compiler)} if compiler else {}
            return _named(objects) | shared

        built = _built(lowered, machine, program, make_files)
        return replace(built, make_texts=lambda: kernel_sources(lowered, machine))

    def compile(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Executable:
        """The graphs as a loaded artifact; the files are gone once they are mapped."""
        machine = cpu_machine(target.mcpu)
        lowered = lower(graph, weights, _kernels(machine, target), functions)
        program = Program(lowered.module, machine)
        built = _built(lowered, machine, program, lambda: _named(program.objects()))
        with tempfile.TemporaryDirectory(prefix="tfgraph-") as folder:
            write_artifact(Path(folder), graph, graph, built, target, [])
            return load(folder, threads=target.threads, verify_weights=False)

    def resolve(self, graph: Graph, target: Target) -> Graph:
        """The graph with each node that has no kernel expanded to those that have one."""
        return resolve(graph, self.name)[0]

    def rounding(self, node: Node, target: Target) -> Rounding:
        """What the kernel of the node declares."""
        return rounding(node, cpu_machine(target.mcpu))

    def tune(
        self,
        graphs: Sequence[Graph],
        target: Target,
        seconds: float,
        heard: Callable[[Tuned], None],
    ) -> Tuning:
        """Choose the schedules of GEMMs and of attention."""
        if target.schedules is None:
            raise TfgraphError(
                "tuning needs a file to keep what it finds: there is no cache",
                hint="name one with --tune-database",
            )
        here, machine = cpu_machine(), cpu_machine(target.mcpu)
        if machine != here:
            raise MissingTool(
                f"tuning measures on this machine, which is '{here.mcpu}' and not '{machine.mcpu}'"
            )
        graphs = [self.resolve(graph, target) for graph in graphs]
        threads = check_threads(target.threads) or default_threads()
        todo = works(graphs)
        return tune(todo, machine, threads, seconds, target.schedules, heard)

    def runs_here(self, target: Target) -> str | None:
        """Whether this CPU has the features of the target."""
        missing = set(cpu_machine(target.mcpu).features) - cpu_flags()
        return f"this CPU has no {', '.join(sorted(missing))}" if missing else None


def _kernels(machine: CpuMachine, target: Target) -> CpuKernels:
    return CpuKernels(machine, known_schedules(machine, target.schedules))


def _schedules(lowered: Lowered) -> dict[str, str]:
    """By which schedule each kernel runs, of those that have one."""
    functions = lowered.module.functions_items()
    found = {str(v.name_hint): (f.attrs or {}).get(SCHEDULE) for v, f in functions}
    return {name: str(text) for name, text in sorted(found.items()) if text is not None}


def _named(objects: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{layout.KERNELS}/{name}.o": data for name, data in objects.items()}


def _built(
    lowered: Lowered,
    machine: CpuMachine,
    program: Program,
    make_files: Callable[[], Mapping[str, bytes]],
) -> Built:
    """What an artifact holds: the program's object files among those that are made."""
    storage = program.storage
    return Built(
        files={},
        make_files=make_files,
        weights=lowered.main.weights,
        scalars=lowered.main.scalars,
        functions={
            name: BuiltFunction(f.graph, f.weights, f.scalars, plan(f, storage[name]))
            for name, f in lowered.functions.items()
        },
        notes=lowered.report,
        manifest={
            **plan(lowered.main, storage["main"]),
            "cpu": {"mcpu": machine.mcpu, "features": list(machine.features)},
            "schedules": _schedules(lowered),
            "tools": {"apache-tvm": version("apache-tvm")},
        },
    )
