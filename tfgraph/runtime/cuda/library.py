"""TVM's CUDA runtime, loaded without importing tvm, and NVIDIA's runtime library that it needs.

`libcudart.so.13` is looked for by the dynamic linker, in the package nvidia-cuda-runtime, and where
CUDA_HOME or CUDA_PATH lead. May import: driver, ffi, library, the standard library, errors.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path

from tfgraph.errors import MissingTool
from tfgraph.runtime.cuda.driver import Device, Driver, find_driver
from tfgraph.runtime.library import library_path, load_tvm_runtime

CUDART = "libcudart.so.13"
NAME = "libtvm_runtime_cuda.so"
NEEDED = 13, 0
"""The version of CUDA that they are of: its driver runs it, and so does every later one."""


def toolkit_folders() -> list[Path]:
    """Where CUDA 13 may be installed: what CUDA_HOME and CUDA_PATH name, NVIDIA's packages."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    package = importlib.util.find_spec("nvidia")
    places = [] if package is None else package.submodule_search_locations or ()
    return [*named, *(Path(place, "cu13") for place in places)]


@cache
def load_cudart() -> str:
    """Load NVIDIA's runtime library; where it was found. Raises MissingTool."""
    candidates = [CUDART]
    for folder in toolkit_folders():
        candidates += [str(folder / inner / CUDART) for inner in ("lib", "lib64")]
    for candidate in candidates:
        try:
            ctypes.CDLL(candidate, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return candidate
    raise MissingTool(
        f"NVIDIA's CUDA runtime, {CUDART}, is not here",
        hint="pip install 'nvidia-cuda-runtime==13.0.*', or 'tfgraph[cuda]'",
    )


@cache
def load_cuda_runtime() -> None:
    """Load TVM's CUDA runtime, for all of the process. Raises MissingTool where something that it
    needs is not here; the driver is asked before."""
    # Brings a library that those need.
    from tfgraph.runtime import ffi  # noqa: F401 # pyright: ignore[reportUnusedImport]

    load_tvm_runtime()
    load_cudart()
    try:
        ctypes.CDLL(library_path(NAME), ctypes.RTLD_GLOBAL)
    except OSError as cause:
        raise MissingTool(
            f"TVM's CUDA runtime, {NAME}, cannot be loaded: {cause}",
            hint="pip install apache-tvm: it brings it",
        ) from cause


def find_device() -> tuple[Driver, Device]:
    """The driver, and the device to run on, with all that it takes. Raises MissingTool."""
    driver = find_driver()
    device = driver.first
    if driver.version < NEEDED:
        has, needs = (".".join(map(str, version)) for version in (driver.version, NEEDED))
        raise MissingTool(
            f"the NVIDIA driver is too old: it runs CUDA {has}, and TVM's runtime needs {needs}",
            hint="update it to 580 or newer",
        )
    load_cuda_runtime()
    return driver, device
