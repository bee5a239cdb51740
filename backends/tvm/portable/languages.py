"""How OpenCL C, Metal and WGSL write what kernels are made of. May import: helpers, errors.

A type is TVM's name of it, an expression its text. What a language cannot write raises Unwritable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tfgraph.backends.tvm.portable.helpers import METAL_HELPERS, OPENCL_HELPERS, WGSL_HELPERS

INT32 = range(-(2**31), 2**31)


class Unwritable(Exception):
    """What a kernel holds and the language cannot say; the message names it."""


@dataclass(frozen=True)
class Parameter:
    """An array or a size that a kernel is given. `given` is its name in the PrimFunc."""

    name: str
    dtype: str
    array: bool
    written: bool = False
    given: str = ""


class Language(ABC):
    """A language of kernels."""

    name: ClassVar[str]
    title: ClassVar[str]
    file: ClassVar[str]
    types: ClassVar[Mapping[str, str]]
    """Element types, and what values of them are in registers."""
    stored: ClassVar[Mapping[str, str]] = {}
    """The types that differ in memory, by the names that NumPy has for them."""
    functions: ClassVar[Mapping[str, str]]
    helpers: ClassVar[Mapping[str, str]]
    """Functions that the language lacks, as text."""
    remarks: ClassVar[Sequence[str]] = ()
    """What whoever builds the source has to know."""
    preamble: ClassVar[Sequence[str]] = ()
    """What stands before all functions."""
    most_arrays: ClassVar[int] = 1 << 30
    """The arrays that one kernel may be given."""
    finite: ClassVar[bool] = False
    """Whether there is no infinity: the largest numbers stand for it."""
    ternary: ClassVar[bool] = True
    """Whether it has `c ? a : b`; else `select(b, a, c)`, which computes both."""
    narrow: ClassVar[bool] = False
    """Whether integers have 32 bits, those of int64 too."""

    def type(self, dtype: str) -> str:
        """The type of values."""
        if dtype not in self.types:
            raise Unwritable(f"{self.title} has no {dtype} here")
        return self.types[dtype]

    def memory(self, dtype: str) -> str:
        """The NumPy name of the type in which arrays of `dtype` stand in memory."""
        self.type(dtype)
        return self.stored.get(dtype, dtype)

    def grid(self, blocks: str) -> tuple[str, str, str]:
        """The extents of a grid of so many blocks, an expression of Python."""
        return blocks, "1", "1"

    @abstractmethod
    def integer(self, value: int, dtype: str, beside: bool) -> str:
        """A literal; `beside` a value of its type, from which it takes its own."""

    def real(self, value: float) -> str:
        """A float32 literal, which reads back to the same bits."""
        number = np.float32(value)
        plain = number == 0 or 1e-4 <= abs(number) < 1e7
        shortest = np.format_float_positional if plain else np.format_float_scientific
        return shortest(number, trim="0") + "f"

    def array_name(self, kernel: str, name: str) -> str:
        """What an array that a kernel is given is called."""
        return name

    @abstractmethod
    def thread(self, dtype: str, block: int) -> str:
        """The number of the thread among all, in blocks of so many."""

    @abstractmethod
    def head(self, name: str, block: int, parameters: Sequence[Parameter]) -> list[str]:
        """What stands before a kernel's body, up to its brace."""

    @abstractmethod
    def declare(self, name: str, dtype: str, value: str | None, constant: bool) -> str:
        """The declaration of a variable."""

    @abstractmethod
    def array(self, name: str, dtype: str, size: int) -> str:
        """The declaration of an array in registers."""

    @abstractmethod
    def loop(self, name: str, dtype: str, start: str, end: str) -> str:
        """The head of a loop, up to its brace."""

    @abstractmethod
    def cast(self, dtype: str, value: str) -> str:
        """A conversion; `value` binds as closely as a name."""

    @abstractmethod
    def bits(self, dtype: str, value: str) -> str:
        """The same bits as another type."""

    def load(self, dtype: str, element: str) -> str:
        """An element of an array in memory as a value: the text may be a comparison."""
        return element

    def store(self, dtype: str, value: str) -> str:
        """A value as an element of an array in memory."""
        return value


_FUNCTIONS = ("exp", "log", "sqrt", "sin", "cos", "floor")


class _CLike(Language):
    def integer(self, value: int, dtype: str, beside: bool) -> str:
        if dtype == "bool":
            return "true" if value else "false"
        if value == -(2**63):
            return "(-0x7fffffffffffffffL - 1)"
        if value == -(2**31):
            return f"({self.type(dtype)})(-0x7fffffff - 1)"
        plain = str(value) if value in INT32 else f"{value}L"
        if beside or dtype == "int32" or plain.endswith("L"):
            return plain
        return f"{plain}L" if dtype == "int64" else f"({self.type(dtype)}){plain}"

    def real(self, value: float) -> str:
        if np.isnan(value):
            return "NAN"
        if np.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return super().real(value)

    def declare(self, name: str, dtype: str, value: str | None, constant: bool) -> str:
        word = "const " if constant else ""
        return f"{word}{self.type(dtype)} {name}{'' if value is None else f' = {value}'};"

    def array(self, name: str, dtype: str, size: int) -> str:
        return f"{self.type(dtype)} {name}[{size}];"

    def loop(self, name: str, dtype: str, start: str, end: str) -> str:
        return f"for ({self.type(dtype)} {name} = {start}; {name} < {end}; ++{name}) {{"

    def cast(self, dtype: str, value: str) -> str:
        return f"({self.type(dtype)}){value}"


class OpenCL(_CLike):
    """OpenCL C 1.2, which has 64-bit integers."""

    name, title, file = "opencl", "OpenCL C", "kernels.cl"
    types: ClassVar[Mapping[str, str]] = {
        "float32": "float",
        "int64": "long",
        "int32": "int",
        "int8": "char",
        "uint8": "uchar",
        "bool": "bool",
    }
    stored: ClassVar[Mapping[str, str]] = {"bool": "uint8"}  # no kernel takes an array of bool
    functions: ClassVar[Mapping[str, str]] = {
        **{name: name for name in (*_FUNCTIONS, "tanh", "erf", "pow", "fabs", "isnan")},
    }
    helpers: ClassVar[Mapping[str, str]] = OPENCL_HELPERS
    remarks: ClassVar[Sequence[str]] = (
        "A work-item an element. Build without -cl-fast-relaxed-math and -cl-finite-math-only:",
        "masks are made of infinities.",
    )

    def thread(self, dtype: str, block: int) -> str:
        return f"({self.type(dtype)})get_global_id(0)"

    def head(self, name: str, block: int, parameters: Sequence[Parameter]) -> list[str]:
        items = [
            f"__global {'' if p.written else 'const '}{self.types[self.memory(p.dtype)]}* "
            f"restrict {p.name}"
            if p.array
            else f"const {self.type(p.dtype)} {p.name}"
            for p in parameters
        ]
        return _wrapped(f"__kernel void {name}(", items, ") {")

    def bits(self, dtype: str, value: str) -> str:
        return f"as_{self.type(dtype)}({value})"

    def load(self, dtype: str, element: str) -> str:
        return f"{element} != 0" if dtype == "bool" else element


class Metal(_CLike):
    """The Metal shading language 2.2, the first with 64-bit integers."""

    name, title, file = "metal", "Metal", "kernels.metal"
    types: ClassVar[Mapping[str, str]] = OpenCL.types
    functions: ClassVar[Mapping[str, str]] = {
        **{name: f"precise::{name}" for name in (*_FUNCTIONS[:5], "tanh", "pow")},
        "floor": "floor",
        "fabs": "fabs",
        "isnan": "isnan",
        "erf": "error_function",
    }
    helpers: ClassVar[Mapping[str, str]] = METAL_HELPERS
    remarks: ClassVar[Sequence[str]] = (
        "A thread an element. Build with MTLCompileOptions.fastMathEnabled = false: masks are made",
        "of infinities. Sizes are 64-bit integers, each in a buffer of its own (setBytes).",
    )
    preamble: ClassVar[Sequence[str]] = ("#include <metal_stdlib>\nusing namespace metal;",)
    most_arrays = 31

    def thread(self, dtype: str, block: int) -> str:
        return f"({self.type(dtype)})thread_index"

    def head(self, name: str, block: int, parameters: Sequence[Parameter]) -> list[str]:
        items = [
            (
                f"{'device' if p.written else 'device const'} {self.type(p.dtype)}* {p.name}"
                if p.array
                else f"constant {self.type(p.dtype)}& {p.name}"
            )
            + f" [[buffer({index})]]"
            for index, p in enumerate(parameters)
        ]
        items.append("uint thread_index [[thread_position_in_grid]]")
        return _wrapped(f"kernel void {name}(", items, ") {")

    def bits(self, dtype: str, value: str) -> str:
        return f"as_type<{self.type(dtype)}>({value})"


class WGSL(Language):
    """The WebGPU shading language: 32-bit integers, no infinities, no bool in memory.

    int64 becomes i32: see `narrow`, which refuses what might not fit.
    """

    name, title, file = "webgpu", "WGSL", "kernels.wgsl"
    types: ClassVar[Mapping[str, str]] = {
        "float32": "f32",
        "int64": "i32",
        "int32": "i32",
        "bool": "bool",
    }
    stored: ClassVar[Mapping[str, str]] = {"int64": "int32", "bool": "uint32"}
    functions: ClassVar[Mapping[str, str]] = {
        **{name: name for name in (*_FUNCTIONS[:3], "floor")},
        "fabs": "abs",
        "sin": "sine",
        "cos": "cosine",
        "tanh": "hyperbolic_tangent",
        "erf": "error_function",
        "pow": "power",
        "isnan": "is_nan",
    }
    helpers: ClassVar[Mapping[str, str]] = WGSL_HELPERS
    remarks: ClassVar[Sequence[str]] = (
        "An invocation an element. Integers are of 32 bits, int64 ones too; a bool is a u32. WGSL",
        "has no infinities: -3.4028235e38 stands for the one that masks are made of. The sizes of",
        "a kernel are the members of its last binding, a uniform buffer, an i32 each.",
    )
    most_arrays = 8  # maxStorageBuffersPerShaderStage, where a device says nothing else
    finite = True
    ternary = False
    narrow = True
    _MOST_GROUPS = 65535  # of a dimension

    def grid(self, blocks: str) -> tuple[str, str, str]:
        most = self._MOST_GROUPS
        if blocks.isdigit():
            count = int(blocks)
            return str(min(count, most)), str(-(-count // most)), "1"
        return f"min({blocks}, {most})", f"({blocks} + {most - 1}) // {most}", "1"

    def integer(self, value: int, dtype: str, beside: bool) -> str:
        if dtype == "bool":
            return "true" if value else "false"
        if value == -(2**63):
            value = -(2**31)  # where a search for the largest starts
        if value not in INT32:
            raise Unwritable(f"{value} has more than 32 bits, and WGSL has no wider integers")
        return f"i32({value})" if value == -(2**31) else str(value)

    def real(self, value: float) -> str:
        if np.isnan(value):
            raise Unwritable("WGSL has no NaN")
        largest = float(np.finfo(np.float32).max)
        return super().real(max(min(value, largest), -largest))

    def array_name(self, kernel: str, name: str) -> str:
        return f"{_prefix(kernel)}_{name}"  # arrays of all kernels stand in one scope

    def thread(self, dtype: str, block: int) -> str:
        return f"{self.type(dtype)}(thread.y * groups.x * {block}u + thread.x)"

    def head(self, name: str, block: int, parameters: Sequence[Parameter]) -> list[str]:
        arrays = [p for p in parameters if p.array]
        sizes = [p for p in parameters if not p.array]
        lines: list[str] = []
        for index, p in enumerate(arrays):
            access = "read_write" if p.written else "read"
            kind = _WORDS[self.memory(p.dtype)]
            lines.append(
                f"@group(0) @binding({index}) var<storage, {access}> {p.name}: array<{kind}>;"
            )
        held = f"{_prefix(name)}_sizes"
        if sizes:
            members = ", ".join(f"{p.name}: {self.type(p.dtype)}" for p in sizes)
            lines.append(f"struct {held}_t {{ {members} }}")
            lines.append(f"@group(0) @binding({len(arrays)}) var<uniform> {held}: {held}_t;")
        lines += [
            f"@compute @workgroup_size({block})",
            f"fn {name}(",
            "    @builtin(global_invocation_id) thread: vec3<u32>,",
            "    @builtin(num_workgroups) groups: vec3<u32>) {",
        ]
        return lines + [f"  let {p.name} = {held}.{p.name};" for p in sizes]

    def declare(self, name: str, dtype: str, value: str | None, constant: bool) -> str:
        if value is None:
            return f"var {name}: {self.type(dtype)};"
        return f"{'let' if constant else 'var'} {name}: {self.type(dtype)} = {value};"

    def array(self, name: str, dtype: str, size: int) -> str:
        return f"var {name}: array<{self.type(dtype)}, {size}>;"

    def loop(self, name: str, dtype: str, start: str, end: str) -> str:
        return f"for (var {name}: {self.type(dtype)} = {start}; {name} < {end}; {name}++) {{"

    def cast(self, dtype: str, value: str) -> str:
        return f"{self.type(dtype)}({value})"

    def bits(self, dtype: str, value: str) -> str:
        return f"bitcast<{self.type(dtype)}>({value})"

    def load(self, dtype: str, element: str) -> str:
        return f"{element} != 0u" if dtype == "bool" else element

    def store(self, dtype: str, value: str) -> str:
        return f"u32({value})" if dtype == "bool" else value


_WORDS = {"float32": "f32", "int32": "i32", "uint32": "u32"}


def _prefix(kernel: str) -> str:
    """What the arrays of `f_kernel` and of `f_kernel_1`, a further part of f, begin with."""
    function, _, part = kernel.rpartition("_kernel")
    return f"{function}_part{part}" if part else function


LANGUAGES: Mapping[str, Language] = {x.name: x for x in (OpenCL(), Metal(), WGSL())}


def _wrapped(before: str, items: Sequence[str], after: str) -> list[str]:
    """Parameters on one line where they fit, else a line each."""
    line = before + ", ".join(items) + after
    if len(line) <= 100:
        return [line]
    inner = [f"    {item}," for item in items]
    return [before, *inner[:-1], inner[-1].removesuffix(",") + after]
