"""The CUDA backend: scheduled kernels as readable source, and host code to launch them.

Works on a machine without a GPU or nvcc; the result runs where there is one. May import: base,
callers, emit, emitters, kernels, rounding, arch, ir, errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

from tfgraph.backends.base import Built, CompilingBackend, Executable, Target, Weights
from tfgraph.backends.rounding import Rounding
from tfgraph.backends.tvm.callers import describe
from tfgraph.backends.tvm.cuda.arch import check_float, default_arch, detect_gpu, parse_arch
from tfgraph.backends.tvm.cuda.emit import emit_cuda
from tfgraph.backends.tvm.cuda.kernels import CudaKernels
from tfgraph.backends.tvm.cuda.rounding import rounding
from tfgraph.backends.tvm.emitters import lower
from tfgraph.backends.tvm.lower import resolve
from tfgraph.errors import MissingTool
from tfgraph.ir import Graph, Node


class CudaBackend(CompilingBackend):
    """Compiles for the architecture that the target names, else for the one found."""

    name = "cuda"

    def settle(self, target: Target) -> Target:
        """The target with its architecture chosen: asked for, the GPU's, or sm_80."""
        arch, origin = default_arch(target.arch, None)
        return replace(target, arch=arch.name, arch_origin=target.arch_origin or origin)

    def build(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Built:
        """`kernels.cu`, the launches of its kernels, and host objects."""
        arch = parse_arch(self.settle(target).arch or "")
        for value in graph.values():
            check_float(value.type.dtype.value, arch)
        lowered = lower(graph, weights, CudaKernels())
        comments = {name: describe(nodes) for name, nodes in lowered.calls.items()}
        code = emit_cuda(lowered.module, arch, comments)
        launches = [kernel.to_json() for kernel in code.kernels]
        return Built(
            files={
                "kernels/kernels.cu": code.source.encode(),
                "kernels/launch.json": (json.dumps(launches, indent=1) + "\n").encode(),
                **{f"kernels/host{i}.o": data for i, data in enumerate(code.objects)},
            },
            weights=lowered.main.weights,
            scalars=lowered.main.scalars,
            notes=lowered.report,
            manifest={
                "cuda": {"kernels": len(code.kernels), "launches": code.launches},
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
        """Not here: running needs a GPU and the artifact's loader for it."""
        raise MissingTool(
            self.runs_here(target),
            hint="compile to an artifact: tfgraph compile MODEL --target cuda",
        )

    def resolve(self, graph: Graph, target: Target) -> Graph:
        """The graph with each node that has no kernel expanded to those that have one."""
        return resolve(graph, self.name)[0]

    def rounding(self, node: Node, target: Target) -> Rounding:
        """What the kernel of the node declares."""
        return rounding(node)

    def runs_here(self, target: Target) -> str:
        """Why nothing can run."""
        return "this version does not load CUDA kernels" if detect_gpu() else "no CUDA device"
