"""Which CPU the code is for: its LLVM name, vector width, registers and required features.

LLVM silently turns an unknown or `native` CPU into a generic one, 250 times slower: so the name is
always explicit here, and checked. May import: tvm, tfgraph.runtime, errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
from tvm.target import codegen

from tfgraph.errors import MissingTool, TfgraphError, nearest
from tfgraph.runtime.cores import cpu_flags

TRIPLE = "x86_64-unknown-linux-gnu"

# LLVM's names of the instruction sets that generated code may use -> the kernel's names of the
# same in /proc/cpuinfo. LLVM's other features are tuning hints, or need intrinsics we do not use.
_CPUINFO_NAMES = {
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "popcnt": "popcnt",
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "fma4": "fma4",
    "xop": "xop",
    "tbm": "tbm",
    "f16c": "f16c",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "lzcnt": "abm",
    "movbe": "movbe",
    "gfni": "gfni",
    "avxvnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512vp2intersect": "avx512_vp2intersect",
}


@dataclass(frozen=True)
class CpuMachine:
    """A CPU to generate code for.

    `mcpu` is LLVM's name, `lanes` the float32 numbers in a vector register, `registers` the number
    of vector registers, `features` what the code needs, in the spelling of /proc/cpuinfo, sorted.
    """

    mcpu: str
    lanes: int
    registers: int
    features: tuple[str, ...]

    @property
    def target(self) -> Any:
        """The `tvm.target.Target` of this CPU."""
        return tvm.target.Target({"kind": "llvm", "mcpu": self.mcpu, "mtriple": TRIPLE})


def cpu_machine(mcpu: str | None = None) -> CpuMachine:
    """The CPU that LLVM calls `mcpu`, or the one this process runs on.

    Raises TfgraphError for a name LLVM does not know, or a CPU without AVX2 and FMA.
    """
    return _describe(mcpu) if mcpu is not None else _host()


@cache
def _describe(mcpu: str) -> CpuMachine:
    known = _known_names()
    if mcpu not in known:
        raise TfgraphError(f"unknown CPU '{mcpu}'", hint=nearest(mcpu, known) or _examples())
    target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "mtriple": TRIPLE})
    llvm = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    features = tuple(sorted(ours for theirs, ours in _CPUINFO_NAMES.items() if theirs in llvm))
    if not {"avx2", "fma"} <= set(features):
        raise TfgraphError(
            f"CPU '{mcpu}' has no AVX2 and FMA, which the kernels need",
            hint="x86-64-v3 is the oldest supported level",
        )
    wide = "avx512f" in features and "avx512vl" in features
    return CpuMachine(mcpu, 16 if wide else 8, 32 if wide else 16, features)


@cache
def _host() -> CpuMachine:
    """LLVM's name for this CPU if the system grants all its features, else the x86-64 level."""
    granted = cpu_flags()
    known = _known_names()
    for mcpu in (str(codegen.llvm_get_system_cpu()), "x86-64-v4", "x86-64-v3"):
        if mcpu in known:
            try:
                machine = _describe(mcpu)
            except TfgraphError:  # the CPU's own name may stand for less than AVX2
                continue
            if granted.issuperset(machine.features):
                return machine
    raise MissingTool(
        "this CPU has no AVX2 and FMA, which compiled kernels need",
        hint="use --target numpy, or name the CPU to compile for with --mcpu",
    )


def _known_names() -> list[str]:
    target = tvm.target.Target({"kind": "llvm", "mtriple": TRIPLE})
    return [str(name) for name in codegen.llvm_get_cpu_archlist(target)]


def _examples() -> str:
    return "known are x86-64-v3, x86-64-v4, haswell, znver4 and LLVM's other names"
