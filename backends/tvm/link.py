"""`--shared`: the object files linked into one library, for programs that have no JIT linker.

    tvm_ffi::Module::LoadFromFile("encoder.cpu.tfgraph/kernels/model.so")

then `vm_load_executable`, `vm_initialization` and `main`, as in tfgraph.runtime.jit. The library
needs libtvm_ffi and libtvm_runtime, loaded before it. Nothing of tfgraph's own uses it;
examples/deploy does. May import: staging, errors.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.backends.staging import write_file
from tfgraph.errors import MissingTool

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPILERS = ("cc", "gcc", "clang")


def find_compiler() -> str:
    """The path of a C compiler. Raises MissingTool where PATH has none."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise MissingTool(
        f"--shared links with a C compiler, and there is none on PATH ({', '.join(COMPILERS)})",
        hint="install one, such as gcc; without --shared an artifact needs none",
    )


def link_shared(objects: Sequence[bytes], compiler: str) -> bytes:
    """The shared library of these object files; the same bytes for the same objects and linker.

    Raises MissingTool with the linker's words where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="tfgraph-") as folder:
        names = [f"{i}.o" for i in range(len(objects))]
        for name, data in zip(names, objects, strict=True):
            write_file(Path(folder) / name, data)
        # Names relative to the folder, and no build id: nothing depends on where this runs.
        command = [compiler, "-shared", "-Wl,--build-id=none", "-o", "model.so", *names]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            words = done.stderr.strip().splitlines() or ["it says nothing"]
            raise MissingTool(
                f"{compiler} cannot link a shared library: {words[-1]}",
                hint="without --shared an artifact needs no linker",
            )
        return (Path(folder) / "model.so").read_bytes()
