"""Reshapes whose sizes are products of sums of symbols: views, whatever the compiler can prove of
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfgraph
from tfgraph import ops

Array = np.ndarray[Any, Any]


def shifted() -> Any:
    """Rows of 2 seq numbers read as rows of 2 seq - 1, from number seq - 1 on: [batch, 4, s, s]."""
    with ops.graph("shifted") as g:
        batch, seq = g.symbol("batch", 1, 9, 2), g.symbol("seq", 1, 40, 5)
        x = g.input("x", "f32", batch, 4, seq, 2 * seq)
        flat = ops.reshape(ops.neg(x), shape=(batch, 4, 2 * seq * seq))
        flat = ops.slice_(flat, axis=2, start=seq - 1, stop=seq - 1 + seq * (2 * seq - 1))
        rows = ops.reshape(flat, shape=(batch, 4, seq, 2 * seq - 1))
        g.output("whole", rows)
        g.output("y", ops.slice_(rows, axis=3, start=0, stop=seq))
    return g.build()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_rows_of_another_length(backend: str) -> None:
    run = tfgraph.compile(shifted(), backend)
    for batch, seq in ((1, 1), (2, 5), (3, 40)):
        x = np.random.default_rng(0).normal(size=(batch, 4, seq, 2 * seq)).astype(np.float32)
        kept = x.copy()
        got = run(x=x)
        i, j = np.arange(seq)[:, None], np.arange(seq)
        np.testing.assert_array_equal(got["y"], -x[:, :, i, seq - 1 + j - i])
        assert got["whole"].shape == (batch, 4, seq, 2 * seq - 1)
        np.testing.assert_array_equal(got["whole"][..., :seq], got["y"])
        got["whole"][...] = 7  # a result belongs to the caller
        np.testing.assert_array_equal(x, kept)
        assert (run(x=x)["y"] == got["y"]).all()
