"""From a Relax module to CUDA C, launch metadata and host objects, with no GPU and no nvcc.

TVM lowers the kernels and writes the source; the machine with the GPU compiles it when it loads the
objects, in which it is embedded. The same module gives the same bytes in every process.
May import: tvm, build, storage, names, launch, source, errors.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.tirx.compilation_pipeline import register_tir_pipeline

from tfgraph.backends.tvm.build import (
    machine_pipeline,
    memory_pipeline,
    object_files,
    storage_plans,
)
from tfgraph.backends.tvm.cuda import generic
from tfgraph.backends.tvm.cuda.arch import CudaArch
from tfgraph.backends.tvm.cuda.launch import Kernel, check, choices, describe
from tfgraph.backends.tvm.cuda.names import with_plain_names
from tfgraph.backends.tvm.cuda.source import readable
from tfgraph.backends.tvm.storage import StoragePlan

_HOST = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu"}
_PIPELINE = "tfgraph-cuda"
_POSTPROCESS = "tvm_callback_cuda_postproc"
_ONE_AT_A_TIME = Lock()  # TVM keeps pipelines and callbacks in tables of the process


@dataclass(frozen=True, slots=True)
class CudaCode:
    """What `emit_cuda` makes: the text of the .cu file, its kernels, the objects to load."""

    source: str
    kernels: tuple[Kernel, ...]
    objects: tuple[bytes, ...]
    launches: int
    """Kernels that one run of `main` launches: of those that a function chooses among, one."""
    storage: Mapping[str, StoragePlan]
    """The memory that each function plans."""


def cuda_target(arch: CudaArch) -> Any:
    """The `tvm.target.Target` of that architecture, with a plain x86-64 host."""
    return tvm.target.Target({"kind": "cuda", "arch": arch.name}, host=_HOST)


def emit_cuda(
    mod: Any,
    arch: CudaArch,
    comments: Mapping[str, Sequence[str]] = MappingProxyType({}),
    later: Sequence[CudaArch] = (),
) -> CudaCode:
    """Compile a Relax module whose functions call PrimFuncs through call_tir.

    The source is for `arch`, and as it is for the `later` ones. PrimFuncs that bind their threads
    stay as they are; others, and what Relax ops legalise to, get `generic.schedule`. `comments` has
    lines for the source to show above the kernels of a PrimFunc, by its name. Raises TfgraphError
    that names the kernel for a block of one thread, or one that exceeds a limit of an architecture.
    """
    target = cuda_target(arch)
    launches: list[int] = []
    storage: dict[str, StoragePlan] = {}

    def schedule(mod: Any, _context: Any) -> Any:
        launches.append(_count_launches(mod["main"]))
        return generic.schedule_module(mod, target)

    def listen(mod: Any, _context: Any) -> Any:
        storage.update(storage_plans(mod))
        return mod

    pipeline = tvm.transform.Sequential(
        [memory_pipeline(_pass(schedule)), _pass(listen), machine_pipeline()]
    )
    with _lowering([arch, *later], comments) as lowered:
        executable = relax.build(mod, target, relax_pipeline=pipeline, tir_pipeline=_PIPELINE)
        objects = tuple(object_files(executable))
    return CudaCode(lowered.source, tuple(lowered.kernels), objects, launches[0], storage)


def emit_kernels(functions: dict[str, Any], arch: CudaArch) -> tuple[str, tuple[Kernel, ...]]:
    """Source and launch metadata of PrimFuncs alone, by name, without Relax; errors as above."""
    target = cuda_target(arch)
    named = {name: f.with_attr("global_symbol", name) for name, f in functions.items()}
    with _lowering([arch]) as lowered:
        mod = generic.schedule_module(tvm.IRModule(named), target)
        tirx.build(mod, target=target, pipeline=_PIPELINE)
    return lowered.source, tuple(lowered.kernels)


@dataclass(slots=True)
class _Lowered:
    """What TVM tells us on its way."""

    source: str = ""
    kernels: list[Kernel] = field(default_factory=list)
    choices: dict[str, list[str]] = field(default_factory=dict)


@contextmanager
def _lowering(
    archs: Sequence[CudaArch], comments: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Generator[_Lowered]:
    """Within, TVM lowers to readable source; what it made is collected."""
    lowered = _Lowered()

    def postprocess(code: str, _target: Any) -> str:
        lowered.source, lowered.kernels[:] = readable(code, archs, lowered.kernels, comments)
        return lowered.source

    config = {
        # Loops stay loops under `#pragma unroll`, expressions stay where they are used, and
        # arrays keep their names: nvcc does it as well, and people can read the source.
        "tirx.UnrollLoop": {"explicit_unroll": False},
        "tirx.disable_cse_tir": True,
        "tirx.disable_storage_rewrite": True,
        "tirx.disable_assert": True,  # the Relax functions check their arguments
    }
    with _ONE_AT_A_TIME:
        # Where TVM's CUDA runtime is loaded, it would be asked to compile.
        os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"
        register_tir_pipeline(_PIPELINE, lambda: _tir_pipeline(lowered))
        tvm_ffi.register_global_func(_POSTPROCESS, postprocess, override=True)
        try:
            with tvm.transform.PassContext(opt_level=3, config=config):
                yield lowered
        finally:
            tvm_ffi.registry.remove_global_func(_POSTPROCESS)
    for kernel in lowered.kernels:  # not sooner: an error that passes through TVM loses its class
        for arch in archs:
            check(kernel, arch)


def _tir_pipeline(lowered: _Lowered) -> tuple[Any, Any, Any]:
    """TVM's TensorIR pipeline, and an ear where device functions have just been split off, which
    also names their sizes."""
    _, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()

    def note(mod: Any, _context: Any) -> Any:
        lowered.choices.update(choices(mod))
        return mod

    def listen(mod: Any, _context: Any) -> Any:
        named = {name: with_plain_names(function) for name, function in mod.functions.items()}
        lowered.kernels += [describe(f, lowered.choices) for f in named.values()]
        lowered.kernels.sort(key=lambda kernel: kernel.name)
        return tvm.IRModule(named, attrs=mod.attrs)

    def finalize() -> Any:
        return tvm.transform.Sequential([_pass(listen), finalize_device()])

    return tvm.transform.Sequential([_pass(note), _lower()]), finalize_host, finalize


def _lower() -> Any:
    """What TVM's default pipeline does to kernels whose threads are bound, in its order. Left out
    is what would change them behind our back: arrays are not made smaller (a function that gets an
    address writes more than the element there), and no barrier is added to those that we write."""
    return tvm.transform.Sequential(
        [
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LiftThreadBinding(),
            s_tir.transform.UnifyThreadBinding(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.StmtSimplify(),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.BF16ComputeLegalize(),
            tirx.transform.NarrowDataType(32),
            tirx.transform.VectorizeLoop(True),
            tirx.transform.UnrollLoop(),
            tirx.transform.StmtSimplify(),
            tirx.transform.RemoveNoOp(),
            s_tir.transform.RewriteUnsafeSelect(),
            tirx.transform.VerifyMemory(),
            tirx.transform.AnnotateEntryFunc(),
            s_tir.transform.InferFragment(),
            tirx.transform.SplitHostDevice(),
            tirx.transform.MakePackedAPI(),
            tirx.transform.BF16StorageLegalize(),
        ]
    )


def _count_launches(function: Any) -> int:
    """How many PrimFuncs a run calls, each of which launches one kernel."""
    ops = [tvm.ir.Op.get(f"relax.{name}") for name in ("call_tir", "call_tir_inplace")]
    calls: list[Any] = []
    tvm_ffi.structural_walk(function.body, [(relax.Call, calls.append)], order="post")
    return sum(1 for call in calls if call.op in ops)


def _pass(function: Any) -> Any:
    """A module pass of a function from a module and a context to a module."""
    return tvm.transform.module_pass(function, opt_level=0)
