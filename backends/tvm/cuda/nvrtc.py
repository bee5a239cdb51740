"""NVRTC: NVIDIA's compiler of CUDA C as a library, of the extra `tfgraph[cuda]` or of a toolkit.

May import: runtime, errors, the standard library.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tfgraph.errors import TfgraphError
from tfgraph.runtime.cuda.library import toolkit_folders

NAME = "libnvrtc.so.13"


@dataclass(frozen=True)
class Nvrtc:
    """The library, and the folders of NVIDIA's headers."""

    library: Any
    cuda: str
    headers: tuple[Path, ...]

    @property
    def name(self) -> str:
        return f"NVRTC {self.cuda}"

    def compile(self, source: str, arch: str, kind: str) -> tuple[bytes, str]:
        """See `Toolkit`."""
        program = ctypes.c_void_p()
        text = source.encode()
        self._call("CreateProgram", ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        try:
            target = arch if kind == "cubin" else arch.replace("sm_", "compute_")
            options = [f"--gpu-architecture={target}", "--std=c++17"]
            options += [f"--include-path={folder}" for folder in self.headers]
            options += ["--ptxas-options=-v"] if kind == "cubin" else []
            array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            code = self.library.nvrtcCompileProgram(program, len(options), array)
            log = self._bytes("ProgramLog", program).decode("utf-8", "replace")
            if code != 0:
                lines = [line for line in log.splitlines() if "error" in line] or [f"code {code}"]
                raise TfgraphError(
                    f"{self.name} does not compile kernels.cu for {arch}: {lines[0].strip()}",
                    hint="pip install 'tfgraph[cuda]' brings all of its headers",
                )
            return self._bytes(kind.upper(), program).rstrip(b"\0" if kind == "ptx" else b""), log
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _bytes(self, what: str, program: Any) -> bytes:
        """A result, whose size is asked for first."""
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, data)
        return data.raw

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self.library, f"nvrtc{function}")(*arguments)
        if code != 0:
            raise TfgraphError(f"{self.name}: nvrtc{function} says {code}")


@cache
def find_nvrtc() -> Nvrtc | None:
    """NVRTC with its headers, if it is here."""
    folders = toolkit_folders()
    paths = [NAME, *(str(f / inner / NAME) for f in folders for inner in ("lib", "lib64"))]
    for path in paths:
        try:
            # Which it looks for by name alone, when it first compiles.
            for builtins in Path(path).parent.glob("libnvrtc-builtins.so.*") if "/" in path else ():
                ctypes.CDLL(str(builtins))
            library = ctypes.CDLL(path)
        except OSError:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) != 0:
            continue
        own = Path(path).parent.parent
        inside = [f / "include" for f in (own, *folders) if (f / "include" / "cuda.h").is_file()]
        headers = [f for i in inside[:1] for f in (i, i / "cccl")]
        return Nvrtc(library, f"{major.value}.{minor.value}", tuple(headers))
    return None
