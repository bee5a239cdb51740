"""What compiles CUDA C here: nvcc, else NVRTC; to a cubin for each architecture, and to PTX for
those that come later.

nvcc is looked for on PATH and where CUDA_HOME and CUDA_PATH lead. Division, roots and denormals are
IEEE's, as both have it by default: no fast math. Nothing in the code depends on the folder or the
time, so line numbers, which nvcc gives with the whole path, are left out.
May import: arch, nvrtc, usage, runtime, cache, errors.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from tfgraph.backends.tvm.cuda.arch import CudaArch
from tfgraph.backends.tvm.cuda.nvrtc import find_nvrtc
from tfgraph.backends.tvm.cuda.usage import Usage, read_usage
from tfgraph.cache import active
from tfgraph.errors import TfgraphError
from tfgraph.runtime.cuda.library import toolkit_folders

_KIND = "cuda"  # in the cache
_QUIET = "--diag-suppress=177,550"
"""Registers that are set and not used: loops that were unrolled leave them."""
_STDIN = re.compile(r"\S*tmpxft_\w+-\d+_stdin")
"""What nvcc calls the source that it reads from there."""
_AT_ONCE = 4


class Toolkit(Protocol):
    """A compiler of CUDA C, such as "nvcc 13.0"."""

    @property
    def name(self) -> str:
        """What it is, with its version."""
        ...

    @property
    def cuda(self) -> str:
        """The version of CUDA that it is of, such as "13.0"."""
        ...

    def compile(self, source: str, arch: str, kind: str) -> tuple[bytes, str]:
        """The code, of kind "cubin" or "ptx", and what ptxas said. Raises TfgraphError."""
        ...


@dataclass(frozen=True)
class Image:
    """Code for an architecture, what each kernel uses, and the version of CUDA that made it."""

    arch: str
    kind: str
    cuda: str
    data: bytes
    usage: dict[str, Usage]

    @property
    def file(self) -> str:
        """Its name in an artifact."""
        return f"kernels/{self.arch}.{self.kind}"

    def to_json(self) -> dict[str, str]:
        """Its entry in the manifest."""
        return {"file": self.file, "kind": self.kind, "arch": self.arch, "cuda": self.cuda}


@dataclass(frozen=True)
class Nvcc:
    """NVIDIA's compiler; it takes the host's for the parts that are not for the GPU."""

    path: str
    cuda: str
    release: str

    @property
    def name(self) -> str:
        return f"nvcc {self.release}"

    def compile(self, source: str, arch: str, kind: str) -> tuple[bytes, str]:
        with tempfile.TemporaryDirectory(prefix="tfgraph-") as folder:
            made = f"kernels.{kind}"
            command = [
                *_same_addresses(),
                self.path,
                f"-{kind}",
                f"-arch={arch}",
                "-std=c++17",
                "-Xptxas=-v",
            ]
            # Read from stdin, with files of its own here: the length of a path moves what its
            # compiler allocates, and so may move registers.
            command += [_QUIET, "-x=cu", "-", "-o", made]
            ran = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "TMPDIR": "."},
                input=source,
                capture_output=True,
                encoding="utf-8",  # whatever the locale: comments name what the user named
                errors="backslashreplace",
                check=False,
            )
            if ran.returncode != 0:
                raise failed(self.name, arch, _STDIN.sub("kernels.cu", ran.stderr or ran.stdout))
            return Path(folder, made).read_bytes(), ran.stderr


@cache
def _same_addresses() -> tuple[str, ...]:
    """What to begin a command with so that a program finds its memory at the same addresses each
    time: ptxas chooses registers by them. Nothing where the system does not let us."""
    prefix = ("setarch", "-R")
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except OSError:
        return ()
    return () if tried.returncode else prefix


def failed(name: str, arch: str, log: str) -> TfgraphError:
    """The error where a compiler refuses the source."""
    lines = [line for line in log.splitlines() if re.search(r"error|fatal", line)]
    first = next(iter(lines or log.splitlines()), "it says nothing")
    return TfgraphError(
        f"{name} does not compile kernels.cu for {arch}: {first.strip()}",
        hint="--arch names other architectures",
    )


def find_toolkit() -> Toolkit | None:
    """The compiler on this machine."""
    return find_nvcc() or find_nvrtc()


def find_nvcc() -> Nvcc | None:
    """nvcc, where it answers and there is a host's compiler for it."""
    places = [str(folder / "bin") for folder in toolkit_folders()]
    path = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(places))
    if path is None or not any(map(shutil.which, ("g++", "c++", "gcc", "cc", "clang++"))):
        return None
    try:
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r"release (\d+\.\d+), V([\d.]+)", told.stdout)
    return None if found is None else Nvcc(path, found[1], found[2])


def wanted(archs: Sequence[CudaArch]) -> list[tuple[str, str]]:
    """Architectures and kinds of the images: a cubin for each, and PTX for the newest, which the
    driver compiles for later ones."""
    newest = max(archs, key=lambda arch: arch.capability)
    return [*((arch.name, "cubin") for arch in archs), (newest.name, "ptx")]


def make_images(toolkit: Toolkit, source: str, archs: Sequence[CudaArch]) -> list[Image]:
    """The code that is `wanted`. What the cache holds is not made again."""
    cache = active()

    def make(what: tuple[str, str]) -> Image:
        arch, kind = what
        key = toolkit.name, arch, kind, source
        data = log = None
        if cache is not None:
            data, log = cache.get(_KIND, *key), cache.get(_KIND, "log", *key)
        if data is None or log is None:
            data, text = toolkit.compile(source, arch, kind)
            log = json.dumps(text).encode()
            if cache is not None:
                cache.put(_KIND, data, *key)
                cache.put(_KIND, log, "log", *key)
        usage = read_usage(json.loads(log)) if kind == "cubin" else {}
        return Image(arch, kind, toolkit.cuda, data, usage)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(make, wanted(archs)))
