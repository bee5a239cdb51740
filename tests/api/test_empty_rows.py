"""Rows with no allowed key, of files whose masks are least numbers: compared where they can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.onnx_files import node, save

from tfgraph.api import bisect, compare
from tfgraph.api.fuse import fuse
from tfgraph.api.verify import verify
from tfgraph.backends.base import Target
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ir import Graph
from tfgraph.onnx import import_onnx
from tfgraph.passes import IMPORTED_PIPELINE

LEAST = np.finfo(np.float32).min
BUDGET = 1e6  # so that few sizes are large


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Attention in which padding neither is seen nor sees, as in DeBERTa; then the same again."""
    nodes = [
        node("Cast", "mask", "keep", to=9),
        node("Unsqueeze", "keep one", "rows"),
        node("Unsqueeze", "keep two", "columns"),
        node("And", "rows columns", "allowed"),
    ]
    for x, y in (("x", "a"), ("a", "y")):
        nodes += [
            node("Transpose", x, f"{x}t", perm=[0, 2, 1]),
            node("MatMul", f"{x} {x}t", f"{x}s"),
            node("Where", f"allowed {x}s least", f"{x}m"),
            node("Softmax", f"{x}m", f"{x}p", axis=-1),
            node("MatMul", f"{x}p {x}", y),
        ]
    consts = {
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "least": np.array(LEAST, np.float32),
    }
    inputs: dict[str, Any] = {
        "x": ("f32", ["batch", "seq", 4]),
        "mask": ("i64", ["batch", "seq"]),
    }
    path = tmp_path_factory.mktemp("empty") / "m.onnx"
    made, weights = import_onnx(save(path, nodes, inputs, ["y"], consts))
    assert not weights
    return made


class Wrong(NumpyExecutable):
    """Adds a number to the output of some rows: those with no allowed key, or the others."""

    rows: str = "empty"

    def __call__(self, /, *unnamed: Any, **kwargs: Any) -> Any:
        """The outputs, with that error."""
        made = super().__call__(*unnamed, **kwargs)
        keep = kwargs["mask"].astype(bool)
        made["y"][~keep if self.rows == "empty" else keep] += 1
        return made


def test_they_are_compared_with_the_graph_after_the_passes(graph: Graph) -> None:
    fused = fuse(graph, Target("cpu"), IMPORTED_PIPELINE)
    assert fused.changes_empty_rows
    right = NumpyExecutable(fused.compiled, {})
    assert verify(right, graph, {}, Target("numpy"), BUDGET).ok is False
    found = verify(right, graph, {}, Target("numpy"), BUDGET, zeroed=fused.compiled)
    assert found.ok
    assert found.empty_rows > 0
    assert f'"empty_rows": {found.empty_rows}' in str(found.to_json()).replace("'", '"')
    for rows in ("empty", "others"):
        wrong = Wrong(fused.compiled, {})
        wrong.rows = rows
        assert verify(wrong, graph, {}, Target("numpy"), BUDGET, zeroed=fused.compiled).ok is False


def test_exactly_those_rows(graph: Graph) -> None:
    """Of three queries of which one is padding, that one alone: keys that are padding are not
    seen."""
    from tfgraph.api.empty_rows import settle_empty_rows

    compiled = fuse(graph, Target("cpu"), IMPORTED_PIPELINE).compiled
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    inputs = {"x": x, "mask": np.array([[1, 1, 0], [1, 1, 1]])}
    before = NumpyExecutable(graph, {})(**inputs)
    after, rows = settle_empty_rows(before, compiled, {}, inputs, {"batch": 2, "seq": 3})
    assert rows == 1
    assert not after["y"][0, 2].any()
    assert before["y"][0, 2].any()
    kept = np.ones((2, 3), bool)
    kept[0, 2] = False
    np.testing.assert_array_equal(after["y"][kept], before["y"][kept])


def test_strict_masks_keep_the_arithmetic(graph: Graph) -> None:
    pipeline = IMPORTED_PIPELINE.replace("recover-masks", "recover-masks{strict=true}")
    fused = fuse(graph, Target("cpu"), pipeline)
    assert not fused.changes_empty_rows
    found = verify(NumpyExecutable(fused.compiled, {}), graph, {}, Target("numpy"), BUDGET)
    assert found.ok
    assert found.empty_rows == 0


def test_compare_and_bisect_take_them_as_they_were_written(graph: Graph) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    inputs = {"x": x, "mask": np.array([[1, 1, 0], [1, 1, 1]])}
    found = compare(graph, ("numpy", "cpu"), inputs, passes=IMPORTED_PIPELINE)
    assert found.ok, found
    assert found.empty_rows == 1
    assert "1 row with no allowed key" in str(found)
    steps = bisect(graph, inputs, passes=IMPORTED_PIPELINE)
    assert steps.ok, steps
    assert any(s.proof is not None and s.proof.kind == "READ" for s in steps.steps)
    after = bisect(graph, inputs, passes="recover-masks,recover-heads")
    assert after.ok, after
    worst = [s.worst for s in after.steps]  # of the second pass too, on zeros of the first
    assert [d is not None and d.ok for d in worst] == [True, True]
