"""Run emitted CUDA C on the CPU, through g++ and cuda_host.h; no GPU, no driver, no nvcc.

    (out,) = CudaOnCpu({"softmax": softmax(("rows",), 5)}, directory)("softmax", x)

Each launch runs twice, threads in ascending and in descending order, and both have to give the same
bits. Arrays stand between margins of NaN: what a kernel reads outside shows in its result, what it
writes outside is an error.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfgraph.backends.tvm.cuda.arch import parse_arch
from tfgraph.backends.tvm.cuda.emit import emit_kernels
from tfgraph.backends.tvm.cuda.launch import Kernel
from tfgraph.ir import DType
from tfgraph.ops.floats import numpy_dtype

HEADER = Path(__file__).parent / "cuda_host.h"
MARGIN = 1024  # elements on each side of an array

_CONSTANTS = '#define CUDART_INF_F __builtin_inff()\n#define CUDART_NAN_F __builtin_nanf("")\n'
"""What CUDA's header has of its own."""

_C_TYPES = {
    "float32": "float",
    "float16": "half",
    "bfloat16": "nv_bfloat16",
    "int64": "int64_t",
    "int32": "int",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
}


def require_host_compiler() -> str:
    """The path of g++; skips the test where there is none."""
    found = shutil.which("g++")
    if found is None:
        pytest.skip("no g++ to run CUDA C on the CPU")
    return found


class CudaOnCpu:
    """PrimFuncs by name, emitted as CUDA C and built as host code."""

    def __init__(
        self,
        functions: Mapping[str, Any],
        directory: Path,
        edit: Callable[[str], str] = lambda source: source,
    ) -> None:
        """Emit and build; `edit` changes the source in between."""
        self._functions = dict(functions)
        source, kernels = emit_kernels(self._functions, parse_arch("sm_80"))
        self.source = edit(source)
        self.kernels = {kernel.name: kernel for kernel in kernels}
        text = self.source + "".join(_entry(kernel) for kernel in kernels)
        self._library = ctypes.CDLL(str(_build(text, directory)))
        self._library.cuda_host_error.restype = ctypes.c_char_p
        self._library.cuda_host_barriers.restype = ctypes.c_int64

    def __call__(self, name: str, *inputs: np.ndarray | int) -> list[np.ndarray]:
        """The outputs of the function, given its parameters in order but for the outputs."""
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
        self.launch(f"{name}_kernel", arguments | symbols)
        return outputs

    def launch(self, name: str, arguments: Mapping[str, np.ndarray | int]) -> None:
        """Launch one kernel on arguments by name, arrays by name and `_ptr`, which are changed in
        place: a size and an array may have one name."""
        kernel = self.kernels[name]
        ascending = self._launch(kernel, arguments, descending=False)
        descending = self._launch(kernel, arguments, descending=True)
        for parameter, array in ascending.items():
            same = array.tobytes() == descending[parameter].tobytes()
            assert same, f"{name}: {parameter} depends on the order of threads"
            given = arguments[parameter]
            assert isinstance(given, np.ndarray)
            given[...] = array

    @property
    def barriers(self) -> int:
        """How many barriers all blocks of the last launch passed, each counted once a block."""
        return int(self._library.cuda_host_barriers())

    def _launch(
        self, kernel: Kernel, arguments: Mapping[str, np.ndarray | int], *, descending: bool
    ) -> dict[str, np.ndarray]:
        guarded: dict[str, _Guarded] = {}
        symbols: dict[str, int] = {}
        values: list[object] = [int(descending)]
        for parameter, kind in kernel.parameters:
            pointer = f"{parameter.removesuffix('_ptr')}_ptr"
            parameter = pointer if kind.endswith("*") else parameter
            value = arguments[parameter]
            if isinstance(value, np.ndarray):
                assert f"{value.dtype}*" == kind, f"{parameter} is {value.dtype}"
                guarded[parameter] = _Guarded(value)
                values.append(ctypes.c_void_p(guarded[parameter].address))
            else:
                symbols[parameter] = value
                values.append(ctypes.c_int64(value))
        extents = [eval(text, {"min": min, "max": max}, dict(symbols)) for text in kernel.grid]
        grid, block = (ctypes.c_uint * 3)(*extents), (ctypes.c_uint * 3)(*kernel.block)
        code = getattr(self._library, f"run_{kernel.name}")(grid, block, *values)
        assert code == 0, f"{kernel.name}: {self._library.cuda_host_error().decode()}"
        return {parameter: array.result(kernel.name) for parameter, array in guarded.items()}


class _Guarded:
    """A copy of an array between margins."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape = array.shape
        self.buffer = np.full(array.size + 2 * MARGIN, _margin(array.dtype), array.dtype)
        self.buffer[MARGIN:-MARGIN] = array.reshape(-1)
        self.address = self.buffer.ctypes.data + MARGIN * array.itemsize
        self._margins = self._margin_bytes()

    def result(self, kernel: str) -> np.ndarray:
        assert self._margin_bytes() == self._margins, f"{kernel} wrote outside of an array"
        return self.buffer[MARGIN:-MARGIN].reshape(self.shape)

    def _margin_bytes(self) -> bytes:
        return self.buffer[:MARGIN].tobytes() + self.buffer[-MARGIN:].tobytes()


def _margin(dtype: np.dtype) -> float | int:
    return 1 if dtype.kind in "biu" else float("nan")


def numpy_of(dtype: str) -> np.dtype:
    """NumPy's type of an element type's name."""
    return numpy_dtype(DType(dtype))


def _entry(kernel: Kernel) -> str:
    """A C function that launches the kernel."""
    typed, names = [], []
    for parameter, kind in kernel.parameters:
        pointer = "*" if kind.endswith("*") else ""
        typed.append(f"{_C_TYPES[kind.removesuffix('*')]}{pointer} {parameter}")
        names.append(parameter)
    return (
        f'\nextern "C" int run_{kernel.name}(const unsigned* grid, const unsigned* block, '
        f"int descending, {', '.join(typed)}) {{\n"
        f"  return cuda_host::launch(grid, block, descending, "
        f"[=] {{ {kernel.name}({', '.join(names)}); }});\n}}\n"
    )


def _build(text: str, directory: Path) -> Path:
    """Compile; the same text is compiled once a directory."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    library = directory / f"{digest}.so"
    if not library.exists():
        for header in ("cuda.h", "cuda_fp16.h", "cuda_bf16.h"):  # cuda_host.h stands in
            (directory / header).touch()
        (directory / "math_constants.h").write_text(_CONSTANTS, encoding="utf-8")
        source = directory / f"{digest}.cpp"
        source.write_text(text, encoding="utf-8")
        command = [require_host_compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", "-w"]
        command += ["-fno-math-errno", "-fno-gnu-unique", "-U_FORTIFY_SOURCE"]
        command += ["-include", str(HEADER), f"-I{directory}"]
        built = subprocess.run(
            [*command, str(source), "-o", str(library)], capture_output=True, text=True, check=False
        )
        assert built.returncode == 0, built.stderr[-4000:]
    return library
