"""What `tfgraph doctor` says of CUDA: what is here, what that makes possible, what is missing.

May import: backends.tvm.cuda, runtime, output, errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tfgraph.errors import MissingTool

Found: TypeAlias = tuple[str, bool, str, str | None]
"""What, whether it is there, what was found, and what to do where it is not."""

_EXTRA = "pip install 'tfgraph[cuda]'"


def findings() -> list[Found]:
    """Driver, devices, runtime libraries and compiler; then what `compile` makes and what runs."""
    return [*_driver(), *_libraries(), *_compiler(), _run()]


def _driver() -> list[Found]:
    from tfgraph.cli.output import size
    from tfgraph.runtime.cuda.driver import find_driver

    try:
        driver = find_driver()
    except MissingTool as missing:
        return [("NVIDIA driver", False, missing.message, missing.hint)]
    version = ".".join(map(str, driver.version))
    found: list[Found] = [("NVIDIA driver", True, f"for CUDA up to {version}", None)]
    for device in driver.devices:
        text = f"{device.name}, {device.arch}, {size(device.memory)}"
        found.append((f"GPU {device.number}", True, text, None))
    if not driver.devices:
        found.append(_told("GPU", lambda: str(driver.first)))
    return found


def _libraries() -> list[Found]:
    from tfgraph.runtime.cuda.library import load_cudart

    return [_told("CUDA runtime", load_cudart)]


def _compiler() -> list[Found]:
    from tfgraph.backends.tvm.cuda.toolkit import find_toolkit

    toolkit = find_toolkit()
    if toolkit is None:
        makes = "--target cuda writes kernels.cu alone, which no GPU runs yet"
        return [
            ("CUDA compiler", False, "neither nvcc nor NVRTC", f"{_EXTRA} brings NVRTC"),
            ("CUDA compile", False, makes, f"{_EXTRA}, and it makes code for GPUs, too"),
        ]
    makes = "--target cuda writes kernels.cu, cubins and PTX"
    return [("CUDA compiler", True, toolkit.name, None), ("CUDA compile", True, makes, None)]


def _run() -> Found:
    from tfgraph.runtime.cuda.library import find_device

    return _told("CUDA run", lambda: f"artifacts run on {find_device()[1]}")


def _told(name: str, find: Callable[[], str]) -> Found:
    try:
        return name, True, find(), None
    except MissingTool as missing:
        return name, False, missing.message, missing.hint
