"""The scripts in examples/parts print what they did, and every claim in them holds."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Golden

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "parts"
PARTS = sorted(FOLDER.glob("[0-9]*.py"))
HELPERS = ("running", "showing")


@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.stem)
def test_what_a_part_prints(
    part: Path, golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    try:
        runpy.run_path(str(part), run_name="__main__")
    finally:
        for name in HELPERS:
            sys.modules.pop(name, None)
    printed = capsys.readouterr()
    assert not printed.err
    assert max(map(len, printed.out.splitlines())) <= 100
    golden(f"parts/{part.stem}.txt", printed.out)


def test_there_is_a_golden_output_for_each_and_no_other() -> None:
    kept = {path.stem for path in (ROOT / "tests" / "golden" / "parts").iterdir()}
    assert kept == {part.stem for part in PARTS}


def test_parts_are_short() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {p.stem for p in PARTS} | set(HELPERS)
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) < 60, path.name


def test_the_readme_has_a_row_for_each_in_their_order() -> None:
    table = re.findall(
        r"^\| \[[^]]+\]\(examples/parts/(\w+)\.py\)", (ROOT / "README.md").read_text(), re.M
    )
    assert table == [part.stem for part in PARTS]


def test_there_is_a_file_of_tests_for_each() -> None:
    tested = {path.stem for path in (ROOT / "tests" / "parts").glob("test_*.py")}
    assert tested == {f"test_{part.stem.partition('_')[2]}" for part in PARTS}
