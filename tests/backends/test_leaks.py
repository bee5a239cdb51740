"""Nothing is left behind: memory, files and threads over many calls of many lengths, and over many
loads. Each in a process of its own, whose memory nothing else changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from helpers.processes import python

if TYPE_CHECKING:
    from pathlib import Path

MARGIN = 6 << 20
"""Bytes by which the resident size may grow after the warm-up: what malloc keeps free moves by
four. A leak of one output of the longest call, [4, 500, 90] of float32, is a tenth of it."""

CALLS = """if True:
    import json, sys
    import tfgraph
    from helpers.processes import descriptors, os_threads, resident
    model = tfgraph.load(sys.argv[1])
    lengths = [1 + 509 * i // 49 for i in range(50)]
    inputs = [model.example({"batch": 4, "seq": n}) for n in lengths]
    for _ in range(3):  # the longest alone: an allocator that kept a list for each size would
        model(**inputs[-1])  # grow when the others follow
    grown, before = [], (resident(), descriptors(), len(os_threads()))
    for i in range(int(sys.argv[2])):
        model(**inputs[i * 7 % 50])
        if i % 25 == 24:
            grown.append(resident() - before[0])
    print(json.dumps([grown, before[1:], [descriptors(), len(os_threads())]]))"""

LOADS = """if True:
    import gc, json, sys
    import tfgraph
    from helpers.processes import descriptors, os_threads, resident
    first = tfgraph.load(sys.argv[1])
    inputs = first.example({"batch": 4, "seq": 65})

    def load(close):
        model = tfgraph.load(sys.argv[1])
        model(**inputs)
        if close:
            model.close()

    for _ in range(20):
        load(True)
    grown, before = [], (resident(), descriptors(), len(os_threads()))
    for i in range(int(sys.argv[2])):
        load(i % 2)  # every other one is dropped without being closed
        gc.collect()
        grown.append(resident() - before[0])
    print(json.dumps([grown, before[1:], [descriptors(), len(os_threads())]]))"""


def check(code: str, artifact: Path, times: int) -> None:
    grown, before, after = json.loads(python(code, str(artifact), str(times), timeout=600))
    assert after == before, "open files and threads"
    assert max(grown) < MARGIN, [round(size / 2**20, 1) for size in grown]


def test_calls_of_many_lengths(artifact: Path) -> None:
    check(CALLS, artifact, 600)


@pytest.mark.long
def test_ten_thousand_calls(artifact: Path) -> None:
    check(CALLS, artifact, 10_000)


def test_loading_again_and_again(artifact: Path) -> None:
    check(LOADS, artifact, 100)


@pytest.mark.long
def test_loading_a_thousand_times(artifact: Path) -> None:
    check(LOADS, artifact, 1000)
