"""Input embedding: scaled, factorised, with token types; ids out of range."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.formulas import (
    params,
)
from helpers.part_graphs import IDS
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.errors import TfgraphError
from tfgraph.ir import sqrt
from tfgraph.ops import graph


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_ids_become_rows_scaled_factorised_with_types(backend: str) -> None:
    with graph("g") as g:
        ids, types = (g.input(name, "i64", "batch", "seq") for name in ("ids", "types"))
        x = blocks.embedding(ids, 11, 4, scale=sqrt(4), name="words")
        x = x + blocks.embedding(types, 2, 4, name="kinds")
        g.output("y", blocks.linear(x, 6, bias=False, name="wide"))
    made = g.build()
    p = params(made, "float32")
    run = tfgraph.compile(made, backend, weights=p)
    types_ = (IDS % 2).astype(np.int64)
    wide = {name: w.astype(np.float64) for name, w in p.items()}
    want = (2 * wide["words"][IDS] + wide["kinds"][types_]) @ wide["wide.weight"]
    assert_close(run(ids=IDS, types=types_)["y"], want, length=16)
    for name, wrong, most in (("ids", 11, 10), ("ids", -1, 10), ("types", 2, 1)):
        given = {"ids": IDS, "types": types_}
        given[name] = given[name].copy()
        given[name][1, 3] = wrong
        with pytest.raises(TfgraphError) as caught:
            run(**given)
        assert caught.value.message == f"input '{name}' holds {wrong}, expected 0 to {most}"


def test_factors_save_weights() -> None:
    with graph("g") as g:
        x = blocks.embedding(g.input("ids", "i64", 1, "seq"), 30000, 128)
        g.output("y", blocks.linear(x, 768, bias=False))
    sizes = [np.prod([int(d) for d in p.value.type.shape]) for p in g.build().params]
    assert sum(sizes) == 30000 * 128 + 128 * 768
