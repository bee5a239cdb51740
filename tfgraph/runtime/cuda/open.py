"""The place of an artifact's arrays and code on this machine's GPU, with all that it takes.

May import: the files of this folder, format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.runtime import format as layout
from tfgraph.runtime.cuda.images import choose_image
from tfgraph.runtime.cuda.library import find_device
from tfgraph.runtime.cuda.place import CudaPlace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def cuda_place(path: Path, manifest: Mapping[str, Any]) -> CudaPlace:
    """The first GPU, and the artifact's code for it, hashed. Raises MissingTool where this machine
    cannot run the artifact, TfgraphError where that is damaged."""
    driver, device = find_device()
    files: Mapping[str, str] = manifest["files"]
    name = choose_image(manifest["cuda"].get("images", ()), driver, device, path)
    image = layout.read_checked(path, name, files[name])
    if name.endswith(".ptx"):
        image += b"\0"  # the driver reads a text
    return CudaPlace(device, image, files[layout.CUDA_SOURCE])
