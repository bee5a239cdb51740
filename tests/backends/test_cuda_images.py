"""Which code of an artifact a GPU gets, by its compute capability and the driver's version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfgraph.errors import MissingTool
from tfgraph.runtime.cuda.driver import Device, Driver
from tfgraph.runtime.cuda.images import choose_image


def image(name: str, cuda: str = "13.0") -> dict[str, Any]:
    arch, kind = name.split(".")
    return {"file": f"kernels/{name}", "arch": arch, "kind": kind, "cuda": cuda}


def chosen(capability: tuple[int, int], *names: str, driver: tuple[int, int] = (13, 0)) -> str:
    device = Device(0, "Some", capability, 1 << 30)
    images = [image(*name.split(" ")) for name in names]
    return choose_image(images, Driver(driver, (device,)), device, Path("m"))


ALL = ("sm_80.cubin", "sm_86.cubin", "sm_90.cubin", "sm_90.ptx")


@pytest.mark.parametrize(
    ("capability", "names", "file"),
    [
        ((8, 0), ALL, "sm_80.cubin"),
        ((8, 6), ALL, "sm_86.cubin"),
        ((8, 9), ALL, "sm_86.cubin"),
        ((9, 0), ALL, "sm_90.cubin"),
        ((10, 0), ALL, "sm_90.ptx"),
        ((12, 1), ALL, "sm_90.ptx"),
        ((12, 1), (*ALL, "sm_120.cubin", "sm_120.ptx"), "sm_120.cubin"),
        ((10, 3), ("sm_75.ptx", "sm_90.ptx", "sm_120.ptx"), "sm_90.ptx"),
        # A cubin is of one major version, and not of an older GPU.
        ((8, 0), ("sm_75.cubin", "sm_75.ptx", "sm_86.cubin"), "sm_75.ptx"),
    ],
)
def test_the_nearest_that_it_runs(
    capability: tuple[int, int], names: tuple[str, ...], file: str
) -> None:
    assert chosen(capability, *names) == f"kernels/{file}"


def test_there_is_none() -> None:
    with pytest.raises(MissingTool, match=r"compiled for sm_86, sm_90, which GPU 0 \(Some\) does"):
        chosen((8, 0), "sm_86.cubin", "sm_90.cubin", "sm_90.ptx")
    with pytest.raises(MissingTool, match="it holds CUDA source alone"):
        chosen((8, 0))


def test_ptx_asks_for_a_driver_as_new_as_its_compiler() -> None:
    assert chosen((9, 0), "sm_80.ptx 13.1", driver=(13, 1)) == "kernels/sm_80.ptx"
    assert chosen((9, 0), "sm_80.ptx 13.1", driver=(14, 0)) == "kernels/sm_80.ptx"
    with pytest.raises(MissingTool, match=r"holds PTX of CUDA 13\.2, .* up to that of 13\.1"):
        chosen((9, 0), "sm_80.ptx 13.2", driver=(13, 1))
    assert chosen((8, 0), "sm_80.cubin 13.2", driver=(13, 0)) == "kernels/sm_80.cubin"
