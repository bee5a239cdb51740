"""The fake driver's two libraries, and an nvcc whose "cubins" name emulated kernels.

    folder = fake_cuda(tmp_path)                # libcuda.so.1, libcudart.so.13, bin/nvcc
    python(code, **environment(folder))         # in a child: the dynamic linker looks there

TVM's own CUDA runtime then runs artifacts on device 0, which `driver.cpp` describes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
_NVCC = """#!/bin/sh
if [ "$*" = --version ]; then
    echo "Cuda compilation tools, release 13.0, V13.0.0 (fake)"
    exit
fi
export FAKE_NVCC_LIBRARIES="{folder}" PYTHONPATH="{tests}"
exec "{python}" -S "{here}/nvcc.py" "$@"
"""
"""Started often, so that it asks Python only where there is something to compile."""


def fake_cuda(folder: Path) -> Path:
    """Builds them into the folder, once."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "libcudart.so.13").exists():
        return folder
    _library(folder, "driver.cpp", "libcuda.so.1", "-ldl")
    versions = f"-Wl,--version-script={HERE / 'runtime.map'}"
    _library(folder, "runtime.cpp", "libcudart.so.13", versions, f"-L{folder}", "-l:libcuda.so.1")
    tool = folder / "bin" / "nvcc"
    tool.parent.mkdir()
    tool.write_text(_NVCC.format(folder=folder, tests=TESTS, python=sys.executable, here=HERE))
    tool.chmod(0o755)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What a child process needs to find them first. `more`: FAKE_CUDA_CAPABILITY (80), _DEVICES
    (1), _NAME (Fake GPU), _DRIVER (13000), _MEGABYTES (2048), _INIT (0), and _LOG, a file that
    tells what was done.
    """
    return {
        "LD_LIBRARY_PATH": str(folder),
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        **more,
    }


def _library(folder: Path, source: str, name: str, *more: str) -> None:
    compiler = shutil.which("g++")
    assert compiler is not None  # see `require_host_compiler`
    command = [compiler, "-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    command += [str(HERE / source), "-o", str(folder / name), f"-Wl,-soname,{name}", *more]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
