"""The CUDA backend: scheduled kernels as readable source, code for the GPUs that it is asked for,
and host code to launch them.

Works on a machine without a GPU; without nvcc or NVRTC too, but then the source is all there is.
May import: base, artifact, callers, emit, emitters, kernels, rounding,
arch, toolkit, plan, runtime, ir, errors.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
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
from tfgraph.backends.tvm.callers import describe
from tfgraph.backends.tvm.cuda.arch import (
    arch_names,
    check_float,
    check_tf32,
    default_archs,
    parse_archs,
)
from tfgraph.backends.tvm.cuda.emit import CudaCode, emit_cuda
from tfgraph.backends.tvm.cuda.kernels import CudaKernels
from tfgraph.backends.tvm.cuda.rounding import rounding
from tfgraph.backends.tvm.cuda.toolkit import Image, find_toolkit, make_images, wanted
from tfgraph.backends.tvm.emitters import lower
from tfgraph.backends.tvm.lower import resolve
from tfgraph.backends.tvm.module import Lowered
from tfgraph.backends.tvm.plan import plan
from tfgraph.errors import MissingTool
from tfgraph.ir import Graph, Node
from tfgraph.runtime import format as layout
from tfgraph.runtime.cuda.driver import find_driver
from tfgraph.runtime.cuda.images import choose_image
from tfgraph.runtime.cuda.library import find_device
from tfgraph.runtime.model import load

log = logging.getLogger("tfgraph")
NO_TOOLKIT = "no nvcc or NVRTC"


class CudaBackend(CompilingBackend):
    """Compiles for the architectures that the target names, else for the one found."""

    name = "cuda"
    has_functions = True

    def settle(self, target: Target) -> Target:
        """The target with its architectures chosen: asked for, the GPU's, or sm_80."""
        archs, origin = default_archs(target.arch, None)
        return replace(target, arch=arch_names(archs), arch_origin=target.arch_origin or origin)

    def build(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Built:
        """`kernels.cu`, what it becomes for each architecture, the launches of its kernels, and
        host objects."""
        archs = parse_archs(self.settle(target).arch or "")
        dtypes = {value.type.dtype.value for value in graph.values()}
        for dtype in dtypes:
            check_float(dtype, archs[0])
        if target.tf32:
            check_tf32(dtypes, archs[0])
        shared_bytes = min(arch.shared_bytes_per_block for arch in archs)
        kernels = CudaKernels(shared_bytes, tf32=target.tf32)
        lowered = lower(graph, weights, kernels, functions)
        comments = {name: describe(nodes) for name, nodes in lowered.calls.items()}
        code = emit_cuda(lowered.module, archs[0], comments, archs[1:])
        toolkit = find_toolkit()
        images = [] if toolkit is None else make_images(toolkit, code.source, archs)
        _warn_of_spills(images)
        made_by = None if toolkit is None else toolkit.name
        return _built(lowered, code, images, made_by, target.tf32)

    def compile(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Executable:
        """The graphs as a loaded artifact, whose files are gone then."""
        reason = self.runs_here(target)
        if reason is not None:
            hint = "compile to an artifact: tfgraph compile MODEL --target cuda"
            raise MissingTool(reason, hint=hint)
        target = self.settle(target)
        built = self.build(graph, weights, target, functions)
        with tempfile.TemporaryDirectory(prefix="tfgraph-") as folder:
            write_artifact(Path(folder), graph, graph, built, target, [])
            return load(folder, verify_weights=False)

    def resolve(self, graph: Graph, target: Target) -> Graph:
        """The graph with each node that has no kernel expanded to those that have one."""
        return resolve(graph, self.name)[0]

    def rounding(self, node: Node, target: Target) -> Rounding:
        """What the kernel of the node declares."""
        return rounding(node, tf32=target.tf32)

    def runs_here(self, target: Target) -> str | None:
        """Whether a GPU is here with all that it takes, and what would be compiled is for it."""
        try:
            driver, device = find_device()
            toolkit = find_toolkit()
            if toolkit is None:
                return f"{NO_TOOLKIT} to make code for {device}"
            archs = parse_archs(self.settle(target).arch or "")
            images = [Image(*what, toolkit.cuda, b"", {}).to_json() for what in wanted(archs)]
            choose_image(images, driver, device, Path("the artifact"))
        except MissingTool as missing:
            return missing.message
        return None

    def device(self) -> str:
        """The GPU that artifacts run on, its architecture, and the CUDA that its driver is of."""
        try:
            driver = find_driver()
            return f"{driver.first.name}, {driver.first.arch}, CUDA {driver.version}"
        except MissingTool:
            return ""


def _warn_of_spills(images: Sequence[Image]) -> None:
    for image in images:
        for name, usage in image.usage.items():
            if usage.spills:
                log.warning(
                    "%s spills registers on %s: %d bytes stored, %d loaded",
                    name,
                    image.arch,
                    usage.spill_stores,
                    usage.spill_loads,
                )


def _built(
    lowered: Lowered, code: CudaCode, images: Sequence[Image], toolkit: str | None, tf32: bool
) -> Built:
    """What an artifact holds: source and code, the launches, and host objects."""
    launches = [kernel.to_json() for kernel in code.kernels]
    usage = {
        image.arch: {name: used.to_json() for name, used in image.usage.items()}
        for image in images
        if image.usage
    }
    return Built(
        files={
            layout.CUDA_SOURCE: code.source.encode(),
            layout.LAUNCHES: (json.dumps(launches, indent=1) + "\n").encode(),
            **{image.file: image.data for image in images},
            **{f"kernels/host{i}.o": data for i, data in enumerate(code.objects)},
        },
        weights=lowered.main.weights,
        scalars=lowered.main.scalars,
        functions={
            name: BuiltFunction(f.graph, f.weights, f.scalars, plan(f, code.storage[name]))
            for name, f in lowered.functions.items()
        },
        notes=lowered.report,
        manifest={
            **plan(lowered.main, code.storage["main"]),
            "cuda": {
                "kernels": len(code.kernels),
                "launches": code.launches,
                **({"tf32": True} if tf32 else {}),
                "images": [image.to_json() for image in images],
                "usage": usage,
            },
            "tools": {
                "apache-tvm": version("apache-tvm"),
                **({} if toolkit is None else {"cuda": toolkit}),
            },
        },
    )
