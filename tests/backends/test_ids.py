"""An id out of range is an error on every backend, also where ops stand between it and the table.

The numbers are those of the tables' rows, taken by NumPy's own indexing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.contract import compile_small

import tfgraph
from tfgraph import blocks, ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType
from tfgraph.runtime.examples import example

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfgraph.ops import Builder

BACKENDS = ("numpy", "cpu")
TABLE = np.arange(24, dtype=np.float32).reshape(6, 4)

# What stands between ids [batch, seq] and a table of 6 rows, the same in NumPy, and the ids allowed
# (None: there is no bound on that side).
Case = tuple[str, "Callable[[Any], Any]", "Callable[[Any], Any]", int | None, int | None]
CASES: list[Case] = [
    ("directly", lambda x: x, lambda x: x, 0, 5),
    ("shift_right", lambda x: blocks.shift_right(x, 1),
     lambda x: np.concatenate([np.ones_like(x[:, :1]), x[:, :-1]], 1), 0, 5),
    ("slice", lambda x: ops.slice_(x, axis=1, start=1, stop=3), lambda x: x[:, 1:3], 0, 5),
    ("concat", lambda x: ops.concat(x, x, axis=0), lambda x: np.concatenate([x, x]), 0, 5),
    ("reshape", lambda x: ops.reshape(x, shape=(x.shape[0] * x.shape[1],)),
     lambda x: x.reshape(-1), 0, 5),
    ("transpose", lambda x: ops.transpose(x, perm=(1, 0)), np.transpose, 0, 5),
    ("broadcast", lambda x: ops.broadcast_to(x, shape=(2, *x.shape)),
     lambda x: np.stack([x, x]), 0, 5),
    ("cast", lambda x: ops.cast(x, dtype=DType.int32), lambda x: x, 0, 5),
    ("plus 3", lambda x: x + 3, lambda x: x + 3, -3, 2),
    ("minus 2", lambda x: x - 2, lambda x: x - 2, 2, 7),
    ("4 minus", lambda x: 4 - x, lambda x: 4 - x, -1, 4),
    ("plus a constant tensor", lambda x: x + ops.full(shape=(1, 1), value=2, dtype=DType.int64),
     lambda x: x + 2, -2, 3),
    ("maximum", lambda x: ops.maximum(x, 1), lambda x: np.maximum(x, 1), None, 5),
    ("minimum", lambda x: ops.minimum(x, 4), lambda x: np.minimum(x, 4), 0, None),
    ("several", lambda x: ops.slice_(ops.concat(x + 1, x - 1, axis=1), axis=1, start=0, stop=3),
     lambda x: np.concatenate([x + 1, x - 1], 1)[:, :3], 1, 4),
]  # fmt: skip


def looked_up(between: Callable[[Any], Any]) -> Callable[[Builder], None]:
    def build(g: Builder) -> None:
        ids = g.input("ids", "i64", "batch", 3)
        g.output("y", ops.embedding(between(ids), g.param("table", "f32", 6, 4)))

    return build


def compiled(backend: str, between: Callable[[Any], Any]) -> Any:
    with tfgraph.graph("ids") as g:
        looked_up(between)(g)
    return tfgraph.compile(g.build(), backend, weights={"table": TABLE})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_an_id_out_of_range_is_refused_whatever_moves_it(backend: str, case: Case) -> None:
    _, between, plain, low, high = case
    run = compiled(backend, between)
    at_low, at_high = -9 if low is None else low, 99 if high is None else high
    ids = np.array([[at_low, at_high, at_low], [at_high, at_low, at_high]])
    np.testing.assert_array_equal(run(ids=ids)["y"], TABLE[plain(ids)])
    words = f"at most {high}" if low is None else f"{low} to {high}"
    words = f"at least {low}" if high is None else words
    for wrong in [n for n in (low and low - 1, -1 - (low or 0), (high or 0) + 1, 99) if n]:
        if (low is None or wrong >= low) and (high is None or wrong <= high):
            continue
        with pytest.raises(TfgraphError) as error:
            run(ids=np.where(np.arange(3) == 1, wrong, ids))
        assert error.value.message == f"input 'ids' holds {wrong}, expected {words}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("start", [6, 99, -1])
def test_a_constant_id_out_of_range_is_refused_when_it_is_compiled(
    backend: str, start: int
) -> None:
    for between in (
        lambda x: blocks.shift_right(x, start),
        lambda x: ops.concat(
            x, ops.constant(values=(1, start, 2), shape=(1, 3), dtype=DType.int64), axis=0
        ),
    ):
        with pytest.raises(TfgraphError) as error:
            compiled(backend, between)
        assert error.value.message == f"the constant {start} indexes a table, expected 0 to 5"
        assert error.value.location is not None
        assert error.value.location.file.endswith(("embeddings.py", "test_ids.py"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_rows_of_a_symbolic_table_bound_ids_that_are_shifted(backend: str) -> None:
    def build(g: Builder) -> None:
        x, at = g.input("x", "f32", "rows", 2), g.input("at", "i32", "n")
        g.output("y", ops.take(x, at + 1, axis=0))

    run, x = compile_small(backend, build), TABLE.reshape(-1, 2)[:5]
    np.testing.assert_array_equal(run(x=x, at=np.array([3, -1], np.int32))["y"], x[[4, 0]])
    for wrong in (4, -2):
        with pytest.raises(TfgraphError) as error:
            run(x=x, at=np.array([0, wrong], np.int32))
        assert error.value.message == f"input 'at' holds {wrong}, expected -1 to 3"


def test_ids_that_are_chosen_are_not_followed_and_touch_no_other_memory() -> None:
    """Where `where` leaves the wrong ones out they are right; a kernel reads the nearest row."""

    def between(ids: Any) -> Any:
        return ops.where(ops.less(ids, 0), ops.full(shape=(), value=5, dtype=DType.int64), ids)

    run = compiled("cpu", between)
    np.testing.assert_array_equal(run(ids=np.array([[-100, 0, 99]]))["y"][0], TABLE[[5, 0, 5]])
    run = compiled("numpy", between)
    np.testing.assert_array_equal(run(ids=np.array([[-100, 0, 4]]))["y"][0], TABLE[[5, 0, 4]])
    with pytest.raises(TfgraphError, match="index 99 is out of range"):
        run(ids=np.array([[-100, 0, 99]]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_examples_are_in_range(case: Case) -> None:
    run = compiled("numpy", case[1])
    (port,) = run.inputs
    made = [example(port, {"batch": 4}, seed) for seed in range(9)]
    for ids in made:
        run(ids=ids)
    assert len(np.unique(np.stack(made))) > (1 if case[4] is not None else 0)


def test_an_artifact_keeps_the_range(tmp_path: Path) -> None:
    with tfgraph.graph("ids") as g:
        looked_up(lambda x: x - 2)(g)
    path = tmp_path / "ids.tfgraph"
    tfgraph.build(g.build(), "cpu", path, check=False)
    (entry,) = json.loads((path / "manifest.json").read_text())["inputs"]
    assert (entry["least"], entry["limit"]) == (2, 8)
    with tfgraph.load(path) as run, pytest.raises(TfgraphError, match="expected 2 to 7"):
        run(ids=np.array([[1, 2, 3]]))
