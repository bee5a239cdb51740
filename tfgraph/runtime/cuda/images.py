"""The code of an artifact for a device: a cubin, for its architecture and the later ones of its
generation, or PTX, which the driver compiles for every later one.

May import: driver, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfgraph.errors import MissingTool
from tfgraph.runtime.cuda.driver import Device, Driver


def choose_image(
    images: Sequence[Mapping[str, Any]], driver: Driver, device: Device, path: Path
) -> str:
    """The file with the code for a device, of an artifact's `images`. Raises MissingTool where
    there is none that it runs."""
    if not images:
        raise MissingTool(
            f"{path}: it holds CUDA source alone, no code for a GPU: where it was compiled there "
            "was neither nvcc nor NVRTC",
            hint="pip install 'tfgraph[cuda]' and compile it again",
        )
    mine = device.capability
    cubins = [i for i in images if i["kind"] == "cubin" and _capability(i)[0] == mine[0]]
    cubins = [image for image in cubins if _capability(image) <= mine]
    if cubins:
        return str(max(cubins, key=_capability)["file"])
    texts = [i for i in images if i["kind"] == "ptx" and _capability(i) <= mine]
    if not texts:
        known = ", ".join(dict.fromkeys(str(image["arch"]) for image in images))
        raise MissingTool(
            f"{path}: compiled for {known}, which {device} does not run: it is {device.arch}",
            hint=f"compile it with --arch {device.arch}",
        )
    best = max(texts, key=_capability)
    needed = tuple(int(part) for part in best["cuda"].split("."))
    if driver.version < needed:
        has = ".".join(map(str, driver.version))
        raise MissingTool(
            f"{path}: for {device}, {device.arch}, it holds PTX of CUDA {best['cuda']}, and the "
            f"NVIDIA driver compiles up to that of {has}",
            hint=f"update the driver, or compile it with --arch {device.arch}",
        )
    return str(best["file"])


def _capability(image: Mapping[str, Any]) -> tuple[int, int]:
    digits = str(image["arch"]).removeprefix("sm_")
    return int(digits[:-1]), int(digits[-1])
