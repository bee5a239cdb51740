"""The NVIDIA driver and its devices, asked of libcuda.so.1. May import: the standard library,
errors.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tfgraph.errors import MissingTool

LIBRARY = "libcuda.so.1"
_NO_DEVICE = 100
_CAPABILITY = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h."""


@dataclass(frozen=True)
class Device:
    """A GPU: its name, compute capability, such as (8, 6), and bytes of memory."""

    number: int
    name: str
    capability: tuple[int, int]
    memory: int

    @property
    def arch(self) -> str:
        """Its architecture, such as sm_86."""
        return "sm_{}{}".format(*self.capability)

    def __str__(self) -> str:
        return f"GPU {self.number} ({self.name})"


@dataclass(frozen=True)
class Driver:
    """The newest version of CUDA that the driver runs, such as (13, 0), and the devices it has."""

    version: tuple[int, int]
    devices: tuple[Device, ...]

    @property
    def first(self) -> Device:
        """The device that artifacts run on. Raises MissingTool where there is none."""
        if not self.devices:
            raise MissingTool(
                "no CUDA device: the NVIDIA driver is here, and finds no GPU",
                hint="`nvidia-smi` lists them; CUDA_VISIBLE_DEVICES may hide one, and a container "
                "needs them given, such as by docker run --gpus all",
            )
        return self.devices[0]


def find_driver() -> Driver:
    """The driver. Raises MissingTool where there is none, or it does not start."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as cause:
        raise MissingTool(
            f"no NVIDIA driver: {LIBRARY} cannot be loaded",
            hint="install NVIDIA's driver, 580 or newer, on a machine with one of its GPUs",
        ) from cause
    return _Asked(library).driver()


class _Asked:
    def __init__(self, library: Any) -> None:
        self._library = library

    def driver(self) -> Driver:
        try:
            code = self._library.cuInit(0)
            if code not in (0, _NO_DEVICE):
                raise _does_not_start(f"cuInit says {code}")
            number = self._int("cuDriverGetVersion")
            count = self._int("cuDeviceGetCount") if code == 0 else 0
            devices = tuple(map(self._device, range(count)))
        except AttributeError as cause:
            raise _does_not_start(f"{LIBRARY} has no {cause.name}") from cause
        return Driver((number // 1000, number % 1000 // 10), devices)

    def _device(self, number: int) -> Device:
        device = self._int("cuDeviceGet", number)
        name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        major, minor = (self._int("cuDeviceGetAttribute", what, device) for what in _CAPABILITY)
        return Device(number, name.value.decode("utf-8", "replace"), (major, minor), memory.value)

    def _int(self, function: str, *arguments: int) -> int:
        """What a function writes into its first argument."""
        result = ctypes.c_int()
        self._call(function, ctypes.byref(result), *arguments)
        return result.value

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            raise _does_not_start(f"{function} says {code}")


def _does_not_start(reason: str) -> MissingTool:
    return MissingTool(
        f"the NVIDIA driver does not start: {reason}",
        hint="see what `nvidia-smi` says; where the driver was just updated, restart the machine",
    )
