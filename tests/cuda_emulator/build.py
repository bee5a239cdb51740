"""Builds CUDA C as a host library: g++ and the headers of this folder stand in for nvcc."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
HEADER = FOLDER.parent / "helpers" / "cuda_host.h"
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")


def require_host_compiler() -> str:
    """The path of g++; skips the test where there is none."""
    found = shutil.which("g++")
    if found is None:
        pytest.skip("no g++ to run CUDA C on the CPU")
    return found


def host_library(source: str, folder: Path) -> Path:
    """A library in which each kernel NAME of the source, a .cu file, is launched by

        extern "C" int cuda_emulator_launch_NAME(
            const unsigned grid[3], const unsigned block[3], unsigned dynamic_shared_bytes,
            void** arguments);

    `arguments` are pointers to each argument, as cuLaunchKernel takes them. It runs the whole grid
    before it returns 0, or 1 after an error, which `const char* cuda_emulator_error()` tells. Not
    for two threads at once. The same source is compiled once a folder.
    """
    names = dict.fromkeys(_KERNEL.findall(source))
    text = source + "".join(
        f'\nextern "C" int cuda_emulator_launch_{name}(const unsigned* grid, '
        "const unsigned* block, unsigned dynamic_shared, void** arguments) {\n"
        f"  return cuda_host::launch_with({name}, grid, block, dynamic_shared, arguments);\n}}\n"
        for name in names
    )
    digest = hashlib.sha256((HEADER.read_text("utf-8") + text).encode()).hexdigest()[:16]
    library = folder / f"{digest}.so"
    if not library.exists():
        (folder / "cuda.h").touch()  # the emitted preamble includes it; our header stands in
        file = folder / f"{digest}.cpp"
        file.write_text(text, encoding="utf-8")
        command = [require_host_compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", "-w"]
        command += ["-fno-math-errno", "-fno-gnu-unique", "-U_FORTIFY_SOURCE"]
        command += ["-include", str(HEADER), f"-I{folder}"]
        built = subprocess.run(
            [*command, str(file), "-o", str(library)], capture_output=True, text=True, check=False
        )
        assert built.returncode == 0, built.stderr[-4000:]
    return library
