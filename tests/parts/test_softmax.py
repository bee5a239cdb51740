"""Softmax: any row, and temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.formulas import (
    softmax,
)
from helpers.part_graphs import WIDTH
from helpers.part_graphs import X as INPUT
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.ops import graph


def test_softmax_of_any_row(run: Any) -> None:
    x = INPUT.copy()
    x[0, 0], x[0, 1, 0], x[0, 2, :5] = 1e4, -1e4, -np.inf
    x[0, 3, 1], x[0, 4, 2], x[0, 5, :] = np.inf, np.nan, -np.inf
    got = run(x)["softmax"]
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(wide - wide.max(-1, keepdims=True))
        want = e / e.sum(-1, keepdims=True)
    want[0, 5] = 0  # nothing is allowed: ONNX has NaN
    assert_close(got, want, length=32)
    assert (got[0, 2, :5] == 0).all()
    assert np.isnan(got[0, 3:5]).all()
    sums = np.delete(got.reshape(-1, WIDTH), [3, 4, 5], 0).sum(-1)
    assert_close(sums, np.ones(11), length=24)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_the_temperature_goes_from_all_alike_to_the_largest(backend: str) -> None:
    x = INPUT[0].astype(np.float64)
    with graph("g") as g:
        given = g.input("x", "f32", "rows", WIDTH)
        for t in (1024, 1, 1 / 4096):
            g.output(f"{t}", ops.softmax(given * (1 / t)))
    found = tfgraph.compile(g.build(), backend)(x=INPUT[0])
    assert_close(found["1024"], softmax(x / 1024), length=64)
    assert np.abs(found["1024"] - 1 / WIDTH).max() < 1e-3
    np.testing.assert_array_equal(found[f"{1 / 4096}"], np.eye(WIDTH)[x.argmax(-1)])
