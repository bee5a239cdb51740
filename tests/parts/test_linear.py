"""Linear: per position; surgery on a row of the weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers.part_graphs import WEIGHTS, changed
from helpers.part_graphs import X as INPUT
from helpers.tolerance import assert_close


def test_without_attention_each_position_stands_alone(run: Any) -> None:
    other = INPUT.copy()
    other[1, 3] = np.nan
    found = changed(run(other)["apart"], run()["apart"])
    assert found[1, 3]
    assert found.sum() == 1


def test_surgery_on_a_row_of_weights(run: Any) -> None:
    x = INPUT.copy()
    x[:, ::2, 4] = 0  # where this feature is 0, its row of W does not matter
    found = run(x)
    difference = x[..., 4:5] * WEIGHTS["linear.weight"][4].astype(np.float64)
    assert_close(found["linear"] - found["surgery"], difference, length=24, scale=2.0)
    np.testing.assert_array_equal(found["linear"][:, ::2], found["surgery"][:, ::2])
    assert changed(found["linear"], found["surgery"])[:, 1::2].all()
