"""docs/deploy.md: an artifact runs where only what that page lists is installed, and in C++."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.artifacts import ROOT
from helpers.small_model import small_model

import tfgraph
from tfgraph.backends.base import Target
from tfgraph.cli.lean import generate_parser, run_parser
from tfgraph.runtime.format import SHARED

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = (ROOT / "docs" / "deploy.md").read_text()
EXAMPLE = ROOT / "examples" / "deploy"
LEAN = ("numpy", "numpy.libs", "tvm_ffi", "tvm_ffi_orcjit", "typing_extensions.py")
COMPILER = shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH")


def package(name: str) -> Path:
    """The folder of an installed package."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0])


RUNTIME = package("tvm") / "lib" / "libtvm_runtime.so"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deploy") / "small.tfgraph"
    target = Target("cpu", shared=COMPILER is not None)
    tfgraph.build(small_model(), target, folder, check=False)
    return folder


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of links to what an artifact needs, to import from instead of site-packages."""
    folder = tmp_path_factory.mktemp("lean")
    site = package("numpy").parent
    for name in LEAN:
        if (site / name).exists():  # some builds of NumPy bring no libraries
            (folder / name).symlink_to(site / name)
    (folder / "tfgraph").symlink_to(ROOT / "tfgraph")
    return folder


def run(lean: Path, arguments: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Python without site-packages (-S), which imports from the lean folder alone."""
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH",)}
    return subprocess.run(
        [sys.executable, "-S", *arguments], capture_output=True, text=True, check=False,
        env={**clean, "PYTHONPATH": str(lean), **env},
    )  # fmt: skip


LOAD = """if True:
    import sys
    import tfgraph
    with tfgraph.load(sys.argv[1]) as model:
        out = model(**model.example({"batch": 1, "seq": 9}))
    print(out["logits"].tobytes().hex())
    print(*sorted(sys.modules), file=sys.stderr)"""
VERB = """if True:
    import sys
    from tfgraph.cli import main
    code = main(["run", sys.argv[1], "--json", "--no-verify-weights", "--dim", "seq=9"])
    print(*sorted(sys.modules), file=sys.stderr)
    sys.exit(code)"""


@pytest.mark.parametrize("code", [LOAD, VERB])
def test_an_artifact_runs_with_what_the_page_lists(artifact: Path, lean: Path, code: str) -> None:
    done = run(lean, ["-c", code, str(artifact)], TFGRAPH_TVM_RUNTIME=str(RUNTIME))
    assert done.returncode == 0, done.stderr
    tops = {name.partition(".")[0] for name in done.stderr.split()} - set(sys.stdlib_module_names)
    own = {"numpy", "tvm_ffi", "tvm_ffi_orcjit", "typing_extensions", "tfgraph"}
    hidden = {"__main__", "cython_runtime", "_cython_3_2_4"}  # made by compiled modules
    assert {top for top in tops - own - hidden if not top.startswith("_")} == set()
    ours = {name for name in done.stderr.split() if name.startswith("tfgraph.")}
    allowed = ("tfgraph.runtime", "tfgraph.errors", "tfgraph.cli")
    assert [name for name in ours if not name.startswith(allowed)] == []
    if code == LOAD:
        assert not [name for name in ours if name.startswith("tfgraph.cli")]
        with tfgraph.load(artifact) as model:
            out = model(**model.example({"batch": 1, "seq": 9}))
        assert done.stdout.strip() == out["logits"].tobytes().hex()


@pytest.mark.parametrize("code", [LOAD, VERB])
def test_a_full_installation_imports_no_more(artifact: Path, code: str) -> None:
    """Nor does it where all else could be imported (ml_dtypes by tvm_ffi, where it is there)."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(artifact)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    tops = {name.partition(".")[0] for name in done.stderr.split()} - set(sys.stdlib_module_names)
    site = {path.name.removesuffix(".py") for path in package("numpy").parent.iterdir()}
    allowed = {"numpy", "tvm_ffi", "tvm_ffi_orcjit", "typing_extensions", "ml_dtypes", "torch"}
    assert {top for top in tops & site - allowed if not top.startswith("_")} == set()


def test_where_the_runtime_library_is_found(artifact: Path, lean: Path, tmp_path: Path) -> None:
    verb = ["-m", "tfgraph", "run", str(artifact), "-q"]
    missing = run(lean, verb)
    assert missing.returncode == 3
    assert missing.stderr.splitlines() == [
        "error: TVM's runtime library, libtvm_runtime.so, is not here",
        "hint: pip install apache-tvm, or name the file in TFGRAPH_TVM_RUNTIME",
    ]
    wrong = run(lean, verb, TFGRAPH_TVM_RUNTIME=str(tmp_path / "nothing.so"))
    assert wrong.returncode == 3
    assert "(TFGRAPH_TVM_RUNTIME)" in wrong.stderr
    assert str(tmp_path / "nothing.so") in wrong.stderr
    shutil.copy(RUNTIME, tmp_path)
    named = run(lean, verb, TFGRAPH_TVM_RUNTIME=str(tmp_path / RUNTIME.name))
    searched = run(lean, verb, LD_LIBRARY_PATH=str(tmp_path))
    assert (named.returncode, searched.returncode) == (0, 0), named.stderr + searched.stderr
    assert named.stdout == searched.stdout


def test_other_commands_say_what_they_lack(artifact: Path, lean: Path, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("kind: encoder\n")
    for arguments in (
        ["compile", "m.yaml"],
        ["run", str(artifact), "--help"],
        ["run", str(tmp_path / "model.yaml")],
        ["run", "graphs.py:name"],
        ["doctor"],
    ):
        done = run(lean, ["-m", "tfgraph", *arguments])
        assert done.returncode == 3
        assert done.stderr == (
            "error: typer is not installed\n"
            "hint: pip install typer, or tfgraph without --no-deps; artifacts run without it\n"
        )
    less = tmp_path / "less"
    less.mkdir()
    for path in lean.iterdir():
        if path.name != "tvm_ffi_orcjit":
            (less / path.name).symlink_to(path.resolve())
    done = run(less, ["-m", "tfgraph", "run", str(artifact)])
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        3,
        "error: apache-tvm-ffi-orcjit is not installed",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "nothing: no such artifact"),
        (["no/thing.tfgraph", "--json"], "no/thing.tfgraph: no such artifact"),
        (["ARTIFACT", "--sed", "1"], "run: unrecognized arguments: --sed 1"),
        (["ARTIFACT", "--seed"], "run: argument --seed: expected one argument"),
        ([], "run: the following arguments are required: model"),
    ],
)
def test_mistakes_are_told_without_typer(
    artifact: Path, lean: Path, arguments: list[str], message: str
) -> None:
    given = [str(artifact) if word == "ARTIFACT" else word for word in arguments]
    done = run(lean, ["-m", "tfgraph", "run", *given])
    assert done.returncode == 2
    assert message in done.stdout + done.stderr
    assert "typer" not in done.stdout + done.stderr


def test_the_version_is_told_without_typer(lean: Path) -> None:
    done = run(lean, ["-m", "tfgraph", "--version"])
    assert (done.returncode, done.stdout) == (0, f"tfgraph {tfgraph.__version__}\n")


COMPILING = """if True:
    import sys
    import tfgraph
    graph = tfgraph.parse_graph("graph g(%x: f32[3]) {\\n  %y = exp(%x)\\n  return y=%y\\n}\\n")
    for source in (sys.argv[1], graph):
        for use in (tfgraph.compile, tfgraph.build, tfgraph.compare):
            try:
                use(source)
            except tfgraph.MissingTool as error:
                print(error.message, "|", error.hint)"""


def test_the_python_api_says_what_it_lacks(lean: Path, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("kind: encoder\n")
    done = run(lean, ["-c", COMPILING, str(tmp_path / "model.yaml")])
    assert done.returncode == 0, done.stderr
    hint = "or tfgraph without --no-deps; artifacts run without it"
    names = ["pydantic"] * 3 + ["apache-tvm"] * 3
    assert done.stdout.splitlines() == [
        f"{name} is not installed | pip install {name}, {hint}" for name in names
    ]


# The two ways that `run ARTIFACT` is parsed


def test_both_parsers_know_the_same_options() -> None:
    import typer

    from tfgraph.cli.app import app

    command: Any = typer.main.get_command(app)
    of_models = {"--target", "--trace", "--version", "model", "artifact"}
    for verb, made in (("run", run_parser()), ("generate", generate_parser())):
        known = command.commands[verb].params
        whole = {option for p in known for option in (*p.opts, *p.secondary_opts)}
        lean = {option for action in made._actions for option in action.option_strings}
        assert lean == whole - of_models - {"--help", "-h"}, verb


@pytest.mark.parametrize(
    "line",
    [
        "--dim seq=5 --dim=batch=2 --seed 3 --threads 1 --json",
        "-q --no-verify-weights",
        "-vq --no-color --verify-weights",
        "--seed 1 --seed 2 --json --plugin nothing.py",
        "--dim seq=0",
        "--dim",
        "--threads 0",
        "--seed -1",
        "--seed x",
        "--bogus",
        "extra",
        "--trace",
        "--inp ids=x.npy",
        "--input ids=x.npy",
    ],
)
def test_both_parsers_do_the_same(
    line: str, artifact: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfgraph.cli import lean, main

    found = []
    for way in ("lean", "typer"):
        if way == "typer":
            monkeypatch.setattr(lean, "run_lean", lambda *_: None)
        code = main(["run", str(artifact), *line.split()])
        found.append((code, *capfd.readouterr()))
    assert found[0] == found[1]


# C++


def blocks(language: str) -> list[str]:
    """The code blocks of the page in that language, without their indentation."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE, re.M | re.S)
    return [re.sub(rf"^{indent}", "", text, flags=re.M) for indent, text in found]


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


# The page


def test_the_check_of_hashes_without_python(artifact: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(artifact, tmp_path / "copy.tfgraph")
    line = ["bash", "-c", f"set -o pipefail; {blocks('sh')[1]}"]
    whole = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert (whole.returncode, whole.stdout) == (0, "")
    with (folder / "kernels" / "0.o").open("ab") as file:
        file.write(b"\0")
    damaged = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert damaged.returncode == 1
    assert damaged.stdout.startswith("kernels/0.o: FAILED")


def size(path: Path) -> float:
    """Megabytes (10^6) of a file or of all files in a folder."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    kept = [p for p in files if "__pycache__" not in p.parts]
    return sum(p.stat().st_size for p in kept) / 1e6


def test_the_sizes_on_the_page_are_those_installed_here() -> None:
    site = package("numpy").parent
    installed = {
        "libtvm_runtime": size(RUNTIME),
        "apache-tvm-ffi=": size(package("tvm_ffi")) + size(site / "typing_extensions.py"),
        "apache-tvm-ffi-orcjit": size(package("tvm_ffi_orcjit")),
        "numpy": size(package("numpy")) + size(site / "numpy.libs"),
        "tfgraph itself": sum(size(ROOT / n) for n in ("tfgraph", "passes", "backends")),
    }
    for name, actual in installed.items():
        (row,) = (r for r in PAGE.splitlines() if r.startswith("|") and name in r.split("|")[1])
        told = float(row.split("|")[3].split()[0])
        assert abs(told - actual) < 0.2 * actual + 0.1, (name, actual)
    assert f"`libtvm_ffi.so` ({size(package('tvm_ffi') / 'lib' / 'libtvm_ffi.so'):.1f} MB)" in PAGE
