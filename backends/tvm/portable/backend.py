"""The backends of OpenCL, Metal and WebGPU: generic kernels as source, nothing that runs here.

May import: base, emit, languages, narrow, program, source, passes, ir, errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version

from tfgraph.backends.base import Built, CompilingBackend, Executable, Target, Weights
from tfgraph.backends.tvm.portable.emit import Unprintable, print_kernels
from tfgraph.backends.tvm.portable.languages import LANGUAGES, Language
from tfgraph.backends.tvm.portable.narrow import check_32_bits, stored_weight
from tfgraph.backends.tvm.portable.program import Program, apart, program_of, running_nodes
from tfgraph.backends.tvm.portable.source import launch_plan, plan_text, source_text
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.ir import Graph
from tfgraph.passes import PassReport
from tfgraph.passes.proof import prove_graphs


class PortableBackend(CompilingBackend):
    """Writes the kernels of a graph in one language, and how a host launches them."""

    @property
    def language(self) -> Language:
        """The language of its kernels."""
        return LANGUAGES[self.name]

    def resolve(self, graph: Graph, target: Target) -> Graph:
        """The graph with every op that has no generic kernel taken apart."""
        return apart(graph, self.name)

    def build(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Built:
        """The source of the kernels and `launch.json`, see `source`. Raises TfgraphError at the
        node that the language cannot compute."""
        language = self.language
        resolved = apart(graph, self.name)
        check_types(resolved, language)
        if language.narrow:
            check_32_bits(resolved, language.title)
        program = program_of(resolved, weights, self.name)
        try:
            kernels = print_kernels(program.functions, language)
        except Unprintable as cause:
            node = program.nodes_of(cause.function)[0]
            raise TfgraphError(
                f"{language.title} cannot compute {node.op}: {cause.reason}", node.location
            ) from cause
        plan = launch_plan(language, program, kernels)
        return Built(
            files={
                f"kernels/{language.file}": source_text(language, program, kernels).encode(),
                "kernels/launch.json": plan_text(plan).encode(),
            },
            weights=tuple(stored_weight(w, language.memory(w.dtype)) for w in program.weights),
            scalars=program.scalars,
            notes=_report(graph, program),
            manifest={
                language.name: {"kernels": len(plan["kernels"]), "launches": len(plan["launches"])},
                "tools": {"apache-tvm": version("apache-tvm")},
            },
        )

    def compile(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Executable:
        """Not here: this version has no loader for these kernels."""
        raise MissingTool(
            self.runs_here(target),
            hint=f"compile to an artifact: tfgraph compile MODEL --target {self.name}",
        )

    def runs_here(self, target: Target) -> str:
        """Why nothing can run."""
        return f"this version writes {self.language.title} and does not run it"


def check_types(graph: Graph, language: Language) -> None:
    """Raise TfgraphError at the first node that reads or makes what the language has no type for
    here."""
    running = running_nodes(graph)
    places = [(v, n.location) for n in running for v in (*n.inputs, *n.outputs)]
    places += [(item.value, None) for item in graph.inputs]
    places += [(item.value, None) for item in graph.outputs]
    for value, where in places:
        dtype = value.type.dtype
        if dtype.value not in language.types:
            raise TfgraphError(
                f"{value} is {dtype.value}, for which the {language.name} backend has no kernels",
                where,
                "float32 has them" if dtype.is_float else "--target cpu has them",
            )


def _report(graph: Graph, program: Program) -> PassReport:
    nodes = Counter(call.function for call in program.calls)
    proof = prove_graphs("lowering", graph, program.graph)
    return PassReport("lower", dict(nodes), proof=proof)


class OpenCLBackend(PortableBackend):
    """OpenCL C."""

    name = "opencl"


class MetalBackend(PortableBackend):
    """The Metal shading language."""

    name = "metal"


class WebGPUBackend(PortableBackend):
    """WGSL."""

    name = "webgpu"
