"""docs/deploy.md: an artifact runs where only what that page lists is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.artifacts import ROOT
from helpers.deploying import PAGE, RUNTIME, blocks, build_shared, package

import tfgraph

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAN = ("numpy", "numpy.libs", "tvm_ffi", "tvm_ffi_orcjit", "typing_extensions.py")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shared(tmp_path_factory.mktemp("deploy") / "small.tfgraph")


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
                print(error.message, "|", error.hint)
    tfgraph.load_plugins, tfgraph.blocks
    try:
        tfgraph.load_source(sys.argv[1])
    except tfgraph.MissingTool as error:
        print("load_source |", error.message)"""


def test_the_python_api_says_what_it_lacks(lean: Path, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("kind: encoder\n")
    done = run(lean, ["-c", COMPILING, str(tmp_path / "model.yaml")])
    assert done.returncode == 0, done.stderr
    hint = "or tfgraph without --no-deps; artifacts run without it"
    names = ["pydantic"] * 3 + ["apache-tvm"] * 3
    assert done.stdout.splitlines() == [
        *(f"{name} is not installed | pip install {name}, {hint}" for name in names),
        "load_source | pydantic is not installed",
    ]


# The page


def test_the_check_of_hashes_without_python(artifact: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(artifact, tmp_path / "copy.tfgraph")
    line = ["bash", "-c", f"set -o pipefail; {blocks('sh')[1]}"]
    whole = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert (whole.returncode, whole.stdout) == (0, "")
    with (folder / "kernels" / "main.o").open("ab") as file:
        file.write(b"\0")
    damaged = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert damaged.returncode == 1
    assert damaged.stdout.startswith("kernels/main.o: FAILED")


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
