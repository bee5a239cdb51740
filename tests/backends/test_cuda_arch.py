"""CUDA architectures by name, and the choice of one where none is named."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import pytest

from tfgraph.backends.tvm.cuda import arch
from tfgraph.backends.tvm.cuda.arch import (
    ARCHITECTURES,
    arch_names,
    default_archs,
    parse_arch,
    parse_archs,
)
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.runtime.cuda.driver import find_driver


def test_every_architecture_has_its_name_and_limits() -> None:
    assert list(ARCHITECTURES)[:3] == ["sm_75", "sm_80", "sm_86"]
    for name, known in ARCHITECTURES.items():
        assert parse_arch(name) is known
        assert known.shared_bytes_per_block >= 64 * 1024
        assert known.threads_per_block == 1024
    assert parse_arch("sm_120").capability == (12, 0)
    assert parse_arch("sm_90").shared_bytes_per_block == 227 * 1024


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("sm_1", "sm_75"),
        ("sm_70", "sm_75"),
        ("sm_81", "sm_80"),
        ("sm_9O", "sm_75"),
        ("sm90", "sm_90"),
        ("SM_90", "sm_90"),
        ("hopper", "sm_80"),
        ("", "sm_80"),
        ("compute_120", "sm_120"),
        ("sm_999", "sm_121"),
        ("sm_101", "sm_110"),  # its name until CUDA 13
    ],
)
def test_an_unknown_architecture_is_refused(given: str, near: str) -> None:
    with pytest.raises(TfgraphError) as caught:
        parse_arch(given)
    error = caught.value
    assert error.code == "bad-input"
    assert error.exit_code == 2
    assert f"'{given}'" in error.message
    assert all(name in error.message for name in ARCHITECTURES)
    assert error.hint is not None
    assert near in error.hint


def test_what_is_asked_for_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arch, "detect_gpu", lambda: ("GPU 0 (Some)", (9, 0)))
    assert default_archs("sm_75", "sm_86") == (parse_archs("sm_75"), "--arch")
    assert default_archs(None, "sm_86") == (parse_archs("sm_86"), "model file")
    assert default_archs(None, None) == (parse_archs("sm_90"), "GPU 0 (Some)")
    with pytest.raises(TfgraphError):
        default_archs("sm_1", None)
    with pytest.raises(TfgraphError):
        default_archs(None, "sm_1")


def test_several_are_named_with_commas_and_the_oldest_comes_first() -> None:
    several = parse_archs("sm_100, sm_90,sm_86,sm_90")
    assert arch_names(several) == "sm_86,sm_90,sm_100"
    with pytest.raises(TfgraphError, match="unknown CUDA architecture 'sm_1'"):
        parse_archs("sm_90,sm_1")


def test_nvcc_knows_them_all() -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc to ask")
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True)
    known = {name.replace("compute_", "sm_") for name in listed.stdout.split()}
    if "sm_110" not in known:
        pytest.skip("nvcc is older than CUDA 13, whose names these are")
    assert set(ARCHITECTURES) <= known


def no_library(_name: str) -> Any:
    raise OSError("libcuda.so.1: cannot open shared object file")


def test_without_a_gpu_the_default_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert default_archs(None, None) == (parse_archs("sm_80"), "default: no GPU found")


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((9, 0), "sm_90"),
        ((8, 8), "sm_88"),
        ((11, 0), "sm_110"),
        ((15, 0), "sm_121"),
        ((7, 0), "sm_80"),
    ],
)
def test_a_gpu_gets_the_newest_code_it_runs(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: str
) -> None:
    monkeypatch.setattr(arch, "detect_gpu", lambda: ("GPU 0 (Some)", capability))
    found, origin = default_archs(None, None)
    assert arch_names(found) == expected
    assert "GPU 0 (Some)" in origin


class Driver:
    """Answers as libcuda does, since a machine that runs the tests need not have it."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken

    def __getattr__(self, name: str) -> Any:
        if name == self.broken:
            return lambda *arguments: 100  # CUDA_ERROR_NO_DEVICE
        return getattr(type(self), f"answer_{name}")

    @staticmethod
    def answer_cuInit(flags: int) -> int:
        return 0

    @staticmethod
    def answer_cuDriverGetVersion(version: Any) -> int:
        version._obj.value = 13010
        return 0

    @staticmethod
    def answer_cuDeviceGetCount(count: Any) -> int:
        count._obj.value = 1
        return 0

    @staticmethod
    def answer_cuDeviceGet(device: Any, ordinal: int) -> int:
        device._obj.value = 7 + ordinal
        return 0

    @staticmethod
    def answer_cuDeviceGetName(name: Any, size: int, device: int) -> int:
        assert device == 7
        name.value = b"NVIDIA H200"
        return 0

    @staticmethod
    def answer_cuDeviceTotalMem_v2(memory: Any, device: int) -> int:
        assert device == 7
        memory._obj.value = 139 << 30
        return 0

    @staticmethod
    def answer_cuDeviceGetAttribute(value: Any, attribute: int, device: int) -> int:
        assert device == 7
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0


def test_the_driver_is_asked_for_name_and_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert arch.detect_gpu() == ("GPU 0 (NVIDIA H200)", (9, 0))
    driver = find_driver()
    assert driver.version == (13, 1)
    assert (driver.first.arch, driver.first.memory) == ("sm_90", 139 << 30)
    for call in [name.removeprefix("answer_") for name in vars(Driver) if "answer_" in name]:
        monkeypatch.setattr(ctypes, "CDLL", lambda name, broken=call: Driver(broken))
        assert arch.detect_gpu() is None
        with pytest.raises(MissingTool, match="no CUDA device" if call == "cuInit" else call):
            assert find_driver().first
