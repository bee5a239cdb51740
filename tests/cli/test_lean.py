"""`run`, `generate` and `inspect --attention` of an artifact are parsed in two ways, with typer and
past it: alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from helpers.small_model import build_small

from tfgraph.cli.lean import attention_parser, generate_parser, run_parser

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("lean"))


def test_both_parsers_know_the_same_options() -> None:
    import typer

    from tfgraph.cli.app import app

    command: Any = typer.main.get_command(app)
    of_models = {"--target", "--dtype", "--trace", "--version", "model", "artifact"}
    of_graphs = {"--format", "-f", "--fused", "--passes", "--strict-masks"}
    of_graphs |= {"--fusion", "--cost", "--memory", "--dim"}
    parsers = {
        "run": run_parser(),
        "generate": generate_parser(),
        "inspect": attention_parser(),
    }
    for verb, made in parsers.items():
        known = command.commands[verb].params
        whole = {option for p in known for option in (*p.opts, *p.secondary_opts)}
        lean = {option for action in made._actions for option in action.option_strings}
        left = of_models | (of_graphs if verb == "inspect" else set())
        assert lean == whole - left - {"--help", "-h"}, verb


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
