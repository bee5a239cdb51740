"""docs/deploy.md: an artifact runs from C++, by the program in examples/deploy."""

from __future__ import annotations

import json
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
from safetensors.numpy import save_file

import tfgraph
from tfgraph.backends.base import Target
from tfgraph.runtime.format import SHARED

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = np.ndarray[Any, np.dtype[Any]]
EXAMPLE = ROOT / "examples" / "deploy"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shared(tmp_path_factory.mktemp("deploy") / "small.tfgraph")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the commands of the page."""
    folder = tmp_path_factory.mktemp("program")
    shutil.copy(EXAMPLE / "main.cc", folder)
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


def test_the_program_is_short() -> None:
    """All of its source, whatever was built beside it."""
    sources = [*EXAMPLE.glob("*.cc"), *EXAMPLE.glob("*.h")]
    lines = [line for file in sources for line in file.read_text().splitlines()]
    assert len(lines) < 80
    assert max(map(len, lines)) <= 100


def execute(program: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    line = [str(program), *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=env)


def outputs(
    program: Path, artifact: Path, inputs: Mapping[str, Array], *sizes: str, **env: str
) -> dict[str, Array]:
    """What the program makes of these inputs: the bytes that it writes, as it describes them."""
    file, written = program.with_name("in.safetensors"), program.with_name("out.bin")
    save_file(dict(inputs), file, metadata={"from": "a test"})
    done = execute(program, artifact, file, written, *sizes, **env)
    assert done.returncode == 0, done.stderr
    data, found = written.read_bytes(), dict[str, Array]()
    for line in done.stdout.splitlines():
        name, _, kind = line.partition(": ")
        dtype, _, shape = kind.partition("[")
        found[name] = np.ndarray(json.loads(f"[{shape}"), dtype, data)
        data = data[found[name].nbytes :]
    assert data == b""
    return found


def check_bits(found: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    assert list(found) == list(want)
    for name, array in want.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes(), name


@needs_compiler
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_program_in_cpp_gives_the_same_bits(artifact: Path, program: Path, threads: str) -> None:
    """Inputs of two sizes, in files whose tensors are aligned and not; several outputs."""
    env = {"TVM_BIND_THREADS": "0", "TVM_NUM_THREADS": threads}
    for sizes in ({"batch": 1, "seq": 1}, {"batch": 2, "seq": 67}):
        with tfgraph.load(artifact) as model:
            inputs = model.example(sizes)
            want = model(**inputs)
        check_bits(outputs(program, artifact, inputs, **env), want)


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
def test_the_program_takes_and_gives_every_dtype(program: Path, tmp_path: Path) -> None:
    folder = built_for_cpp(tmp_path, EVERY_DTYPE)
    inputs: dict[str, Array] = {
        "i": np.array([-(2**63), 2**63 - 1, 0]),
        "j": np.array([-(2**31), 2**31 - 1, -1], np.int32),
        "k": np.array([-128, 127, -1], np.int8),
        "u": np.array([0, 255, 7], np.uint8),
        "b": np.array([True, False, True]),
        "f": np.array([1e-45, -0.0, 3.4e38], np.float32),
    }
    want = {name: inputs[name] for name in "ijkub"} | {"c": ~inputs["b"], "f": inputs["f"]}
    check_bits(outputs(program, folder, inputs), want)


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
    folder = built_for_cpp(tmp_path, IDS)
    wrong = np.array([-1, 4, 2, -(2**62), 2**62, 3])
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    inputs = {"ids": wrong, "at": np.clip(wrong, -(2**31), 2**31 - 1).astype(np.int32)}
    inputs |= {"table": table, "x": table.T.copy()}
    near = table[np.clip(wrong, 0, 3)]
    check_bits(outputs(program, folder, inputs), {"e": near, "t": near.T})
    with tfgraph.load(folder) as model, pytest.raises(tfgraph.TfgraphError, match="holds"):
        model(**inputs)


@needs_compiler
def test_the_program_takes_sizes_that_no_input_tells(program: Path, tmp_path: Path) -> None:
    """By their names, in any order."""
    folder = built_for_cpp(
        tmp_path,
        "graph g(%x: f32[2*n], %z: f32[3*m]) {\n"
        "  symbol n: 1..9, example 3\n  symbol m: 1..9, example 3\n"
        "  %y = exp(%x)\n  %w = exp(%z)\n  return y=%y, w=%w\n}\n",
    )
    inputs = {"x": np.linspace(-1, 1, 8, dtype=np.float32), "z": np.ones(15, np.float32)}
    with tfgraph.load(folder) as model:
        want = model(**inputs, dims={"n": 4, "m": 5})
    for sizes in (["n=4", "m=5"], ["m=5", "n=4"]):
        check_bits(outputs(program, folder, inputs, *sizes), want)
    file = program.with_name("in.safetensors")
    refused = execute(program, folder, file, tmp_path / "out.bin", "n=4", "mm=5")
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
    done = execute(program, folder, "nothing", "nowhere")
    assert done.returncode == 1
    assert done.stderr.endswith(f"{message}\n")


@needs_compiler
def test_the_program_says_what_is_missing(artifact: Path, program: Path, tmp_path: Path) -> None:
    file, written = tmp_path / "in.safetensors", tmp_path / "out.bin"
    with tfgraph.load(artifact) as model:
        inputs = model.example({"batch": 1, "seq": 2})

    def refusal(folder: Path = artifact, written: Path = written) -> str:
        done = execute(program, folder, file, written)
        assert done.returncode == 1
        assert not written.exists()
        return done.stderr

    assert "expected ARTIFACT INPUTS" in execute(program, artifact, file).stderr
    assert f"No such file or directory [{file}]" in refusal()
    save_file(inputs, file)
    data = file.read_bytes()
    for damaged in (b"", data[:5], data[:30], b"\xff" * 8 + data[8:]):
        file.write_bytes(damaged)
        assert f"{file} is no safetensors file" in refusal()
    file.write_bytes(b"\0" * 8 + data[8:])
    assert "Expecting value" in refusal()
    name, *others = inputs
    file.write_bytes(data[:-1])
    assert f"{file}: {others[-1]} is no whole int64" in refusal()
    for dtype in (np.float64, np.int32, np.bool_):
        save_file({**inputs, name: inputs[name].astype(dtype)}, file)
        assert f"{file}: {name} is no whole int64" in refusal()
    save_file({other: inputs[other] for other in others}, file)
    assert f"{file} has no tensor {name}" in refusal()
    save_file(inputs, file)
    assert "cannot write" in refusal(written=tmp_path / "none" / "out.bin")
    plain = shutil.copytree(artifact, tmp_path / "plain.tfgraph")
    (plain / SHARED).unlink()
    assert f"there is no {plain / SHARED}: compile with --shared" in refusal(plain)
