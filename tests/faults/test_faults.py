"""Faults that a seed draws are planted one at a time, and the first culprit is named rightly."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest
from faults.draw import COUNT, KINDS, OF_EACH, fault

from tfgraph.cli import main
from tfgraph.fuzz.culprit import save_kernel


def test_there_are_enough_of_each_kind() -> None:
    kinds = Counter(fault(0, number).kind for number in range(COUNT))
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= OF_EACH


@pytest.mark.long
@pytest.mark.parametrize("number", range(COUNT))
def test_a_fault_is_named(number: int, fault_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = fault(fault_seed, number)
    found = planted.find(monkeypatch)
    assert found is not None, planted
    assert planted.right(found), f"{planted}\n{found}"


@pytest.mark.parametrize("number", [4, 5, 6])
def test_a_rule_a_node_and_a_weight_are_named(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of the faults, so that the plain run has some."""
    planted = fault(0, number)
    found = planted.find(monkeypatch)
    assert found is not None, planted
    assert planted.right(found), f"{planted}\n{found}"


@pytest.mark.long
def test_a_kernel_is_named_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the faults; what is saved stands alone, and shows it again."""
    planted = fault(0, 1)
    found = planted.find(monkeypatch)
    assert found is not None
    assert planted.right(found), found
    saved = save_kernel(found, tmp_path, seconds=2)
    assert saved is not None
    assert saved.compare is not None
    assert saved.model.is_file()
    command = shlex.split(saved.compare)
    assert command[:2] == ["tfgraph", "compare"]
    assert main([*command[1:], "--save", str(tmp_path / "again"), "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["first_divergence"]
    assert (first["kind"], first["op"]) == ("kernel", found.op)
