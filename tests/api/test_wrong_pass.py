"""The first wrong application of a rule, where numbers tell and the exact check does not."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfgraph import ops
from tfgraph.api.wrong_pass import Reference, first_wrong_pass
from tfgraph.passes import RulePass, call, rule, var

NAMES = "abcde"


@rule(call("sub", var("a"), var("b")))
def rounds(a: Any, b: Any) -> Any:
    """a - b -> the same in half precision, which a field cannot see."""
    half = ops.cast(ops.add(a, ops.neg(b)), dtype="f16")
    return ops.cast(half, dtype="f32")


class Rounding(RulePass):
    """Every difference."""

    name = "rounding"
    rules = [rounds]  # noqa: RUF012


def test_the_application_that_the_numbers_blame_is_named() -> None:
    """Half precision has the difference of zeros; of the others the first is named."""
    with ops.graph("g") as g:
        zero = g.input("zero", "f32", 8)
        for name in NAMES:
            g.output(f"y_{name}", ops.sub(g.input(name, "f32", 8), zero))
    graph = g.build()
    values = np.random.default_rng(0).standard_normal((len(NAMES), 8)).astype(np.float32)
    for zeros, output in enumerate(graph.outputs):
        feeds = {name: values[i] * (i >= zeros) for i, name in enumerate(NAMES)}
        feeds["zero"] = 0 * values[0]
        found = first_wrong_pass(Reference(graph, {}, feeds, {}), [Rounding()])
        assert found is not None
        assert (found.kind, found.op, found.value) == ("pass", "sub", output.value.name)
        assert "pass rounding, rule rounds" in found.why
    nothing = {name: np.zeros(8, np.float32) for name in (*NAMES, "zero")}
    assert first_wrong_pass(Reference(graph, {}, nothing, {}), [Rounding()]) is None
