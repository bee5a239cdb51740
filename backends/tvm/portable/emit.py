"""From PrimFuncs to the text of their kernels and how each is launched. May import: tvm, cuda's
launch and names, printer, languages, names, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import s_tir, tirx

from tfgraph.backends.tvm.cuda.launch import describe
from tfgraph.backends.tvm.cuda.names import with_plain_names
from tfgraph.backends.tvm.portable.languages import Language, Parameter, Unwritable
from tfgraph.backends.tvm.portable.names import portable_name
from tfgraph.backends.tvm.portable.printer import Printer

_HOST = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu"}


@dataclass(frozen=True)
class PrintedKernel:
    """A kernel: its text, and the grid of blocks of so many threads that runs it."""

    name: str
    text: str
    grid: tuple[str, str, str]
    block: int
    parameters: tuple[Parameter, ...]


class Unprintable(Exception):
    """A PrimFunc of which no kernel could be made, by its name, and why."""

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(f"{function}: {reason}")
        self.function, self.reason = function, reason


def print_kernels(
    functions: Mapping[str, Any], language: Language
) -> dict[str, tuple[PrintedKernel, ...]]:
    """The kernels of each PrimFunc, in the order in which they run. Raises Unprintable."""
    target = tvm.target.Target({"kind": language.name}, host=_HOST)
    named = {name: f.with_attr("global_symbol", name) for name, f in functions.items()}
    with tvm.transform.PassContext(opt_level=3):
        lowered = _lower(target)(tvm.IRModule(named))
    found: dict[str, list[PrintedKernel]] = {name: [] for name in functions}
    for function in lowered.functions.values():
        if "tirx.kernel_launch_params" not in (function.attrs or {}):
            continue  # what the host does
        device = with_plain_names(function, portable_name)
        launch = describe(device, {})
        try:
            text, renamed = Printer(language, device).print()
        except Unwritable as cause:
            raise Unprintable(launch.function, str(cause)) from cause
        names = [str(p.name).removesuffix("_ptr") for p in function.params]
        parameters = tuple(replace(p, given=n) for p, n in zip(renamed, names, strict=True))
        grid = language.grid(launch.grid[0])
        printed = PrintedKernel(launch.name, text, grid, launch.threads, parameters)
        found[launch.function].append(printed)
    return {name: tuple(sorted(kernels, key=_number)) for name, kernels in found.items()}


def _lower(target: Any) -> Any:
    """As little as leaves flat arrays and a function for each launch."""
    return tvm.transform.Sequential(
        [
            tirx.transform.BindTarget(target),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.StmtSimplify(),
            tirx.transform.AnnotateEntryFunc(),
            tirx.transform.SplitHostDevice(),
        ]
    )


def _number(kernel: PrintedKernel) -> int:
    """The place of a kernel among those of its PrimFunc: `f_kernel`, `f_kernel_1`, ..."""
    last = kernel.name.rpartition("_")[2]
    return int(last) if last.isdigit() else 0
