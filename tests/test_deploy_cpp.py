"""docs/deploy.md: an artifact runs from C++, by the program in examples/deploy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.artifacts import ROOT
from helpers.deploying import blocks, build_shared, needs_compiler, package

import tfgraph
from tfgraph.backends.base import Target
from tfgraph.runtime.format import SHARED

if TYPE_CHECKING:
    pass

EXAMPLE = ROOT / "examples" / "deploy"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shared(tmp_path_factory.mktemp("deploy") / "small.tfgraph")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the commands of the page."""
    folder = tmp_path_factory.mktemp("program")
    for file in EXAMPLE.iterdir():
        shutil.copy(file, folder)
    python = folder / "bin"
    python.mkdir()
    (python / "python").symlink_to(sys.executable)
    site = str(package("tvm").parent)
    env = {**os.environ, "PATH": f"{python}:{os.environ['PATH']}", "PYTHONPATH": site}
    done = subprocess.run(
        ["bash", "-euc", blocks("sh")[0]], cwd=folder, env=env,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder / "main"


@pytest.mark.parametrize("file", ["main.cc", "tensors.h"])
def test_the_program_is_short(file: str) -> None:
    lines = (EXAMPLE / file).read_text().splitlines()
    assert len(lines) < 80
    assert max(map(len, lines)) <= 100


def execute(program: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    line = [str(program), *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=env)


def printed(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, list[str]]]:
    """What the program says of each output: its type, and the numbers."""
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, list[str]]] = {}
    for line in done.stdout.splitlines():
        port, _, numbers = line.partition(" = ")
        name, _, kind = port.partition(": ")
        found[name] = kind, numbers.split()
    return found


def kind_of(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype}{list(array.shape)}"


@needs_compiler
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_program_in_cpp_gives_the_same_bits(
    artifact: Path, program: Path, tmp_path: Path, threads: str
) -> None:
    """Inputs of two sizes, in files whose tensors are aligned and not; several outputs."""
    from safetensors.numpy import save_file

    env = {"TVM_BIND_THREADS": "0", "TVM_NUM_THREADS": threads}
    for sizes in ({"batch": 1, "seq": 1}, {"batch": 2, "seq": 67}):
        with tfgraph.load(artifact) as model:
            inputs = model.example(sizes)
            want = model(**inputs)
        file = tmp_path / "inputs.safetensors"
        save_file(inputs, file, metadata={"from": "a test"})
        found = printed(execute(program, artifact, file, "--all", **env))
        assert list(found) == list(want)
        for name, (kind, numbers) in found.items():
            assert kind == kind_of(want[name])
            got = np.array(numbers, np.float32).view(np.uint32)
            np.testing.assert_array_equal(got, want[name].view(np.uint32).ravel())
        first = printed(execute(program, artifact, file, **env))
        for name, (kind, numbers) in found.items():
            assert first[name] == (kind, [*numbers[:5], "..."])


def built_for_cpp(folder: Path, text: str) -> Path:
    graph = tfgraph.parse_graph(text)
    tfgraph.build(graph, Target("cpu", shared=True), folder / "g.tfgraph", check=False)
    return folder / "g.tfgraph"


EVERY_DTYPE = """\
graph g(%i: i64[n], %j: i32[n], %k: i8[n], %u: u8[n], %b: bool[n], %f: f32[n]) {
  symbol n: 1..9, example 3
  %c = logical_not(%b)
  return i=%i, j=%j, k=%k, u=%u, b=%b, c=%c, f=%f
}
"""


@needs_compiler
def test_the_program_takes_and_prints_every_dtype(program: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    folder = built_for_cpp(tmp_path, EVERY_DTYPE)
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "i": np.array([-(2**63), 2**63 - 1, 0]),
        "j": np.array([-(2**31), 2**31 - 1, -1], np.int32),
        "k": np.array([-128, 127, -1], np.int8),
        "u": np.array([0, 255, 7], np.uint8),
        "b": np.array([True, False, True]),
        "f": np.array([1e-45, -0.0, 3.4e38], np.float32),
    }
    save_file(inputs, tmp_path / "in.safetensors")
    found = printed(execute(program, folder, tmp_path / "in.safetensors"))
    for name, value in {**inputs, "c": ~inputs["b"]}.items():
        kind, numbers = found[name]
        assert kind == kind_of(value)
        if name == "f":
            assert np.array(numbers, np.float32).tobytes() == value.tobytes()
        else:
            assert numbers == [str(int(number)) for number in value]


IDS = """\
graph g(%ids: i64[n], %at: i32[n], %table: f32[4,2], %x: f32[2,4]) {
  symbol n: 1..9, example 3
  %e = embedding(%ids, %table)
  %t = take(%x, %at) {axis=1}
  return e=%e, t=%t
}
"""


@needs_compiler
def test_an_id_beyond_its_table_reads_the_nearest_row(program: Path, tmp_path: Path) -> None:
    """As the page says; through Python it is refused."""
    from safetensors.numpy import save_file

    folder = built_for_cpp(tmp_path, IDS)
    wrong = np.array([-1, 4, 2, -(2**62), 2**62, 3])
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    inputs = {"ids": wrong, "at": np.clip(wrong, -(2**31), 2**31 - 1).astype(np.int32)}
    inputs |= {"table": table, "x": table.T.copy()}
    save_file(inputs, tmp_path / "in.safetensors")
    found = printed(execute(program, folder, tmp_path / "in.safetensors", "--all"))
    near = table[np.clip(wrong, 0, 3)]
    np.testing.assert_array_equal(np.array(found["e"][1], np.float32).reshape(6, 2), near)
    np.testing.assert_array_equal(np.array(found["t"][1], np.float32).reshape(2, 6), near.T)
    with tfgraph.load(folder) as model, pytest.raises(tfgraph.TfgraphError, match="holds"):
        model(**inputs)


@needs_compiler
def test_the_program_takes_sizes_that_no_input_tells(program: Path, tmp_path: Path) -> None:
    """By their names, in any order."""
    from safetensors.numpy import save_file

    folder = built_for_cpp(
        tmp_path,
        "graph g(%x: f32[2*n], %z: f32[3*m]) {\n"
        "  symbol n: 1..9, example 3\n  symbol m: 1..9, example 3\n"
        "  %y = exp(%x)\n  %w = exp(%z)\n  return y=%y, w=%w\n}\n",
    )
    inputs = {"x": np.linspace(-1, 1, 8, dtype=np.float32), "z": np.ones(15, np.float32)}
    file = tmp_path / "x.safetensors"
    save_file(inputs, file)
    with tfgraph.load(folder) as model:
        want = model(**inputs, dims={"n": 4, "m": 5})
    for sizes in (["n=4", "m=5"], ["m=5", "n=4"]):
        found = printed(execute(program, folder, file, *sizes, "--all"))
        for name, value in want.items():
            np.testing.assert_array_equal(np.array(found[name][1], np.float32), value)
    refused = execute(program, folder, file, "n=4")
    assert refused.returncode == 1
    assert refused.stderr.endswith("expected m=SIZE\n")


@needs_compiler
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "another format of artifact"),
        ({"cpu": {"mcpu": "future", "features": ["avx2", "avx9000"]}}, "this CPU has no avx9000"),
        ({"cpu": {"mcpu": "odd", "features": ["av"]}}, "this CPU has no av"),
    ],
)
def test_the_program_refuses(
    artifact: Path, program: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    from helpers.artifacts import edit_manifest

    folder = edit_manifest(artifact, tmp_path / "other.tfgraph", **change)
    (folder / SHARED).write_bytes(b"not looked at")
    done = execute(program, folder, "nothing")
    assert done.returncode == 1
    assert done.stderr.endswith(f"{message}\n")


@needs_compiler
def test_the_program_says_what_is_missing(artifact: Path, program: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    file = tmp_path / "in.safetensors"
    with tfgraph.load(artifact) as model:
        inputs = model.example({"batch": 1, "seq": 2})

    def refusal(folder: Path = artifact) -> str:
        done = execute(program, folder, file)
        assert done.returncode == 1
        assert done.stdout == ""
        return done.stderr

    assert f"cannot read {file}" in refusal()
    save_file(inputs, file)
    data = file.read_bytes()
    for damaged in (b"", data[:5], data[:30], b"\xff" * 8 + data[8:], b"\0" * 8 + data[8:]):
        file.write_bytes(damaged)
        assert f"{file} is no whole safetensors file" in refusal()
    file.write_bytes(data[:-1])
    assert "does not fit" in refusal()
    name, *others = inputs
    save_file({other: inputs[other] for other in others}, file)
    assert f"{file} has no tensor {name}" in refusal()
    save_file(inputs, file)
    plain = shutil.copytree(artifact, tmp_path / "plain.tfgraph")
    (plain / SHARED).unlink()
    assert f"there is no {plain / SHARED}: compile with --shared" in refusal(plain)
