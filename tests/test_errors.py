"""How an error is rendered: the part of a long line around the caret."""

from __future__ import annotations

import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pytest

from tfgraph import errors
from tfgraph.errors import Location, TfgraphError, nearest, render


@pytest.mark.parametrize("column", [1, 2, 40, 71, 72, 73, 100, 250, 399, 400, 401])
def test_the_caret_stands_under_its_letter_in_a_narrow_window(tmp_path: Path, column: int) -> None:
    line = "".join(chr(ord("a") + i % 26) for i in range(399)) + "!"
    file = tmp_path / "m.tfg"
    file.write_text(f"first\n{line}\n")
    _, shown, caret = render(TfgraphError("wrong", Location(str(file), 2, column))).splitlines()
    assert max(len(shown), len(caret)) <= 80
    at = caret.index("^")
    around = slice(max(column - 3, 0), column + 2)
    begin = at - (column - 1 - around.start)
    assert shown[begin:].startswith(line[around])


def test_a_short_line_is_shown_whole(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("  heads: seven\n")
    text = render(TfgraphError("expected an integer", Location(str(file), 1, 10), "a hint"))
    assert text == (
        f"{file}:1:10: error: expected an integer\n      heads: seven\n             ^\nhint: a hint"
    )


def test_a_traceback_names_the_class_and_does_not_say_error_again() -> None:
    error = TfgraphError("wrong", Location("m.yaml", 3, 1), "a hint", [TfgraphError("also")])
    assert str(error) == "m.yaml:3:1: wrong\nhint: a hint\nalso"
    assert render(error) == "m.yaml:3:1: error: wrong\nhint: a hint\nerror: also"
    shown = "".join(traceback.format_exception_only(error))
    assert shown.startswith("tfgraph.errors.TfgraphError: m.yaml:3:1: wrong\n")


def test_of_many_names_a_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files may hold a million names, or long ones: a comparison of two takes their product."""
    compared: list[int] = []

    def counted(word: str, names: list[str], **options: Any) -> list[str]:
        compared.append(len(names))
        return get_close_matches(word, names, **options)

    monkeypatch.setattr(errors, "get_close_matches", counted)
    names = [f"layers.{i}.self_attn.{n}_proj.weight" for i in range(5_000) for n in "qkv"]
    assert nearest("layers.77.self_attn.q_prj.weight", names) == (
        "did you mean 'layers.77.self_attn.q_proj.weight'?"
    )
    assert nearest("softmx", [*names, "softmax"]) == "did you mean 'softmax'?"
    assert compared == [100, 1]
    assert nearest("x" * 300, ["x" * 299]) is None
    assert nearest("layers.1.q", [str(i) for i in range(200_000)]) is None
    assert len(compared) == 2
