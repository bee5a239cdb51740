"""The CPU artifact: what its code needs, that its bytes are reproducible, how damage is told."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.artifacts import ROOT, contents, python
from helpers.elf import needed_symbols
from helpers.small_model import build_small, small_model
from helpers.tolerance import assert_close

import tfgraph
from tfgraph.backends.base import Target
from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout

# What its code needs

# Besides TVM's runtime: nothing of libm, since exp, tanh and erf are our own vector code.
LIBC = {"memcpy", "memset", "memmove"}


def test_the_code_needs_no_blas_and_no_python(artifact: Path) -> None:
    objects = list((artifact / layout.KERNELS).glob("*.o"))
    assert objects
    needed = set().union(*(needed_symbols(path.read_bytes()) for path in objects))
    blas = re.compile(r"blas|gemm|sgemv|mkl|dnnl|tblis|openblas", re.IGNORECASE)
    assert not [name for name in needed if blas.search(name)]
    assert not [name for name in needed if re.search(r"^_?py|callback", name, re.I)]
    foreign = {n for n in needed if not n.startswith(("__TVM", "TVM", "_GLOBAL_OFFSET_TABLE_"))}
    assert foreign <= LIBC, f"also needs {foreign - LIBC}"


def test_the_code_names_no_function_of_a_library(artifact: Path) -> None:
    # TVM looks up packed functions by name at run time: those names are strings in the objects.
    for path in (artifact / layout.KERNELS).glob("*.o"):
        data = path.read_bytes()
        for name in (b"tvm.contrib", b"cblas", b"mkl", b"dnnl", b"runtime.disco", b"tfgraph"):
            assert name not in data, name


# The same bytes


def test_the_same_graph_gives_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
    """In another process and under another name; tests/backends/test_same_bytes.py has more."""
    code = """if True:
        import sys, pathlib
        from helpers.small_model import build_small
        build_small(pathlib.Path(sys.argv[1]), "other name.tfgraph")"""
    done = python("-c", code, str(tmp_path), PYTHONHASHSEED="1", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    here, there = contents(artifact), contents(tmp_path / "other name.tfgraph")
    assert list(there) == list(here)
    assert [name for name, data in there.items() if data != here[name]] == []


def test_no_path_or_host_is_in_it(artifact: Path) -> None:
    for name, data in contents(artifact).items():
        for text in (str(artifact.parent), str(ROOT), str(Path.home()), os.uname().nodename):
            assert len(text) < 4 or text.encode() not in data, (name, text)


# Damage


def test_damaged_weights_may_be_accepted_on_request(artifact: Path, copy: Path) -> None:
    data = bytearray((artifact / layout.WEIGHTS).read_bytes())
    data[-1] ^= 1
    (copy / layout.WEIGHTS).write_bytes(data)
    tfgraph.load(copy, verify_weights=False).close()
    (copy / layout.WEIGHTS).write_bytes(data[: len(data) // 2])
    with pytest.raises(TfgraphError, match="does not fit: truncated or malformed"):
        tfgraph.load(copy, verify_weights=False)


def test_what_is_no_artifact_is_told(tmp_path: Path) -> None:
    with pytest.raises(TfgraphError, match="no such artifact"):
        tfgraph.load(tmp_path / "nothing")
    with pytest.raises(TfgraphError, match=f"is not an artifact: it has no {layout.MANIFEST}"):
        tfgraph.load(tmp_path)


NO_PATHS: list[tuple[Any, str, str | None]] = [
    (
        b"model.tfgraph",
        "load: expected a path, got b'model.tfgraph'",
        "os.fsdecode makes one of bytes",
    ),
    (None, "load: expected a path, got None", None),
    (3, "load: expected a path, got 3", None),
    ("a\0b", "load: 'a\\x00b' is no path: it has a null character", None),
]


@pytest.mark.parametrize(("given", "message", "hint"), NO_PATHS)
def test_what_is_no_path_is_told(given: Any, message: str, hint: str | None) -> None:
    with pytest.raises(TfgraphError) as error:
        tfgraph.load(given)
    assert (error.value.message, error.value.hint) == (message, hint)


# Never half of one


def test_an_interrupted_build_removes_what_it_wrote(tmp_path: Path) -> None:
    def interrupt(stage: str) -> None:
        if stage == "verify":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tfgraph.build(small_model(), Target("cpu"), tmp_path / "x.tfgraph", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_something_else_in_its_place_is_kept(tmp_path: Path) -> None:
    (tmp_path / "x.tfgraph").mkdir()
    (tmp_path / "x.tfgraph" / "thesis.txt").write_text("years of work")
    with pytest.raises(TfgraphError, match="exists and is not an artifact"):
        build_small(tmp_path, "x.tfgraph")
    assert (tmp_path / "x.tfgraph" / "thesis.txt").read_text() == "years of work"
    assert [p.name for p in tmp_path.iterdir()] == ["x.tfgraph"]


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TfgraphError) as error:
        build_small(tmp_path / "file")  # a folder inside of a file
    assert error.value.message.startswith(f"cannot write {tmp_path}/file/small.cpu.tfgraph: ")
    monkeypatch.chdir("/sys")  # where not even root may create a file
    why = "Permission denied|Operation not permitted|Read-only file system"
    with pytest.raises(TfgraphError, match=rf"cannot write small\.cpu\.tfgraph: ({why})"):
        tfgraph.build(small_model(), Target("cpu"), check=False)
    build_small(tmp_path)  # the folder one stands in does not matter


# What running it loads


def test_running_loads_no_compiler_and_no_graph_code(artifact: Path) -> None:
    code = """if True:
        import sys
        import tfgraph
        model = tfgraph.load(sys.argv[1])
        out = model(**model.example())
        assert out["logits"].shape == (8, 20, 90), out["logits"].shape
        print(*sorted(sys.modules))"""
    done = python("-c", code, str(artifact))
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "tfgraph.runtime.model" in loaded
    unwanted = ("tvm", "onnx", "pydantic", "networkx", "rich", "typer", "safetensors")
    ours = ("ir", "ops", "passes", "backends", "api", "text", "blocks", "weights", "model")
    for name in (*unwanted, *(f"tfgraph.{part}" for part in ours)):
        assert not [m for m in loaded if m == name or m.startswith(f"{name}.")], name


def test_it_computes_what_the_reference_computes(artifact: Path) -> None:
    graph = small_model()
    reference = tfgraph.compile(graph, "numpy")
    with tfgraph.load(artifact) as model:
        for batch, seq in ((1, 1), (2, 67)):
            inputs = model.example({"batch": batch, "seq": seq})
            want, got = reference(**inputs), model(**inputs)
            for name, value in want.items():
                assert_close(got[name], value, length=2 * (3 * 32 + 64 + seq), name=name)


def test_a_closed_model_is_called_by_its_name() -> None:
    model = tfgraph.compile(small_model())
    inputs = model.example({"batch": 1, "seq": 1})
    model.close()
    with pytest.raises(TfgraphError, match=r"^model 'small' is closed$"):
        model(**inputs)


def test_a_file_is_no_artifact(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("kind: encoder\n")
    with pytest.raises(TfgraphError, match=r"model\.yaml is a file; an artifact is a folder") as e:
        tfgraph.load(path)
    assert e.value.hint == f"tfgraph compile {path} makes one"


@pytest.mark.parametrize(("target", "dtype"), [("cpu", "f16"), ("cuda", "f64")])
def test_what_cannot_be_lowered_leaves_no_warning_of_tvm(
    target: str, dtype: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", dtype, "n")
        g.output("y", tfgraph.ops.exp(x + 1))
    with pytest.raises(TfgraphError, match=f"add of {dtype} has no compiled kernel"):
        tfgraph.build(g.build(), target, tmp_path / "g.tfgraph")
    gc.collect()
    assert capfd.readouterr() == ("", "")
