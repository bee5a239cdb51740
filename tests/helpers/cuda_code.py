"""Kernels as machine code for GPUs: how they are launched, what ptxas says of them, and which
instructions they have.

    for code in machine_code({"softmax": softmax(("rows",), 300)}, parse_arch("sm_80")):
        assert not code.usage.spills
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.backends.tvm.cuda.emit import emit_kernels
from tfgraph.backends.tvm.cuda.toolkit import find_toolkit
from tfgraph.backends.tvm.cuda.usage import Usage, read_usage
from tfgraph.runtime.cuda.library import toolkit_folders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.backends.tvm.cuda.arch import CudaArch
    from tfgraph.backends.tvm.cuda.launch import Kernel

_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\w+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")


@dataclass(frozen=True)
class Code:
    """A kernel, what it uses, and the instructions that it has, without their modifiers."""

    kernel: Kernel
    usage: Usage
    instructions: frozenset[str]

    @property
    def on_tensor_cores(self) -> bool:
        """Whether it multiplies there, by what `mma` becomes on each architecture."""
        return "HMMA" in self.instructions

    @property
    def copies_ahead(self) -> bool:
        """Whether it asks for what it needs later, by what `cp.async` becomes."""
        return "LDGSTS" in self.instructions


def machine_code(functions: Mapping[str, Any], arch: CudaArch) -> list[Code]:
    """All kernels of the PrimFuncs. Skips the test where there is no compiler or no nvdisasm."""
    toolkit, disassembler = find_toolkit(), find_nvdisasm()
    if toolkit is None:
        pytest.skip("no nvcc or NVRTC to compile CUDA C")
    if disassembler is None:
        pytest.skip("no nvdisasm to read machine code: pip install nvidia-cuda-nvdisasm")
    source, kernels = emit_kernels(dict(functions), arch)
    data, log = toolkit.compile(source, arch.name, "cubin")
    assert "warning" not in log, log
    usage, instructions = read_usage(log), read_instructions(disassembler, data)
    names = {kernel.name for kernel in kernels}
    assert usage.keys() == instructions.keys() == names
    return [Code(k, usage[k.name], instructions[k.name]) for k in kernels]


def find_nvdisasm() -> str | None:
    """NVIDIA's disassembler: of PATH, a toolkit, or the package nvidia-cuda-nvdisasm."""
    places = [str(folder / "bin") for folder in toolkit_folders()]
    return shutil.which("nvdisasm") or shutil.which("nvdisasm", path=os.pathsep.join(places))


def read_instructions(disassembler: str, cubin: bytes) -> dict[str, frozenset[str]]:
    """The names of the instructions of each kernel in a cubin, such as HMMA."""
    with TemporaryDirectory(prefix="tfgraph-") as folder:
        file = Path(folder, "kernels.cubin")
        file.write_bytes(cubin)
        command = [disassembler, "-c", str(file)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[str]] = defaultdict(set)
    name = ""
    for line in text.splitlines():
        if section := _SECTION.match(line):
            name = section[1]
        elif instruction := _INSTRUCTION.match(line):
            found[name].add(instruction[1])
    return {kernel: frozenset(names) for kernel, names in found.items()}
