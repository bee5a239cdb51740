"""What compiles CUDA C: nvcc and NVRTC where they are here, several architectures, what ptxas says,
and what is kept from one compilation to the next."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.cuda_artifacts import MODELS
from helpers.processes import python

import tfgraph
from tfgraph.backends.base import Target
from tfgraph.backends.tvm.cuda import backend
from tfgraph.backends.tvm.cuda.arch import parse_archs
from tfgraph.backends.tvm.cuda.emit import emit_kernels
from tfgraph.backends.tvm.cuda.norm import layer_norm
from tfgraph.backends.tvm.cuda.nvrtc import find_nvrtc
from tfgraph.backends.tvm.cuda.toolkit import Toolkit, find_nvcc, find_toolkit, make_images, wanted
from tfgraph.backends.tvm.cuda.usage import Usage, read_usage
from tfgraph.cache import Cache, using
from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout
from tfgraph.runtime.cuda import library

ARCHS = parse_archs("sm_90,sm_80")


class Told:
    """A compiler that tells what it was asked for."""

    name, cuda = "told 13.0", "13.0"
    log = (
        "ptxas info    : Function properties for norm\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 64 bytes smem, 400 bytes cmem[0]\n"
        "ptxas info    : Function properties for wide_kernel\n"
        "    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\n"
        "ptxas info    : Used 255 registers, 400 bytes cmem[0]\n"
    )

    def __init__(self) -> None:
        self.asked = Counter[tuple[str, str]]()

    def compile(self, source: str, arch: str, kind: str) -> tuple[bytes, str]:
        self.asked[arch, kind] += 1
        return f"{kind} for {arch}".encode(), self.log if kind == "cubin" else ""


def found(name: str) -> Toolkit:
    made = find_nvcc() if name == "nvcc" else find_nvrtc()
    if made is None:
        pytest.skip(f"no {name} here")
    return made


@pytest.mark.parametrize("name", ["nvcc", "NVRTC"])
def test_a_compiler_gives_code_for_gpus(name: str) -> None:
    made = found(name)
    source, (kernel,) = emit_kernels({"norm": layer_norm(("m",), 300, eps=1e-5)}, ARCHS[0])
    code, log = made.compile(source, "sm_80", "cubin")
    assert code.startswith(b"\x7fELF")
    usage = read_usage(log)[kernel.name]
    assert 8 < usage.registers < 256
    assert usage.shared == kernel.static_shared_bytes
    assert not usage.spills
    text = made.compile(source, "sm_90", "ptx")[0].decode()
    assert ".target sm_90" in text
    assert text.rstrip("\n").endswith("}")
    # Division and roots round as IEEE says, and denormals are numbers.
    operations = re.findall(r"\b(?:div|sqrt|rcp|rsqrt)\.[\w.]+", text)
    assert operations
    assert not [op for op in operations if "full" in op or "ftz" in op]
    assert not [op for op in operations if op.startswith(("div", "sqrt")) and "approx" in op]


@pytest.mark.parametrize("name", ["nvcc", "NVRTC"])
@pytest.mark.parametrize("kind", ["cubin", "ptx"])
def test_the_same_source_gives_the_same_bytes(name: str, kind: str) -> None:
    """Which speak of no folder."""
    made = found(name)
    source, _ = emit_kernels({"norm": layer_norm(("m",), 64, eps=1e-5)}, ARCHS[0])
    first, _ = made.compile(source, "sm_80", kind)
    assert made.compile(source, "sm_80", kind)[0] == first
    assert b"/tmp" not in first
    assert str(Path.cwd()).encode() not in first


@pytest.mark.parametrize("name", ["nvcc", "NVRTC"])
def test_source_that_is_wrong_is_an_error(name: str) -> None:
    made = found(name)
    with pytest.raises(
        TfgraphError, match=r"does not compile kernels.cu for sm_80: .*error.*nope"
    ) as caught:
        made.compile("__global__ void f() { nope; }", "sm_80", "cubin")
    assert "tmp" not in str(caught.value)


def test_comments_may_be_in_any_script_whatever_the_locale() -> None:
    found("nvcc")
    code = """if True:
        from tfgraph.backends.tvm.cuda.toolkit import find_nvcc
        find_nvcc().compile("// \\u63a9\\u7801\\n__global__ void f() {}", "sm_80", "ptx")"""
    python(code, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")


def test_what_ptxas_says() -> None:
    assert read_usage(Told.log) == {
        "norm": Usage(40, 64, 0, 0, 0),
        "wide_kernel": Usage(255, 0, 24, 16, 20),
    }
    assert [used.spills for used in read_usage(Told.log).values()] == [False, True]


def test_a_cubin_for_each_architecture_and_ptx_for_later_ones(tmp_path: Path) -> None:
    """Made once, where there is a cache."""
    assert wanted(ARCHS) == [("sm_80", "cubin"), ("sm_90", "cubin"), ("sm_90", "ptx")]
    made = Told()
    with using(Cache(tmp_path / "cache")):
        first = make_images(made, "source", ARCHS)
        assert make_images(made, "source", ARCHS) == first
        assert set(made.asked.values()) == {1}
        make_images(made, "another source", ARCHS)
    assert set(made.asked.values()) == {2}
    assert [image.file for image in first] == [
        "kernels/sm_80.cubin",
        "kernels/sm_90.cubin",
        "kernels/sm_90.ptx",
    ]
    assert [bool(image.usage) for image in first] == [True, True, False]


def build(folder: Path, arch: str | None = None) -> Path:
    file = folder / "encoder.yaml"
    file.write_text(MODELS["encoder"])
    out = folder / "encoder.tfgraph"
    target = Target("cuda", arch=arch)
    tfgraph.build(file, target, out, check=False, prove=False)
    return out


def test_the_manifest_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And a warning names the kernels that spill registers."""
    made = Told()
    monkeypatch.setattr(backend, "find_toolkit", lambda: made)
    with caplog.at_level(logging.WARNING, "tfgraph"):
        artifact = build(tmp_path, "sm_90,sm_80")
    manifest = layout.read_manifest(artifact)
    assert manifest["arch"] == "sm_80,sm_90"
    assert manifest["tools"]["cuda"] == "told 13.0"
    assert [(i["arch"], i["kind"]) for i in manifest["cuda"]["images"]] == list(made.asked)
    assert manifest["cuda"]["usage"]["sm_90"]["norm"] == {
        "registers": 40,
        "shared": 64,
        "stack": 0,
        "spill_stores": 0,
        "spill_loads": 0,
    }
    assert [record.getMessage() for record in caplog.records] == [
        f"wide_kernel spills registers on {arch}: 16 bytes stored, 20 loaded"
        for arch in ("sm_80", "sm_90")
    ]
    assert (artifact / "kernels/sm_90.ptx").read_bytes() == b"ptx for sm_90"
    first = (artifact / layout.CUDA_SOURCE).read_text().splitlines()[0]
    assert first == "// CUDA C generated by tfgraph for sm_80 (Ampere), sm_90 (Hopper)."


def test_nvcc_is_also_found_by_cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "nvcc"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.1, V13.1.7'\n")
    tool.chmod(0o755)
    compiler = tmp_path / "host" / "g++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    nvcc = find_toolkit()
    assert nvcc is not None
    assert (nvcc.name, nvcc.cuda) == ("nvcc 13.1.7", "13.1")
    monkeypatch.setenv("PATH", str(tool.parent))  # nvcc without a host's compiler is of no use
    assert find_nvcc() is None


def test_nvidias_packages_are_looked_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    spec: Any = importlib.util.spec_from_loader("nvidia", None)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert library.toolkit_folders() == [tmp_path / "cu13"]
