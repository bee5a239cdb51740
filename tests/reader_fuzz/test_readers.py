"""The readers on what they are given and a few changes of it, and the judge on readers that are
wrong. `make readers` does the same for as long as it is told, guided by what was reached."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reader_fuzz import seeds
from reader_fuzz.judge import Finding, judge
from reader_fuzz.mutations import MUTATORS
from reader_fuzz.targets import TARGETS

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = {"text": 20, "yaml": 20, "checkpoint": 20, "tokenizer": 10, "arrays": 60}
"""How many are tried. ONNX's own are in tests/onnx, a manifest's in tests/test_manifest.py."""


@pytest.mark.parametrize("target", COUNTS)
def test_a_few_changes(tmp_path: Path, target: str) -> None:
    r = random.Random(11)
    read, mutate, given = TARGETS[target], MUTATORS[target], seeds.SEEDS[target]()
    small = sorted(given, key=len)[: len(given) // 2 + 1]
    for _ in range(COUNTS[target]):
        data = r.choice(small)
        for _ in range(r.randrange(3)):
            data = mutate(data, r, lambda part: plain_bytes(part, r))
        finding = judge(read, tmp_path, data)
        assert finding is None, f"{data[:500]!r}\n{finding.trace}"


def plain_bytes(data: bytes, r: random.Random) -> bytes:
    """What libFuzzer does in `make readers`."""
    changed = bytearray(data or b"\0")
    at = r.randrange(len(changed))
    changed[at : at + r.choice((0, 1, 1, 4))] = r.choice((b"", b"\0", b"\xff", b"{", b"9", b"\n"))
    return bytes(changed)


def test_all_have_what_fuzzing_needs() -> None:
    assert set(TARGETS) == set(MUTATORS) == set(seeds.SEEDS) == {*COUNTS, "onnx", "manifest"}


def test_seeds_are_read(tmp_path: Path) -> None:
    """They reach beyond the first check: they are what the readers are for."""
    for target in ("text", "yaml", "checkpoint", "tokenizer"):
        for data in seeds.SEEDS[target]()[:8]:
            TARGETS[target](tmp_path, data)


def wrong_key(_: Path, data: bytes) -> object:
    return {}[data]


def loops(_: Path, data: bytes) -> object:
    while data:
        pass
    return None


def swallows(folder: Path, data: bytes) -> object:
    """Even where it takes any exception for bad input."""
    try:
        return loops(folder, data)
    except Exception as cause:
        raise TfgraphError("bad") from cause


def prints(_: Path, data: bytes) -> object:
    print(data)
    raise TfgraphError("bad")


def writes(folder: Path, data: bytes) -> object:
    return (folder / "more").write_bytes(data)


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (wrong_key, "KeyError"),
        (loops, "TooSlow"),
        (swallows, "TooSlow"),
        (prints, "Printed"),
        (writes, "Wrote"),
    ],
)
def test_the_judge(tmp_path: Path, read: Callable[[Path, bytes], object], kind: str) -> None:
    finding = judge(read, tmp_path, b"x", seconds=0.05)
    assert isinstance(finding, Finding)
    assert finding.kind == kind


def test_the_judge_takes_what_is_refused(tmp_path: Path) -> None:
    def refuses(_: Path, data: bytes) -> object:
        raise TfgraphError(f"no {data!r}")

    assert judge(refuses, tmp_path, b"x") is None
