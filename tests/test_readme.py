"""What the README and the pages of the docs show runs as it stands."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib import import_module
from pathlib import Path

import pytest
from helpers.checkpoints import CASES
from helpers.tolerance import assert_close

from tfgraph.backends.tvm import lower

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(autouse=True)
def _emitters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that a page registers is gone after the test, and those of our own are there before
    it: they register when their backend is first imported."""
    for backend in ("cpu", "cuda"):
        import_module(f"tfgraph.backends.tvm.{backend}.backend")
    monkeypatch.setattr(lower, "_EMITTERS", dict(lower._EMITTERS))


def blocks(language: str) -> list[tuple[str, str]]:
    """The code blocks of a language with the page they stand on."""
    found = []
    for page in PAGES:
        for i, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)):
            found.append((f"{page.name}-{i}", code))
    return found


@pytest.mark.parametrize(("name", "code"), [pytest.param(*b, id=b[0]) for b in blocks("python")])
def test_python_blocks_run(name: str, code: str, tmp_path: Path) -> None:
    file = tmp_path / "block.py"  # a file, so that places in the user's code can be found
    file.write_text(code)
    # Not with the __future__ of this file.
    exec(compile(code, str(file), "exec", dont_inherit=True), {"__name__": "block"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_commands_of_the_readme_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tfgraph.cli import main

    lines = [shlex.split(line, comments=True)[1:] for line in commands(ROOT / "README.md")]
    assert {line[0] for line in lines} >= {"init", "compile", "run", "compare", "inspect", "import"}
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CASES / "bert", "CHECKPOINT_DIR")
    for line in lines:
        if line[0] == "import":  # in a folder of its own, or it would replace the model
            (tmp_path / "imported").mkdir()
            line[line.index("CHECKPOINT_DIR")] = str(tmp_path / "CHECKPOINT_DIR")
            monkeypatch.chdir(tmp_path / "imported")
        assert main(line) == 0, (line, capsys.readouterr().err)
    made = {path.relative_to(tmp_path).parts[0] for path in tmp_path.iterdir()}
    assert made >= {"model.yaml", "model.cpu.tfgraph", "model.cuda.tfgraph", "out"}
    assert list((tmp_path / "out").glob("*.npy"))
    assert list((tmp_path / "model.cuda.tfgraph").rglob("*.cu"))
    assert (tmp_path / "imported" / "model.yaml").exists()


def commands(page: Path) -> list[str]:
    """The lines of a page that begin with `tfgraph `."""
    return [line for line in page.read_text().splitlines() if line.startswith("tfgraph ")]


def test_commands_are_verbs_that_exist() -> None:
    from typer.testing import CliRunner

    from tfgraph.cli.app import app

    shown = {line.split()[1] for page in PAGES for line in commands(page)}
    for verb in sorted(shown):
        assert CliRunner().invoke(app, [verb, "--help"]).exit_code == 0, verb


@pytest.mark.parametrize(
    ("name", "code"), [pytest.param(*b, id=b[0]) for b in blocks("python") if "extending" in b[0]]
)
def test_blocks_of_the_page_on_extending_are_plugins(
    name: str, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tfgraph.plugins import load_plugins

    (tmp_path / "block.py").write_text(code)
    load_plugins([tmp_path / "block.py"])
    assert not caplog.records


EXTENDED = """
graph g(%x: f32[a,b,8], %y: f32[n], %z: f32[n]) {
  %0 = softsign(%x)
  %1 = softclip(%y) {bound=2.5}
  %2 = add(%z, %1)
  %3 = neg(%2)
  %4 = neg(%3)
  %5 = softsign(%4)
  return %0, %5
}
"""


def test_the_op_the_pass_and_the_kernel_of_the_page_on_extending_work(tmp_path: Path) -> None:
    import numpy as np

    import tfgraph

    files = []
    for name, code in blocks("python"):
        if name.startswith("extending"):
            files.append(tmp_path / f"{name}.py")
            files[-1].write_text(code)
    tfgraph.load_plugins(files)
    graph = tfgraph.parse_graph(EXTENDED)
    passes = "sort-operands{reverse=true},sort-operands,double-negation,dce"
    report = tfgraph.build(graph, "cpu", tmp_path / "g.cpu.tfgraph", passes=passes)
    assert [p.applied for p in report.passes[:2]] == [{}, {"sorted": 1}]
    applied = {p.name: p.applied for p in report.passes}
    assert applied["double-negation"] == {"double-negation": 1}
    assert applied["lower"]["softsign"] == 2  # one kernel, for two shapes
    assert "softclip" not in applied["lower"]  # through its body
    assert report.verification.ok
    assert report.artifact is not None
    with tfgraph.load(report.artifact) as model:
        given = model.example({"a": 3, "b": 5, "n": 7})
        got = model(**given)
    x, y, z = (given[name].astype(np.float64) for name in "xyz")
    clipped = z + 2.5 * np.tanh(y / 2.5)
    assert_close(got["0"], x / (1 + np.abs(x)), length=2)
    assert_close(got["5"], clipped / (1 + np.abs(clipped)), length=2)


def test_the_graph_of_the_page_on_the_ir_is_what_is_printed() -> None:
    from tfgraph.text import parse_graph, print_graph

    (text,) = re.findall(r"```\n(graph .*?)```", (ROOT / "docs" / "ir.md").read_text(), re.S)
    assert print_graph(parse_graph(text)) == text
