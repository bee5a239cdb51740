"""Graphs that rules take, each by the pass and the rules, and the check that every neighbour of one
keeps its values under the pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from helpers.one_change import neighbours, values

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph
from tfgraph.ops import Builder
from tfgraph.passes import PASSES, run_pipeline
from tfgraph.passes.proof import TESTED

Make = Callable[[Builder], Any]
ROUNDED = ("recover-activations",)
"""Passes that take a rounded constant for what it stands for."""
LEAST = -1e30
"""What recover-masks takes for minus infinity is less; and in rows without an allowed key, it makes
something else, the same for all keys."""


class Graphs(dict[str, tuple[Make, dict[str, int]]]):
    """By name, `PASS: NAME`."""

    def takes(self, pass_: str, **rules: int) -> Callable[[Make], Make]:
        """A graph that rules of a pass take so often."""

        def keep(make: Make) -> Make:
            applied = {name.replace("_", "-"): count for name, count in rules.items()}
            self[f"{pass_}: {make.__name__}"] = make, applied
            return make

        return keep

    def check(self, name: str) -> None:
        """The rules take the graph; it and its neighbours keep their values."""
        make, rules = self[name]
        pass_ = name.partition(":")[0]
        with ops.graph("g") as g:
            g.output("y", make(g))
        graph = g.build()
        assert _applied(pass_, graph)[1] == rules
        # Exactly checked too, unless it reads something for what it nearly is: TESTED is no rule.
        _, (report,) = run_pipeline(graph, [PASSES[pass_]()], prove=True)
        assert report.proof is not None
        assert report.proof.kind != TESTED
        _same(pass_, "unchanged", graph)
        for what, changed in neighbours(graph):
            _same(pass_, what, changed)


def tensor(name: str, *shape: int) -> Any:
    return ops.current().input(name, "f32", *(shape or (2, 2, 4)))


def weight(name: str, *shape: int) -> Any:
    return ops.current().param(name, "f32", *shape)


def heads(name: str) -> Any:
    return tensor(name, 2, 2, 2, 2)


def _same(pass_: str, what: str, graph: Graph) -> None:
    after, applied = _applied(pass_, graph)
    if applied:
        try:
            want = values(graph)
        except TfgraphError:
            return  # an index beyond its tensor
        got = values(after)
        close = 1e-6 if pass_ in ROUNDED else 1e-9
        for name, array in want.items():
            found = got[name]
            if pass_ == "recover-masks":
                array, found = (np.clip(np.atleast_1d(a), LEAST, -LEAST) for a in (array, found))
                empty = (found == found[..., :1]).all(-1, keepdims=True)
                array = np.where(empty, found, array)
            np.testing.assert_allclose(found, array, close, close, err_msg=f"{what}: {applied}")


def _applied(pass_: str, graph: Graph) -> tuple[Graph, dict[str, int]]:
    """Without the rules that only tidy up, which have tests of their own."""
    after, (report,) = run_pipeline(graph, [PASSES[pass_]()])
    return after, {n: k for n, k in report.applied.items() if n not in report.cleanups}
