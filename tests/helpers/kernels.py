"""Compiles PrimFuncs into one program, so that a test can call each on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import ir, relax

from tfgraph.backends.tvm.build import build_objects, compile_module
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.runtime.jit import Program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.backends.tvm.target import CpuMachine


def compile_kernels(
    kernels: Mapping[str, Any],
    *,
    threads: int,
    outputs: int = 1,
    machine: CpuMachine | None = None,
) -> Program:
    """A program with one function for each PrimFunc, whose last `outputs` parameters it returns."""
    builder = relax.BlockBuilder()
    for name, kernel in kernels.items():
        _add_caller(builder, name, kernel, outputs)
    return Program(build_objects(builder.get(), machine or cpu_machine()), threads=threads)


def assembly_of(kernel: Any, machine: CpuMachine) -> str:
    """The machine code of a PrimFunc and of the call of it, as LLVM's assembly text."""
    builder = relax.BlockBuilder()
    _add_caller(builder, "caller", kernel, 1)
    modules = [compile_module(builder.get(), machine).mod]
    for module in modules:
        if module.kind == "llvm":
            return str(module.inspect_source("asm"))
        modules.extend(module.imports)
    raise AssertionError("no machine code was made")


def objects_of(kernels: Mapping[str, Any]) -> list[bytes]:
    """The object files of such a program."""
    builder = relax.BlockBuilder()
    for name, kernel in kernels.items():
        _add_caller(builder, name, kernel, 1)
    return build_objects(builder.get(), cpu_machine())


def _add_caller(builder: Any, name: str, kernel: Any, outputs: int) -> None:
    types = [_type_of(parameter) for parameter in kernel.params]
    arguments = [relax.Var(f"x{i}", t) for i, t in enumerate(types[:-outputs])]
    results = types[-outputs:]
    # A PrimFunc is named for itself; the Relax function that calls it, for the test.
    called = builder.add_func(kernel.without_attr("global_symbol"), f"{name}_kernel")
    with builder.function(name, arguments):
        with builder.dataflow():
            result = builder.emit_output(
                relax.call_tir(called, arguments, results if outputs > 1 else results[0])
            )
        builder.emit_func_output(result)


def _type_of(parameter: Any) -> Any:
    kind = parameter.ty
    if isinstance(kind, ir.PrimType):
        return kind
    return relax.TensorType(list(kind.shape), str(kind.dtype))
