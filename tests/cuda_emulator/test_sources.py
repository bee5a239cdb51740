"""The kernels of these tests are true CUDA C, and what the emulator puts in its place fits."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cuda_emulator.build import host_library
from cuda_emulator.source import for_host, kernel_names
from cuda_emulator.sources import KERNELS, PRELUDE, kernels

NAMES = [file.stem for file in KERNELS]


@pytest.mark.parametrize("name", NAMES)
def test_nvcc_takes_the_kernels(name: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc to compile CUDA C")
    source = tmp_path / f"{name}.cu"
    source.write_text(kernels(name), encoding="utf-8")
    command = [nvcc, "-cubin", "-arch=sm_80", str(source), "-o", str(tmp_path / "made.cubin")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.parametrize("name", NAMES)
def test_lines_stay_where_they_are(name: str) -> None:
    source = kernels(name)
    changed = for_host(source)
    assert changed.count("\n") == source.count("\n")
    assert not re.search(r"\basm\b", changed)
    assert "__shared__" not in re.sub("//.*", "", changed)
    assert len(kernel_names(source)) == source.count("__global__")


def test_every_function_with_assembly_has_its_double() -> None:
    name = re.compile(r"^(?:DEVICE|__forceinline__) \w+ (\w+)\(", re.MULTILINE)
    text = PRELUDE.read_text("utf-8")
    replaced = set(name.findall(text)) - set(name.findall(for_host(text)))
    doubles = (Path(__file__).parent / "include" / "tensor_cores.h").read_text("utf-8")
    assert "mma_f16" in replaced
    assert replaced <= set(name.findall(doubles))


def test_a_declaration_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"does not read.*__shared__ float a\[3\], b\[4\]"):
        for_host("__shared__ float a[3], b[4];")


def test_the_same_source_is_built_once(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void nothing() {}\n'
    first = host_library(source, tmp_path)
    made = first.stat().st_mtime_ns
    assert host_library(source, tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert host_library(source, tmp_path, checked=False) != first


def test_what_g_plus_plus_says_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="undeclared_name"):
        host_library('extern "C" __global__ void f() { undeclared_name(); }', tmp_path)
