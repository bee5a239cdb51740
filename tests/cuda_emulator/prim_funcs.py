"""TVM's PrimFuncs as CUDA C, run on the CPU.

    (out,) = CudaOnCpu({"softmax": softmax(("rows",), 5)}, directory)("softmax", x)

Each launch runs twice, threads in ascending and in descending order, and both have to give the same
bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from cuda_emulator.launch import Emulated, KernelFault, Order

from tfgraph.backends.tvm.cuda.arch import parse_arch
from tfgraph.backends.tvm.cuda.emit import emit_kernels
from tfgraph.backends.tvm.cuda.launch import Kernel

ORDERS: tuple[Order, ...] = ("ascending", "descending")


class CudaOnCpu:
    """PrimFuncs by name, emitted as CUDA C and built as host code."""

    def __init__(
        self,
        functions: Mapping[str, Any],
        directory: Path,
        *,
        checked: bool = True,
        arch: str = "sm_80",
    ) -> None:
        """Emit and build. Without `checked` there are numbers only, several times sooner."""
        self._functions = dict(functions)
        self._directory = directory
        source, kernels = emit_kernels(self._functions, parse_arch(arch))
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self._emulated = Emulated(source, directory, checked=checked)

    def without_each(self, steps: re.Pattern[str], source: str = "") -> Iterator[CudaOnCpu]:
        """The same without the first of the statements that the pattern finds, without the second,
        and so on; `source` in place of the whole. All are one library, for g++ takes longest: each
        stands until the next is asked for.
        """
        parts = steps.split(source or self.source)
        found = steps.findall(source or self.source)
        asked = [f"if (cuda_emulator::kept({nth})) {step}" for nth, step in enumerate(found)]
        text = "".join(part + step for part, step in zip(parts, [*asked, ""], strict=True))
        made = copy(self)
        made._emulated = Emulated(text, self._directory)
        for nth in range(len(found)):
            made._emulated.leave_out(nth)
            yield made

    @property
    def source(self) -> str:
        """The CUDA C that runs."""
        return self._emulated.source

    @property
    def barriers(self) -> int:
        """How many barriers all blocks of the last launch passed, each counted once a block."""
        return self._emulated.barriers

    def variants(self, name: str) -> list[str]:
        """The kernels that the host of the function chooses among, or the one there is."""
        found = [kernel for kernel in self.kernels.values() if kernel.function == name]
        return [kernel.name for kernel in sorted(found, key=lambda kernel: kernel.number)]

    def __call__(self, name: str, *inputs: np.ndarray | int, kernel: str = "") -> list[np.ndarray]:
        """The outputs of the function, given its parameters in order but for the outputs; by the
        kernel that its host chooses, or by `kernel`."""
        arguments: dict[str, np.ndarray | int] = {}
        symbols: dict[str, int] = {}
        for parameter, value in zip(self._functions[name].params, inputs, strict=False):
            if isinstance(value, np.ndarray):
                for size, got in zip(parameter.ty.shape, value.shape, strict=True):
                    if str(size).isidentifier():
                        symbols[str(size)] = got
                    else:
                        assert int(size) == got, f"{parameter.name} is {value.shape}"
                arguments[f"{parameter.name}_ptr"] = value
            else:
                symbols[str(parameter.name)] = value
        outputs = []
        for parameter in self._functions[name].params[len(inputs) :]:
            shape = [symbols[str(n)] if str(n) in symbols else int(n) for n in parameter.ty.shape]
            outputs.append(np.full(shape, np.nan, numpy_of(str(parameter.ty.dtype))))
            arguments[f"{parameter.name}_ptr"] = outputs[-1]
        for chosen in [kernel] if kernel else self.chosen(name, symbols):
            self.launch(chosen, arguments | symbols)
        return outputs

    def chosen(self, name: str, symbols: Mapping[str, int]) -> list[str]:
        """The kernels that the host of a function launches at these sizes."""
        conditions = {variant: self.kernels[variant].when for variant in self.variants(name)}
        told = next((c for c in conditions.values() if c and _value(c, symbols)), "")
        return [variant for variant, condition in conditions.items() if condition == told]

    def launch(self, name: str, arguments: Mapping[str, np.ndarray | int]) -> None:
        """Launch one kernel on arguments by name, arrays by name and `_ptr`, which are changed in
        place: a size and an array may have one name."""
        kernel = self.kernels[name]
        names, given, symbols = self._arguments(kernel, arguments)
        grid = [_value(text, symbols) for text in kernel.grid]
        results = []
        for order in ORDERS:
            copies = {id(v): v.copy() for v in given}  # an array that is given twice is one
            values = [copies[id(v)] for v in given]
            self._emulated(
                name,
                values,
                grid=grid,
                block=kernel.block,
                dynamic_shared=kernel.dynamic_shared_bytes,
                order=order,
                names=names,
            )
            results.append(values)
        for parameter, target, first, second in zip(names, given, *results, strict=True):
            if isinstance(target, np.ndarray):
                if first.tobytes() != second.tobytes():
                    raise KernelFault(f"{name}: {parameter} depends on the order of threads")
                target[...] = first

    def _arguments(
        self, kernel: Kernel, arguments: Mapping[str, np.ndarray | int]
    ) -> tuple[list[str], list[Any], dict[str, int]]:
        """Names and values of the kernel's arguments in order, and its sizes by name."""
        names: list[str] = []
        given: list[Any] = []
        symbols: dict[str, int] = {}
        for parameter, kind in kernel.parameters:
            if kind.endswith("*"):
                array = arguments[f"{parameter.removesuffix('_ptr')}_ptr"]
                assert isinstance(array, np.ndarray)
                assert f"{array.dtype}*" == kind, f"{parameter} is {array.dtype}"
                given.append(array)
            else:
                value = arguments[parameter]
                assert isinstance(value, int)
                symbols[parameter] = value
                given.append(numpy_of(kind).type(value))
            names.append(parameter)
        return names, given, symbols


def _value(text: str, symbols: Mapping[str, int]) -> int:
    return int(eval(text, {"min": min, "max": max}, dict(symbols)))


def numpy_of(name: str) -> np.dtype[Any]:
    """NumPy's type of that name, bfloat16 too."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
