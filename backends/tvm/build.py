"""From a Relax module of our own kernels to object files, in memory, with no compiler or linker.

`Program` runs the Relax passes that plan memory and lower `call_tir`, then TVM's lowering and LLVM,
and keeps the object files that TVM would hand to a linker: one a kernel, since models have many
kernels in common, and LLVM takes most of the time. `tfgraph.runtime.jit` loads those bytes as they
are. The same module gives the same bytes in every process. May import: tvm, storage, cache, errors.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.relax import vm_build
from tvm.tirx import compilation_pipeline

from tfgraph.backends.tvm.storage import StoragePlan, storage_plan
from tfgraph.cache import active

if TYPE_CHECKING:
    from tfgraph.backends.tvm.target import CpuMachine

_KERNEL_PIPELINE = "tfgraph-cpu"
_KIND = "kernels"  # in the cache
_MAIN = "main"
_MOST_KEPT = 1000  # kernels, of some ten kilobytes each
_kept: dict[bytes, bytes] = {}
"""The object files of kernels that this process has compiled, by the hash of what made them."""
_vm: Any = vm_build  # the parts of `relax.build`


def build_objects(mod: Any, machine: CpuMachine, *, checks: bool = False) -> list[bytes]:
    """The object files of a module, see `Program`."""
    return [*Program(mod, machine, checks=checks).objects().values()]


def compile_module(mod: Any, machine: CpuMachine, *, checks: bool = False) -> Any:
    """The same as TVM's executable, in which the machine code has not been written down yet."""
    return Program(mod, machine, checks=checks).executable()


class Program:
    """The IRModule `mod` for `machine` after `relax_pipeline`, taken apart as `relax.build` does:
    what the virtual machine runs, and the kernels that it calls, which LLVM compiles when they are
    asked for. `storage` is the memory that each function plans.

    The Relax functions check their arguments' types in any case. With `checks` each kernel checks
    its own too, which finds mistakes of the code that calls it but triples the size of the code.
    """

    def __init__(self, mod: Any, machine: CpuMachine, *, checks: bool = False) -> None:
        self._machine, self._checks = machine, checks
        with self._context(), machine.target:
            planned = memory_pipeline()(mod)
            lowered = machine_pipeline()(planned)
        self.storage = storage_plans(planned)
        self._builder = relax.ExecBuilder()
        self._kernels: Any = _vm._filter_tir(_vm._vmcodegen(self._builder, lowered))
        self._constants = dict((lowered.attrs or {}).get("const_name_to_constant", {}))

    def objects(self) -> dict[str, bytes]:
        """The object files to load: of each kernel by its name, and `main`, which calls them. In
        any thread, while others have the interpreter."""
        found = () if self._kernels is None else self._kernels.functions_items()
        kernels = {str(variable.name_hint): function for variable, function in found}
        objects = {name: self._kernel(name, kernels[name]) for name in sorted(kernels)}
        # What the virtual machine runs is quickly made, and changes with the number of layers.
        (objects[_MAIN],) = object_files(self._linked(_no_kernels()))[1:]
        return objects

    def _kernel(self, name: str, function: Any) -> bytes:
        """The object file of a kernel, which this process or the cache may know."""
        target, checks = str(self._machine.target), str(self._checks)
        made_of = name, tvm.ir.save_json(function), target, checks
        digest = hashlib.sha256("\0".join(made_of).encode()).digest()
        if (known := _kept.get(digest)) is not None:
            return known
        cache = active()
        if cache is not None and (found := cache.get(_KIND, *made_of)) is not None:
            return found
        data = self._compiled(name, function)
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[digest] = data
        if cache is not None:
            cache.put(_KIND, data, *made_of)
        return data

    def _compiled(self, name: str, function: Any) -> bytes:
        """The kernel's machine code. LLVM ends the process where it cannot write a file: so its
        file is memory."""
        module = tvm.IRModule({name: function})
        with self._context():
            built = tirx.build(module, target=self._machine.target, pipeline=_KERNEL_PIPELINE)
        memory = os.memfd_create("kernel.o")
        with os.fdopen(memory, "rb") as file:
            built.write_to_file(f"/proc/self/fd/{memory}", "o")
            return file.read()

    def executable(self) -> Any:
        """TVM's, in which the machine code has not been written down yet."""
        return self._linked(self._kernels)

    def _linked(self, kernels: Any) -> Any:
        with self._context():
            return _vm._vmlink(
                self._builder,
                self._machine.target,
                kernels,
                tir_pipeline=_KERNEL_PIPELINE,
                params=self._constants,
            )

    def _context(self) -> Any:
        config = {"tirx.disable_assert": not self._checks}
        return tvm.transform.PassContext(opt_level=2, config=config)


def storage_plans(planned: Any) -> dict[str, StoragePlan]:
    """The memory that each function of a module plans, after `memory_pipeline`."""
    return {
        name.name_hint: storage_plan(function)
        for name, function in planned.functions_items()
        if isinstance(function, relax.Function)
    }


def _no_kernels() -> Any:
    """A module of one function that does nothing: a library, so that the rest is written as it is
    beside the real one."""
    nothing = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("global_symbol", "nothing")
    return tvm.IRModule({"nothing": nothing})


def object_files(executable: Any) -> list[bytes]:
    """The object files that TVM would hand to a linker, as bytes.

    LLVM ends the process where it cannot write a file: so its files are memory under other names.
    """
    kept: list[bytes] = []

    def keep(_output: str, files: list[str], **_options: Any) -> None:
        kept.extend(Path(file).read_bytes() for file in files)

    keep.output_format = "so"  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory(prefix="tfgraph-") as folder, ExitStack() as stack:
        for name in ("lib0.o", "devc.o"):
            memory = os.memfd_create("kernel.o")
            stack.callback(os.close, memory)
            os.symlink(f"/proc/self/fd/{memory}", Path(folder) / name)
        executable.export_library("unused.so", fcompile=keep, workspace_dir=folder)
    return kept


def memory_pipeline(*kernel_passes: Any) -> Any:
    """TVM's default build pipeline without library dispatch and CUDA graphs, made reproducible: the
    first half, after which memory is planned.

    `kernel_passes` run while the module holds PrimFuncs, those that are called, and the calls.
    """
    passes = relax.transform
    return tvm.transform.Sequential(
        [
            passes.LegalizeOps(skip_ops=["relax.reshape"]),  # which become views
            tvm.transform.module_pass(drop_unused_kernels, opt_level=0),
            *kernel_passes,
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            passes.StaticPlanBlockMemory(),
            passes.LowerAllocTensor(),
            passes.KillAfterLastUse(),
        ]
    )


def machine_pipeline() -> Any:
    """The second half: what the virtual machine runs."""
    passes = relax.transform
    return tvm.transform.Sequential(
        [
            passes.LowerRuntimeBuiltin(),
            passes.ComputePrimValue(),
            passes.VMShapeLower(),
            tvm.transform.module_pass(order_shape_stores, opt_level=0),
            passes.AttachGlobalSymbol(),
        ]
    )


def drop_unused_kernels(mod: Any, _context: Any) -> Any:
    """Drop what no function of ours calls, such as kernels of reshapes that have become views."""
    ours = [n.name_hint for n, f in mod.functions_items() if isinstance(f, relax.Function)]
    return relax.transform.DeadCodeElimination(ours)(mod)


def order_shape_stores(mod: Any, _context: Any) -> Any:
    """Sort the stores of each shape function by the slot they fill.

    VMShapeLower emits them in the order of a hash table keyed by addresses, which differs from
    process to process. They only read slots that other functions fill, so any order is right.
    """
    for name, function in mod.functions_items():
        body = getattr(function, "body", None)
        if name.name_hint.startswith("shape_func") and isinstance(body, tirx.SeqStmt):
            stores = list(body.seq)
            if all(isinstance(store, tirx.BufferStore) for store in stores):
                stores.sort(key=lambda store: int(store.indices[0]))
                mod.update_func(name, function.with_body(tirx.SeqStmt(stores)))
    return mod


def _kernel_pipeline() -> tuple[Any, Any, Any]:
    """TVM's default lowering of PrimFuncs without its GPU passes and without its slowest passes.

    What those do to CPU code (hoisting, removing dead code, common subexpressions), LLVM does too.
    """
    passes = tvm.transform.Sequential(
        [
            s_tir.transform.CanonicalizeLoop(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.BF16ComputeLegalize(),
            tirx.transform.NarrowDataType(32),
            tirx.transform.VectorizeLoop(True),
            tirx.transform.StorageRewrite(),
            tirx.transform.UnrollLoop(),
            tirx.transform.StmtSimplify(),
            s_tir.transform.RewriteUnsafeSelect(),
            tirx.transform.VerifyMemory(),
            tirx.transform.SplitHostDevice(),
            tirx.transform.MakePackedAPI(),
            tirx.transform.BF16StorageLegalize(),
        ]
    )
    return (
        passes,
        compilation_pipeline.finalize_host_passes,
        compilation_pipeline.finalize_device_passes,
    )


compilation_pipeline.register_tir_pipeline(_KERNEL_PIPELINE, _kernel_pipeline)
