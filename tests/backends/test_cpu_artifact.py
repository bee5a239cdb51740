"""The CPU artifact: what its code needs, that its bytes are reproducible, how damage is told."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.elf import needed_symbols
from helpers.small_model import build_small, small_model
from helpers.tolerance import assert_close

import tfgraph
from tfgraph.backends.base import Target
from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("artifact"))


def run_python(code: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(TESTS)])
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **env},
        check=False,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


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
    code = """if True:
        import sys, pathlib
        from helpers.small_model import build_small
        build_small(pathlib.Path(sys.argv[1]), "other name.tfgraph")"""
    for seed in ("1", "2"):
        done = run_python(code, str(tmp_path / seed), PYTHONHASHSEED=seed, HOME=str(tmp_path))
        assert done.returncode == 0, done.stderr
    here = contents(artifact)
    for seed in ("1", "2"):
        there = contents(tmp_path / seed / "other name.tfgraph")
        assert list(there) == list(here)
        assert [name for name, data in there.items() if data != here[name]] == []


def test_no_path_or_host_is_in_it(artifact: Path) -> None:
    for name, data in contents(artifact).items():
        for text in (str(artifact.parent), str(ROOT), str(Path.home()), os.uname().nodename):
            assert len(text) < 4 or text.encode() not in data, (name, text)


# Damage


@pytest.mark.parametrize(
    "name",
    [
        layout.GRAPH_BEFORE,
        layout.GRAPH,
        layout.PASSES,
        layout.WEIGHTS,
        "kernels/0.o",
        "kernels/1.o",
        "kernels/main.py",
    ],
)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_flipped_bit_is_told_with_the_name_of_the_file(
    artifact: Path, copy: Path, name: str, place: str
) -> None:
    data = bytearray((artifact / name).read_bytes())
    data[{"first": 0, "middle": len(data) // 2, "last": -1}[place]] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(TfgraphError) as error:
        tfgraph.load(copy)
    assert error.value.message == f"{copy / name}: damaged: its hash does not match"
    assert error.value.hint == "compile the model again"


def test_all_files_are_among_those_that_were_damaged(artifact: Path) -> None:
    sources = {name for name in contents(artifact) if name.endswith(".py")}
    assert set(contents(artifact)) - sources == {
        layout.MANIFEST,
        layout.GRAPH_BEFORE,
        layout.GRAPH,
        layout.PASSES,
        layout.WEIGHTS,
        "kernels/0.o",
        "kernels/1.o",
    }


def test_any_flipped_bit_of_the_manifest_is_told(artifact: Path, copy: Path) -> None:
    data = (artifact / layout.MANIFEST).read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data), 200):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.integers(0, 8)
        (copy / layout.MANIFEST).write_bytes(changed)
        with pytest.raises(TfgraphError) as error:
            tfgraph.load(copy)
        assert error.value.message.startswith(f"{copy / layout.MANIFEST}: ")


@pytest.mark.parametrize("name", [layout.GRAPH, layout.WEIGHTS, "kernels/0.o", layout.MANIFEST])
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "longer"])
def test_a_file_that_is_missing_or_cut_is_told(
    artifact: Path, copy: Path, name: str, how: str
) -> None:
    data = (artifact / name).read_bytes()
    if how == "missing":
        (copy / name).unlink()
    else:
        cut = {"empty": b"", "cut": data[: len(data) // 2], "longer": data + b"\n"}
        (copy / name).write_bytes(cut[how])
    with pytest.raises(TfgraphError) as error:
        tfgraph.load(copy)
    assert name.rpartition("/")[2] in error.value.message


def test_damaged_weights_may_be_accepted_on_request(artifact: Path, copy: Path) -> None:
    data = bytearray((artifact / layout.WEIGHTS).read_bytes())
    data[-1] ^= 1
    (copy / layout.WEIGHTS).write_bytes(data)
    tfgraph.load(copy, verify_weights=False).close()
    (copy / layout.WEIGHTS).write_bytes(data[: len(data) // 2])
    with pytest.raises(TfgraphError, match="does not fit: truncated or malformed"):
        tfgraph.load(copy, verify_weights=False)


def test_a_manifest_of_another_format_is_refused_with_what_to_do(copy: Path) -> None:
    path = copy / layout.MANIFEST
    manifest = json.loads(path.read_text())
    for version, hint in ((2, "update tfgraph"), (0, "compile the model again")):
        path.write_text(layout.seal({**manifest, "format": version}))
        with pytest.raises(TfgraphError) as error:
            tfgraph.load(copy)
        assert error.value.message == f"{path}: format {version}; this tfgraph reads format 1"
        assert error.value.hint == hint


def test_what_is_no_artifact_is_told(tmp_path: Path) -> None:
    with pytest.raises(TfgraphError, match="no such artifact"):
        tfgraph.load(tmp_path / "nothing")
    with pytest.raises(TfgraphError, match=f"is not an artifact: it has no {layout.MANIFEST}"):
        tfgraph.load(tmp_path)


def test_a_cpu_without_the_features_is_told(copy: Path) -> None:
    path = copy / layout.MANIFEST
    manifest = json.loads(path.read_text())
    features = [*manifest["cpu"]["features"], "avx9000"]
    path.write_text(layout.seal({**manifest, "cpu": {"mcpu": "future", "features": features}}))
    with pytest.raises(tfgraph.MissingTool, match=r"compiled for future; this CPU has no avx9000"):
        tfgraph.load(copy)


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(artifact, tmp_path / "copy.tfgraph"))


# Never half of one


def test_a_killed_compiler_leaves_no_half_artifact(tmp_path: Path) -> None:
    code = """if True:
        import sys, pathlib
        from helpers.small_model import build_small
        print("ready", flush=True)
        while True:
            build_small(pathlib.Path(sys.argv[1]))"""
    final = tmp_path / "small.cpu.tfgraph"
    for wait in (0.05, 0.4, 1.0, 1.6):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if final.exists():  # whole, from an earlier round
            tfgraph.load(final).close()
    build_small(tmp_path)  # what was left behind is in nobody's way
    tfgraph.load(final).close()


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
    done = run_python(code, str(artifact))
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
    with pytest.raises(TfgraphError, match=r"^error: model small is closed$"):
        model(**inputs)


def test_a_file_is_no_artifact(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("kind: encoder\n")
    with pytest.raises(TfgraphError, match=r"model\.yaml is a file; an artifact is a folder") as e:
        tfgraph.load(path)
    assert e.value.hint == f"tfgraph compile {path} makes one"


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_cannot_be_lowered_leaves_no_warning_of_tvm(
    target: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", "f16", "n")
        g.output("y", tfgraph.ops.exp(x + 1))
    with pytest.raises(TfgraphError, match="add of f16 has no compiled kernel"):
        tfgraph.build(g.build(), target, tmp_path / "g.tfgraph")
    gc.collect()
    assert capfd.readouterr() == ("", "")
