"""Output embedding: the target shifted right, and what its logits depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.part_graphs import IDS, changed
from helpers.part_graphs import X as INPUT

import tfgraph
from tfgraph import blocks
from tfgraph.errors import TfgraphError


def test_a_target_is_shifted_right(run: Any) -> None:
    got = run()["shifted"]
    np.testing.assert_array_equal(got[:, 0], 1)
    np.testing.assert_array_equal(got[:, 1:], IDS[:, :-1])
    np.testing.assert_array_equal(run(INPUT[:, :1], IDS[:, :1])["shifted"], [[1], [1]])


def test_logits_depend_on_the_targets_before_alone(run: Any) -> None:
    want = run()["logits"]
    for n in range(7):
        other = IDS.copy()
        other[:, n] = 0
        found = changed(run(ids=other)["logits"], want)
        assert not found[:, : n + 1].any(), n
        assert found[:, n + 1 :].all(), n


def test_mistakes() -> None:
    with tfgraph.graph("g") as g, pytest.raises(TfgraphError) as caught:
        blocks.shift_right(g.input("ids", "i64", "n"), 1)
    assert caught.value.message == "shift_right: expected ids [batch, seq], got i64[n]"
