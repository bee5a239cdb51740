"""CUDA architectures by name, and the choice of one where none is named."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import pytest

from tfgraph.backends.tvm.cuda import arch
from tfgraph.backends.tvm.cuda.arch import ARCHITECTURES, default_arch, parse_arch
from tfgraph.errors import TfgraphError


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
    assert default_arch("sm_75", "sm_86") == (parse_arch("sm_75"), "--arch")
    assert default_arch(None, "sm_86") == (parse_arch("sm_86"), "model file")
    assert default_arch(None, None) == (parse_arch("sm_90"), "GPU 0 (Some)")
    with pytest.raises(TfgraphError):
        default_arch("sm_1", None)
    with pytest.raises(TfgraphError):
        default_arch(None, "sm_1")


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
    assert default_arch(None, None) == (parse_arch("sm_80"), "default: no GPU found")


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
    found, origin = default_arch(None, None)
    assert found.name == expected
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
    def answer_cuDeviceGet(device: Any, ordinal: int) -> int:
        device._obj.value = 7
        return 0

    @staticmethod
    def answer_cuDeviceGetName(name: Any, size: int, device: Any) -> int:
        assert device.value == 7
        name.value = b"NVIDIA H200"
        return 0

    @staticmethod
    def answer_cuDeviceGetAttribute(value: Any, attribute: int, device: Any) -> int:
        assert device.value == 7
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0


def test_the_driver_is_asked_for_name_and_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert arch.detect_gpu() == ("GPU 0 (NVIDIA H200)", (9, 0))
    for call in ("cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, broken=call: Driver(broken))
        assert arch.detect_gpu() is None
