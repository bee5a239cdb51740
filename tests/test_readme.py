"""What the README and the pages of the docs show runs as it stands."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from helpers.checkpoints import CASES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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
    exec(compile(code, str(file), "exec"), {"__name__": "block"})


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


def test_the_graph_of_the_page_on_the_ir_is_what_is_printed() -> None:
    from tfgraph.text import parse_graph, print_graph

    (text,) = re.findall(r"```\n(graph .*?)```", (ROOT / "docs" / "ir.md").read_text(), re.S)
    assert print_graph(parse_graph(text)) == text
