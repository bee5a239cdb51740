"""Builds CUDA C as a host library: g++ and the headers of this folder stand in for nvcc."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from cuda_emulator.source import for_host, kernel_names

_FOLDER = Path(__file__).parent
_COMMON = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique")
_COMMON += ("-U_FORTIFY_SOURCE", "-fno-strict-aliasing", "-fno-exceptions")
# Kernels: -Og, so that accesses stand as they are written, with lines of code alone (-g1); no fused
# multiply-add of its own accord.
_KERNEL = (*_COMMON, "-Og", "-g1", "-w", "-ffp-contract=off", "-fno-math-errno")
_CHECKED = ("-fsanitize=thread",)


def require_host_compiler() -> str:
    """The path of g++; skips the test where there is none."""
    found = shutil.which("g++")
    if found is None:
        import pytest  # here alone: every fake nvcc is a process that imports this module

        pytest.skip("no g++ to run CUDA C on the CPU")
    return found


def host_library(source: str, folder: Path, *, checked: bool = True) -> Path:
    """A library in which each kernel NAME of the source, a .cu file, is launched by

        extern "C" int cuda_emulator_launch_NAME(
            const unsigned grid[3], const unsigned block[3], unsigned dynamic_shared_bytes,
            void** arguments);

    `arguments` are pointers to each argument, as cuLaunchKernel takes them. It runs the whole grid
    before it returns 0, or 1 after an error, which `const char* cuda_emulator_error()` tells. Not
    for two threads at once. `checked` finds races, accesses out of bounds and the like; without it
    there are numbers only, several times sooner. What memory the kernels may touch is told by

        extern "C" void cuda_emulator_add_memory(
            void* start, size_t bytes, size_t element, const char* name);
        extern "C" void cuda_emulator_remove_memory(void* start);

    where `element` is the bytes of an element, for messages, or 0; until there is any, accesses
    outside of shared memory are not checked. The same source is compiled once a folder.
    """
    digest = hashlib.sha256(f"{_headers()} {checked} {source}".encode()).hexdigest()[:16]
    library = folder / f"{digest}.so"
    if library.exists():
        return library
    original = folder / f"{digest}.cu"  # what messages show
    original.write_text(source, encoding="utf-8")
    text = f'#line 1 "{original.resolve()}"\n{for_host(source)}\n'
    text += f"const bool cuda_emulator::checked = {str(checked).lower()};\n"
    text += "".join(map(_entry, kernel_names(source)))
    host = folder / f"{digest}.cpp"
    host.write_text(text, encoding="utf-8")
    runtime = _runtime()
    made = folder / f"{digest}.o"
    header = ("-include", str(runtime / _header(checked)))
    _run(*_kernel(checked), *header, "-c", str(host), "-o", str(made))
    objects = map(str, sorted(runtime.glob("*.o")))
    _run("-shared", "-Wl,-Bsymbolic", str(made), *objects, "-ldl", "-o", str(library))
    return library


def _kernel(checked: bool) -> tuple[str, ...]:
    return (*_KERNEL, *(_CHECKED if checked else ()), f"-I{_FOLDER / 'include'}")


def _header(checked: bool) -> str:
    """What stands before a kernel's source: `device.h`, compiled beforehand with its options."""
    return "checked.h" if checked else "unchecked.h"


def _entry(kernel: str) -> str:
    """The function that launches the kernel."""
    return (
        '\nextern "C" __attribute__((visibility("default")))\n'
        f"int cuda_emulator_launch_{kernel}(const unsigned* grid, const unsigned* block,\n"
        "    unsigned dynamic_shared, void** arguments) {\n"
        f'  return cuda_emulator::launch({kernel}, "{kernel}", grid, block, dynamic_shared,\n'
        "      arguments);\n}\n"
    )


@cache
def _headers() -> str:
    """A digest of the emulator itself."""
    files = [*_FOLDER.glob("include/*"), *_FOLDER.glob("runtime/*"), *_FOLDER.glob("*.py")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


@cache
def _runtime() -> Path:
    """The folder with the objects of the runtime and the headers of kernels, compiled once a
    version: every fake nvcc is a new process."""
    folder = _FOLDER / "__pycache__" / f"runtime-{_headers()[:16]}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        for source in _FOLDER.glob("runtime/*.cpp"):
            _run(*_COMMON, "-O2", "-c", str(source), "-o", str(made / f"{source.stem}.o"))
        for checked in (True, False):
            header = made / _header(checked)
            header.write_text('#include "device.h"\n', encoding="utf-8")
            _run(*_kernel(checked), "-x", "c++-header", str(header), "-o", f"{header}.gch")
        try:
            made.rename(folder)
        except OSError:  # another process was sooner
            shutil.rmtree(made)
    return folder


def _run(*arguments: str) -> None:
    compiler = require_host_compiler()
    built = subprocess.run([compiler, *arguments], capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise RuntimeError(f"g++ fails:\n{built.stderr[-4000:]}")
