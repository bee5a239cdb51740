"""Loading an artifact reads the files that its manifest lists, and runs no code of it but the
object files whose bytes were hashed. Python's audit events tell, in a process of their own."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.artifacts import edit_manifest, python

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout
from tfgraph.runtime.absent import without_pytorch
from tfgraph.runtime.jit import NO_COMPILER

WATCH = """
import json, sys
from pathlib import Path
seen = []
STARTS = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
          "pickle.", "socket.connect")
def hook(event, args):
    if event == "open":
        seen.append([event, str(args[0]), str(args[1])])
    elif event in ("exec", "compile", "import", "ctypes.dlopen"):
        name = args[0] if event == "ctypes.dlopen" else args[-1 if event == "exec" else 1]
        seen.append([event, str(getattr(name, "co_filename", name)), ""])
    elif event.startswith(STARTS):
        seen.append([event, str(args[0]), ""])
import tfgraph.runtime.model, numpy  # what Python itself compiles and reads is not meant
sys.addaudithook(hook)
model = tfgraph.load(sys.argv[1])
outputs = model(**model.example({"batch": 1, "seq": 3}))
maps = [line.split(None, 5) for line in Path("/proc/self/maps").read_text().splitlines()]
runs = [m[5] for m in maps if len(m) == 6 and "x" in m[1]]
print(json.dumps({"seen": seen, "runs": runs, "outputs": sorted(outputs)}))
"""
WATCHED = ("open", "exec", "compile", "import", "ctypes.dlopen")
DECOYS = (
    "numpy.py",
    "tvm_ffi.py",
    "sitecustomize.py",
    "kernels/extra.o",
    layout.SHARED,
    "plugin.py",
)


@pytest.fixture(scope="module")
def watched(
    artifact: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """An artifact that was loaded and called, its folder being the current one, with code beside
    its own that nobody may touch; and what happened."""
    folder = tmp_path_factory.mktemp("watched") / "w.tfgraph"
    edit_manifest(artifact, folder)
    for name in DECOYS:
        (folder / name).write_text("raise SystemExit('this must not run')")
    script = folder.parent / "script.py"
    script.write_text(WATCH)
    done = python(str(script), str(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def inside(folder: Path, name: str) -> bool:
    """Whether it is a file of the artifact, which the current folder was."""
    path = folder / name
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def test_the_files_of_the_manifest_are_read_and_no_other(
    watched: tuple[Path, dict[str, Any]],
) -> None:
    folder, found = watched
    assert found["outputs"] == ["decoded", "hidden", "logits"]
    opens = [(n, mode) for event, n, mode in found["seen"] if event == "open" and inside(folder, n)]
    listed = layout.read_manifest(folder)["files"]
    files = {str(folder / name) for name in (layout.MANIFEST, *listed)}
    assert {name for name, _ in opens} == files
    assert {mode for _, mode in opens} <= {"rb", "r", "None"}


def test_no_code_in_it_is_run_by_name(watched: tuple[Path, dict[str, Any]]) -> None:
    folder, found = watched
    ran = [(e, n) for e, n, _ in found["seen"] if e != "open" and inside(folder, n)]
    assert ran == []
    assert [name for name in found["runs"] if inside(folder, name)] == []


def test_no_process_is_started_nothing_unpickled_nothing_connected(
    watched: tuple[Path, dict[str, Any]],
) -> None:
    """The linker's library starts a compiler, if it is there: it is told of one that cannot be."""
    seen = {(e, n) for e, n, _ in watched[1]["seen"] if e not in WATCHED}
    assert seen == {("subprocess.Popen", NO_COMPILER)}
    assert NO_COMPILER.startswith(os.devnull + "/")


def test_code_outside_is_refused_though_its_hash_is_right(artifact: Path, tmp_path: Path) -> None:
    files = json.loads((artifact / layout.MANIFEST).read_text())["files"]
    name = next(name for name in files if name.endswith(".o"))
    (tmp_path / "m.o").write_bytes((artifact / name).read_bytes())
    for place in ("../m.o", str(tmp_path / "m.o"), "kernels/../../m.o"):
        changed = {**files, place: files[name]}
        folder = edit_manifest(artifact, tmp_path / f"{len(place)}.tfgraph", files=changed)
        with pytest.raises(TfgraphError, match="which is not in the folder"):
            tfgraph.load(folder)


def test_bytes_that_are_no_code_are_told(artifact: Path, tmp_path: Path) -> None:
    files = json.loads((artifact / layout.MANIFEST).read_text())["files"]
    name = next(name for name in files if name.endswith(".o"))
    folder = edit_manifest(artifact, tmp_path / "bad.tfgraph")
    (folder / name).write_bytes(b"no code" * 50)
    files[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    edit_manifest(folder, folder, files=files)
    with pytest.raises(TfgraphError, match="model 'small' cannot be linked: "):
        tfgraph.load(folder)


def test_weights_are_as_large_as_the_code_was_compiled_for(artifact: Path, tmp_path: Path) -> None:
    """Else kernels would read beyond them: hashed or not, of the right hash or not."""
    whole = (artifact / layout.WEIGHTS).read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    name = next(n for n, entry in header.items() if entry["shape"] == [90, 32])
    for i, change in enumerate(
        (
            {"shape": [45, 32], "data_offsets": [0, 45 * 32 * 4]},
            {"shape": [32, 90]},
            {"dtype": "I32"},
            None,
        )
    ):
        changed = {n: e for n, e in header.items() if n != name}
        changed |= {} if change is None else {name: {**header[name], **change}}
        text = json.dumps(changed).encode().ljust(length)
        folder = edit_manifest(artifact, tmp_path / f"{i}.tfgraph")
        (folder / layout.WEIGHTS).write_bytes(
            len(text).to_bytes(8, "little") + text + whole[8 + length :]
        )
        with pytest.raises(TfgraphError, match=rf"'{name}' is missing, or not float32\[90, 32\]"):
            tfgraph.load(folder, verify_weights=False)


@pytest.mark.parametrize(
    "use",
    [
        "model = tfgraph.load(sys.argv[1]); model(**model.example())",
        "tfgraph.backends.base.find_backend('cpu')",
    ],
)
def test_pytorch_is_left_to_its_users(artifact: Path, tmp_path: Path, use: str) -> None:
    (tmp_path / "torch.py").write_text("print('imported')")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys, tfgraph, tfgraph.backends.base\n{use}\nprint('used')\nimport torch"
    )
    done = python(str(script), str(artifact), cwd=tmp_path)
    assert done.stdout.split() == ["used", "imported"], done.stderr


OTHERS = """if True:
    import builtins, importlib.abc, importlib.machinery, sys, threading
    from tfgraph.backends import base

    class PyTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        asked = 0
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                self.asked += 1
                return importlib.machinery.ModuleSpec(name, self)
        def create_module(self, spec):
            return None
        def exec_module(self, module):
            module.is_here = True

    found = PyTorch()
    sys.meta_path.append(found)

    def other():
        import torch
        assert torch.is_here
        del sys.modules["torch"]

    real = builtins.__import__
    def importing(name, *args, **kwargs):  # in the midst of it another thread imports PyTorch
        if name == "tvm" and not found.asked:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return real(name, *args, **kwargs)
    builtins.__import__ = importing
    base.find_backend("cpu")
    builtins.__import__ = real
    assert found.asked == 1, found.asked
    left = [f for f in sys.meta_path if type(f).__module__.startswith("tfgraph")]
    assert "torch" not in sys.modules and left == []

    base.without_pytorch = None  # what is imported already is not imported again
    base.find_backend("cpu")
    other()
    assert found.asked == 2
    print("done")"""


def test_pytorch_is_hidden_from_our_own_imports_and_from_no_other(tmp_path: Path) -> None:
    """Neither from another thread meanwhile nor from anyone later."""
    script = tmp_path / "script.py"
    script.write_text(OTHERS)
    done = python(str(script))
    assert done.stdout == "done\n", done.stderr


def test_imports_that_fail_leave_pytorch_to_others() -> None:
    before = list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError), without_pytorch():
        import torch  # noqa: F401
    with pytest.raises(ZeroDivisionError), without_pytorch():
        _ = 1 / 0
    assert sys.meta_path == before
    assert "torch" not in sys.modules or sys.modules["torch"] is not None
