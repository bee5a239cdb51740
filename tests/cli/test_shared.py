"""`compile --shared`, whose library other programs load, and `run --no-verify-weights`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARY = "kernels/model.so"

# What a program in C++ does, without tfgraph: the runtime library, the module, its machine, main.
CALLER = """
import ctypes, importlib.util, sys
from pathlib import Path
import numpy as np
import tvm_ffi
runtime = Path(importlib.util.find_spec("tvm").origin).parent / "lib" / "libtvm_runtime.so"
ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)
machine = tvm_ffi.load_module(sys.argv[1])["vm_load_executable"]()
machine["vm_initialization"](1, 0, 1)
def aligned(array):
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return tvm_ffi.from_dlpack(copy)
found = machine["main"](*[aligned(np.load(path)) for path in sys.argv[3:]])
np.save(sys.argv[2], np.from_dlpack(found[0] if not isinstance(found, tvm_ffi.Tensor) else found))
assert not [name for name in sys.modules if name.partition(".")[0] in ("tvm", "tfgraph")]
"""

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on PATH"
)


@needs_compiler
def test_another_program_loads_the_library(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    from tfgraph.runtime.tensors import map_tensors

    assert tfgraph("compile", "tiny.tfg", "--shared", "-o", "art").code == 0
    manifest = json.loads(Path("art/manifest.json").read_text())
    assert LIBRARY in manifest["files"]
    x = np.linspace(-2, 2, 40, dtype=np.float32).reshape(5, 8)
    np.save("x.npy", x)
    weights = map_tensors(Path("art/weights.safetensors"))
    names = [w["name"] for w in manifest["weights"]]
    for i, name in enumerate(names):
        np.save(f"w{i}.npy", weights[name])
    arrays = ["x.npy", *(f"w{i}.npy" for i in range(len(names)))]
    command = [sys.executable, "-c", CALLER, f"art/{LIBRARY}", "z.npy", *arrays]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert tfgraph("run", "art", "--input", "x=x.npy", "--save", "out").code == 0
    np.testing.assert_array_equal(np.load("z.npy"), np.load("out/z.npy"))


@needs_compiler
def test_all_else_is_the_same_and_so_is_the_library(tfgraph: Callable[..., Any]) -> None:
    line = ("compile", "tiny.tfg", "--no-verify")
    for options in (("-o", "a"), ("-o", "b", "--shared"), ("-o", "deeper/c", "--shared")):
        assert tfgraph(*line, *options).code == 0

    def files(folder: str) -> dict[str, bytes]:
        found = {str(p.relative_to(folder)): p for p in Path(folder).rglob("*") if p.is_file()}
        return {name: path.read_bytes() for name, path in found.items()}

    without, first, second = files("a"), files("b"), files("deeper/c")
    assert first == second
    assert first.keys() - without.keys() == {LIBRARY}
    assert [name for name in without if without[name] != first[name]] == ["manifest.json"]


@needs_compiler
def test_a_damaged_library_is_told(tfgraph: Callable[..., Any]) -> None:
    tfgraph("compile", "tiny.tfg", "--no-verify", "--shared", "-o", "art")
    with Path("art", LIBRARY).open("ab") as file:
        file.write(b"\0")
    result = tfgraph("run", "art")
    assert result.code == 2
    assert result.err.startswith(f"error: art/{LIBRARY}: damaged")


def test_without_a_compiler(tfgraph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path.cwd()))
    result = tfgraph("compile", "tiny.tfg", "--shared")
    assert result.code == 3
    assert "there is none on PATH (cc, gcc, clang)" in result.err
    assert "hint: install one" in result.err
    assert not list(Path().glob("*.tfgraph"))
    assert tfgraph("compile", "tiny.tfg").code == 0


def test_a_compiler_that_fails(
    tfgraph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "bin" / "cc"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'cannot find ld' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    result = tfgraph("compile", "tiny.tfg", "--shared")
    assert result.code == 3
    assert f"{fake} cannot link a shared library: cannot find ld" in result.err


def test_the_library_is_for_the_cpu(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("compile", "tiny.tfg", "--shared", "--target", "cuda")
    assert (result.code, result.err) == (2, "error: --shared is for --target cpu, not cuda\n")


def test_weights_are_hashed_unless_told_otherwise(tfgraph: Callable[..., Any]) -> None:
    tfgraph("compile", "tiny.tfg", "--no-verify", "-o", "art")
    weights = Path("art/weights.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    refused = tfgraph("run", "art")
    assert refused.code == 2
    assert "weights.safetensors: damaged" in refused.err
    assert tfgraph("run", "art", "--no-verify-weights").code == 0
    result = tfgraph("run", "tiny.tfg", "--no-verify-weights")
    assert result.code == 2
    assert "--no-verify-weights is for artifacts" in result.err
