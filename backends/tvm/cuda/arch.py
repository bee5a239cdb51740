"""The CUDA architectures that tfgraph emits code for, and the choice of one.

Limits are those of the "Technical Specifications per Compute Capability" table in NVIDIA's CUDA
programming guide, or of `cuda_occupancy.h` for those that it leaves out; the names are those of
CUDA 13. May import: the standard library, runtime and errors; no TVM, no CUDA toolkit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.runtime.cuda.driver import find_driver

DEFAULT_ARCH = "sm_80"
WARP = 32
STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel may declare statically, on every architecture."""

GRID_X_LIMIT = 2**31 - 1
GRID_YZ_LIMIT = 65535


@dataclass(frozen=True, slots=True)
class CudaArch:
    """One architecture: its nvcc name and the limits that a kernel has to respect."""

    name: str
    generation: str
    shared_bytes_per_block: int
    """The most shared memory of one block, in bytes (dynamic, by opt-in; static is 48 KiB)."""
    threads_per_multiprocessor: int
    threads_per_block: int = 1024

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, such as (8, 6) for sm_86."""
        digits = self.name.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])


def _arch(name: str, generation: str, shared_kib: int, threads: int) -> CudaArch:
    return CudaArch(name, generation, shared_kib * 1024, threads)


ARCHITECTURES: dict[str, CudaArch] = {
    arch.name: arch
    for arch in (
        _arch("sm_75", "Turing", 64, 1024),
        _arch("sm_80", "Ampere", 163, 2048),
        _arch("sm_86", "Ampere", 99, 1536),
        _arch("sm_87", "Ampere", 163, 1536),
        _arch("sm_88", "Ampere", 99, 1536),
        _arch("sm_89", "Ada Lovelace", 99, 1536),
        _arch("sm_90", "Hopper", 227, 2048),
        _arch("sm_100", "Blackwell", 227, 2048),
        _arch("sm_103", "Blackwell", 227, 2048),
        _arch("sm_110", "Blackwell", 227, 1536),
        _arch("sm_120", "Blackwell", 99, 1536),
        _arch("sm_121", "Blackwell", 99, 1536),
    )
}


_RENAMED = {"sm_101": "sm_110"}
"""What CUDA 12 called an architecture -> what CUDA 13 calls it."""


def parse_arch(text: str) -> CudaArch:
    """The architecture of that name; raises TfgraphError that lists them for any other text."""
    if text in ARCHITECTURES:
        return ARCHITECTURES[text]
    raise TfgraphError(
        f"unknown CUDA architecture '{text}'; known are {', '.join(ARCHITECTURES)}",
        hint=f"did you mean '{_nearest(text)}'?",
    )


def parse_archs(text: str) -> tuple[CudaArch, ...]:
    """The architectures of a text such as "sm_80,sm_90", the oldest first; raises as above."""
    found = {parse_arch(name.strip()) for name in text.split(",")}
    return tuple(sorted(found, key=lambda arch: arch.capability))


def arch_names(archs: Sequence[CudaArch]) -> str:
    """The reverse of `parse_archs`."""
    return ",".join(arch.name for arch in archs)


def default_archs(
    requested: str | None, in_model_file: str | None
) -> tuple[tuple[CudaArch, ...], str]:
    """The architectures to compile for, and where they came from, as text to print.

    The order is `--arch`, the model file, the GPU present, sm_80. Looking for a GPU never fails;
    an unknown name in the first two raises TfgraphError.
    """
    if requested is not None:
        return parse_archs(requested), "--arch"
    if in_model_file is not None:
        return parse_archs(in_model_file), "model file"
    fallback = ARCHITECTURES[DEFAULT_ARCH]
    found = detect_gpu()
    if found is None:
        return (fallback,), "default: no GPU found"
    device, capability = found
    arch = _for_capability(capability)
    if arch is None:
        return (fallback,), f"default: {device} is older than every known architecture"
    return (arch,), device


def detect_gpu() -> tuple[str, tuple[int, int]] | None:
    """("GPU 0 (its name)", its compute capability), asked of the driver; None without one."""
    try:
        device = find_driver().first
    except MissingTool:
        return None
    return str(device), device.capability


def check_float(dtype: str, arch: CudaArch) -> None:
    """Raise TfgraphError for a float type, by its full name, that the architecture has not."""
    if dtype == "bfloat16" and arch.capability < (8, 0):
        raise TfgraphError(
            f"bfloat16 needs sm_80 or newer, not {arch.name}", hint="float16 runs on all"
        )


def check_tf32(dtypes: Collection[str], arch: CudaArch) -> None:
    """Raise TfgraphError where tf32 is asked for, for a model that has these types, and an
    architecture, that it is not for."""
    narrow = sorted(set(dtypes) & {"float16", "bfloat16"})
    if narrow:
        raise TfgraphError(f"tf32 is for models in float32, and this is in {narrow[0]}")
    if arch.capability < (8, 0):
        raise TfgraphError(f"tf32 needs sm_80 or newer, not {arch.name}")


def _for_capability(capability: tuple[int, int]) -> CudaArch | None:
    """The newest known architecture whose code a device of this capability runs."""
    older = [arch for arch in ARCHITECTURES.values() if arch.capability <= capability]
    return max(older, key=lambda arch: arch.capability, default=None)


def _nearest(text: str) -> str:
    """The known name that is nearest by number, else by spelling, else the default."""
    if text in _RENAMED:
        return _RENAMED[text]
    number = re.search(r"\d+", text)
    if number is not None:
        wanted = int(number[0])
        return min(ARCHITECTURES, key=lambda name: abs(int(name.removeprefix("sm_")) - wanted))
    close = get_close_matches(text, ARCHITECTURES, n=1, cutoff=0.6)
    return close[0] if close else DEFAULT_ARCH
