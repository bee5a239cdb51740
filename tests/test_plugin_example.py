"""The example package extends tfgraph from outside, installed and as a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from helpers.packages import build

EXAMPLE = Path(__file__).parent / "plugin_example"
MODEL = """
graph signs(%x: f32[batch,8]) {
  symbol batch: 1..100, example 3
  %0 = abs(%x)
  %1 = add(1, %0)
  %spelt = div(%x, %1)
  %2 = neg(%spelt)
  %3 = neg(%2)
  %named = softsign(%3)
  return %named
}
"""
PASSES = "simplify,recover-softsign,dce"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed, and the model beside it."""
    source = tmp_path_factory.mktemp("source") / "example"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path_factory.mktemp("site")
    with ZipFile(build("wheel", source, tmp_path_factory.mktemp("wheel"))) as wheel:
        wheel.extractall(folder)
    (folder / "signs.tfg").write_text(MODEL)
    return folder


def tfgraph(site: Path, *args: str, installed: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line where the example is installed."""
    path = [str(site)] if installed else []
    path += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run(
        [sys.executable, "-m", "tfgraph", *args], cwd=site, env=env, capture_output=True, text=True
    )


def test_the_example_is_small() -> None:
    lines = sum(len(f.read_text().splitlines()) for f in EXAMPLE.rglob("*.py"))
    assert lines + len((EXAMPLE / "pyproject.toml").read_text().splitlines()) < 100


def test_inspect_shows_the_op_and_what_the_rules_did(site: Path) -> None:
    done = tfgraph(site, "inspect", "signs.tfg", "--passes", PASSES)
    assert done.returncode == 0, done.stderr
    assert "%spelt = softsign(%x)" in done.stdout
    assert "neg" not in done.stdout


def test_compile_runs_the_op_through_its_body(site: Path) -> None:
    args = ("compile", "signs.tfg", "--target", "cpu", "--passes", PASSES, "--json")
    done = tfgraph(site, *args)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    applied = {rule: n for p in report["passes"] for rule, n in p["applied"].items()}
    assert applied["double-negation"] == applied["recover-softsign"] == 1
    assert report["verify"]["ok"] is True


@pytest.mark.parametrize("other", ["cpu", "float64"])
def test_compare_takes_the_backend(site: Path, other: str) -> None:
    done = tfgraph(site, "compare", "signs.tfg", "--backends", f"numpy,{other}", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert report["b"] == other


def test_a_file_is_a_plugin_too(site: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        f"import sys; sys.path.insert(0, {str(EXAMPLE)!r})\nimport tfgraph_softsign.ops\n"
    )
    args = ("inspect", str(site / "signs.tfg"), "--plugin", str(plugin))
    done = tfgraph(tmp_path, *args, installed=False)
    assert done.returncode == 0, done.stderr
    assert "%named = softsign(%3)" in done.stdout


def test_without_the_plugin_the_op_is_unknown(site: Path, tmp_path: Path) -> None:
    done = tfgraph(tmp_path, "inspect", str(site / "signs.tfg"), installed=False)
    assert done.returncode == 2
    assert "signs.tfg:9:12: error: unknown op 'softsign'" in done.stderr
