"""How each kernel of an emitted module is launched, read from its lowered form, and its checks.

May import: tvm, errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.runtime import DataType

from tfgraph.backends.tvm.cuda.arch import STATIC_SHARED_BYTES, CudaArch
from tfgraph.backends.tvm.cuda.kernel import CHOICES
from tfgraph.errors import TfgraphError


@dataclass(frozen=True, slots=True)
class Kernel:
    """How one `__global__` function is launched.

    `grid` holds the extents along x, y and z as Python expressions over the names of the scalar
    parameters; `block` holds numbers. `parameters` are (name, type) in order, where a type is such
    as "float32*" or "int64". Shared memory is in bytes.
    """

    name: str
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    static_shared_bytes: int
    dynamic_shared_bytes: int
    parameters: tuple[tuple[str, str], ...]
    when: str = ""
    """If its function chooses among kernels: those of the first condition that holds are launched,
    else those of ""."""

    @property
    def function(self) -> str:
        """The name of the PrimFunc that launches it."""
        return re.sub(r"_kernel(_\d+)?$", "", self.name)

    @property
    def number(self) -> int:
        """Which of the kernels of its function it is, from 0 on."""
        found = re.search(r"_kernel_(\d+)$", self.name)
        return int(found[1]) if found else 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    def to_json(self) -> dict[str, object]:
        """The kernel's entry in the launch metadata of an artifact."""
        return {
            "name": self.name,
            **({"when": self.when} if self.when else {}),
            "grid": list(self.grid),
            "block": list(self.block),
            "static_shared_bytes": self.static_shared_bytes,
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "parameters": [{"name": name, "type": kind} for name, kind in self.parameters],
        }


def describe(function: Any, choices: Mapping[str, Sequence[str]]) -> Kernel:
    """The launch metadata of a device function, as it stands after the split from its host, which
    may have said when it launches it."""
    extents: dict[str, Any] = {}
    shared = {"shared": 0, "shared.dyn": 0}

    def visit_attribute(node: Any) -> None:
        if node.attr_key == "thread_extent":
            extents[str(node.node.thread_tag)] = node.value

    def visit_allocation(node: Any) -> None:
        buffer = node.buffer
        if buffer.scope() in shared:
            width = DataType(str(buffer.dtype)).itemsize
            shared[buffer.scope()] += width * math.prod(int(size) for size in buffer.shape)

    tvm_ffi.structural_walk(
        function.body,
        [(tirx.AttrStmt, visit_attribute), (tirx.AllocBuffer, visit_allocation)],
        order="post",
    )
    grid = tuple(_text(extents.get(f"blockIdx.{axis}", 1)) for axis in "xyz")
    block = tuple(int(extents.get(f"threadIdx.{axis}", 1)) for axis in "xyz")
    kernel = Kernel(
        name=str(function.attrs["global_symbol"]),
        grid=(grid[0], grid[1], grid[2]),
        block=(block[0], block[1], block[2]),
        static_shared_bytes=shared["shared"],
        dynamic_shared_bytes=shared["shared.dyn"],
        parameters=tuple((str(p.name), _type(p.ty)) for p in function.params),
    )
    said = choices.get(kernel.function)
    return replace(kernel, when=said[kernel.number]) if said else kernel


def choices(module: Any) -> dict[str, list[str]]:
    """When the hosts of functions launch which of their kernels, by the name of the function."""
    return {
        str(function.attrs["global_symbol"]): [_text(text) for text in function.attrs[CHOICES]]
        for function in module.functions.values()
        if CHOICES in (function.attrs or {})
    }


def check(kernel: Kernel, arch: CudaArch) -> None:
    """Raise TfgraphError if the kernel has one thread a block, or exceeds a limit of `arch`."""
    if kernel.threads <= 1:
        raise TfgraphError(
            f"kernel '{kernel.name}' would run one thread a block on {arch.name}",
            hint="bind its loops to threads; this is a defect of the kernel, not of the model",
        )
    limits = (
        ("threads a block", kernel.threads, arch.threads_per_block),
        ("bytes of static shared memory", kernel.static_shared_bytes, STATIC_SHARED_BYTES),
        (
            "bytes of shared memory",
            kernel.static_shared_bytes + kernel.dynamic_shared_bytes,
            arch.shared_bytes_per_block,
        ),
    )
    for what, needed, limit in limits:
        if needed > limit:
            raise TfgraphError(
                f"kernel '{kernel.name}' needs {needed} {what}; {arch.name} allows {limit}"
            )


def _text(extent: Any) -> str:
    """An integer expression as Python text: T.int64(63) is 63, T.min is min, without casts."""
    text = re.sub(r"T\.int(?:32|64)\((-?\d+)\)", r"\1", str(extent))
    text = re.sub(r"T\.Cast\(\"int(?:32|64)\", ", "(", text)
    text = re.sub(r"\bT\.(min|max)\b", r"\1", text)
    while (at := text.find("T.Div(")) >= 0:  # truncdiv, of sizes: not negative
        comma, end = _arguments(text, at + len("T.Div("))
        quotient = f"(({text[at + 6 : comma]}) // ({text[comma + 2 : end]}))"
        text = text[:at] + quotient + text[end + 1 :]
    return text


def _arguments(text: str, start: int) -> tuple[int, int]:
    """Where the comma between two arguments stands, the first of which starts there, and where the
    parenthesis behind them."""
    depth, comma = 0, start
    for at in range(start, len(text)):
        if text[at] == "," and depth == 0:
            comma = at
        if text[at] == ")" and depth == 0:
            return comma, at
        depth += {"(": 1, ")": -1}.get(text[at], 0)
    raise ValueError(f"no end of the arguments: {text}")


def _type(kind: Any) -> str:
    pointee = getattr(kind, "element_type", None)
    return f"{pointee}*" if pointee is not None else str(kind)
