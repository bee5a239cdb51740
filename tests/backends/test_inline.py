"""Arithmetic of integers is computed where it is read, and runs of rows are read where they are:
the same numbers, from fewer kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.cuda_graphs import CudaGraphs
from helpers.generating import model

import tfgraph
from tfgraph import ops
from tfgraph.backends.tvm.cpu.kernels import CpuKernels
from tfgraph.backends.tvm.emitters import lower
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfgraph.ir import Graph

    Make = Callable[[Any, Any], dict[str, Any]]

NDArray = np.ndarray[Any, Any]
TABLE = np.arange(60, dtype=np.float32).reshape(20, 3)
IDS = np.array([[0, 3, 4, 2], [5, 2, 1, 19]])


def positions(x: Any, table: Any) -> dict[str, Any]:
    """Numbers less what comes before each row, at least 0, as a step reads them."""
    numbers = ops.slice_(ops.iota(length="end"), axis=0, start=3, stop=7)
    first = ops.slice_(x, axis=1, start=1, stop=2)
    return {"rows": ops.embedding(ops.maximum(numbers - first, 0), table)}


def compared(x: Any, table: Any) -> dict[str, Any]:
    inside = ops.logical_and(ops.less(x, 5), ops.logical_not(ops.equal(x, 2)))
    kept = ops.where(ops.logical_or(inside, ops.less(9, x)), ops.abs_(ops.neg(x)), x - x)
    return {"kept": kept}


def counted(x: Any, table: Any) -> dict[str, Any]:
    """Comparisons as numbers."""
    is_two, is_any = ops.equal(x, 2), ops.cast(x, dtype="bool")
    same = ops.equal(is_two, is_any)
    number = sum(ops.cast(b, dtype="i64") for b in (is_two, is_any, same, ops.less(x, 3)))
    return {"rows": ops.embedding(number, table)}


def moved(x: Any, table: Any) -> dict[str, Any]:
    """In another order and type, one for all, and by number."""
    turned = ops.transpose(ops.minimum(ops.cast(x, dtype="i32") * 3, 19), perm=(1, 0))
    one = ops.full(shape=(1,), value=2, dtype="i64")
    row = ops.broadcast_to(ops.minimum(one, ops.iota(length=4)), shape=(2, 4))
    taken = ops.take(table, ops.add(row, 1), axis=0)
    return {"at": ops.take_at(table, turned, one), "taken": taken, "across": ops.take(x, one - 1)}


def read_by_all(x: Any, table: Any) -> dict[str, Any]:
    """What a sum and an output read has a kernel; rows read it there, and what is before it."""
    twice = x + x
    counted = ops.cumsum(twice, axis=1)
    shown = counted - 1
    return {"rows": ops.embedding(twice - x, table), "counted": counted, "shown": shown,
            "more": ops.embedding(shown - counted + 2, table)}  # fmt: skip


def doubled(x: Any, table: Any) -> dict[str, Any]:
    """Read twice each time: more is computed anew than kernels are saved."""
    for _ in range(7):
        x = ops.minimum(x + x, 19)
    return {"rows": ops.embedding(x, table)}


def runs_of_rows(x: Any, table: Any) -> dict[str, Any]:
    """Sums of embeddings and rotary positions read them where they are; others do not, nor is a run
    of columns one."""
    run = ops.slice_(table, axis=0, start=2, stop=6)
    summed = ops.embedding_sum(x, table, run)
    column = ops.slice_(table, axis=1, start=1, stop=2)
    angles = ops.slice_(column, axis=0, start=3, stop=7)
    turned = ops.rotary(summed, angles, ops.slice_(column, axis=0, stop=4), heads=1)
    return {"turned": turned}


def read_by_others(x: Any, table: Any) -> dict[str, Any]:
    run = ops.slice_(table, axis=0, start=2, stop=6)
    column = ops.slice_(run, axis=-1, stop=1)
    return {"sum": ops.embedding_sum(x, table, run, column), "twice": run * 2}


CASES: dict[str, tuple[Make, list[str]]] = {
    "positions": (positions, ["embedding"]),
    "compared": (compared, ["where"]),
    "counted": (counted, ["embedding"]),
    "moved": (moved, ["take", "take_at", "take"]),
    "read_by_all": (
        read_by_all, ["add", "cumsum", "sub", "embedding", "embedding"]
    ),
    "runs_of_rows": (runs_of_rows, ["embedding_sum", "slice", "rotary"]),
    "read_by_others": (read_by_others, ["slice", "slice", "embedding_sum", "mul"]),
    "doubled": (doubled, ["add", "add", "embedding"]),
}  # fmt: skip


def graph_of(make: Make) -> Graph:
    with ops.graph("integers") as g:
        g.symbol("end", 7, 20)
        made = make(g.input("x", "i64", 2, 4), g.input("table", "f32", 20, 3))
        for name, value in made.items():
            g.output(name, value)
    return g.build()


def wanted(graph: Graph) -> dict[str, NDArray]:
    return tfgraph.compile(graph, "numpy", passes="")(x=IDS, table=TABLE, dims={"end": 9})


@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    make, kernels = CASES[name]
    graph = graph_of(make)
    launches = lower(graph, {}, CpuKernels(cpu_machine())).main.launches
    assert [launch.node.op for launch in launches if launch.node] == kernels
    got = tfgraph.compile(graph, "cpu", passes="")(x=IDS, table=TABLE, dims={"end": 9})
    for output, want in wanted(graph).items():
        np.testing.assert_array_equal(got[output], want)


def test_on_the_gpu(tmp_path: Path) -> None:
    graphs = {
        name: graph_of(CASES[name][0]) for name in ("positions", "counted", "moved", "runs_of_rows")
    }
    run = CudaGraphs(graphs, tmp_path)
    for name, graph in graphs.items():
        got = run(name, {"x": IDS, "table": TABLE}, {"end": 9})
        for output, want in wanted(graph).items():
            np.testing.assert_array_equal(got[output], want)


def test_what_has_a_kernel_is_not_computed_again() -> None:
    """The rows at `twice - x` read both of it, and the table; they write one result."""
    module = lower(graph_of(read_by_all), {}, CpuKernels(cpu_machine())).module
    assert len(module["embedding"].params) == 4


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("learned", ["embedding_sum", "logical_not"]),
        ("sinusoidal", ["embedding_sum", "logical_not"]),
        ("none", ["embedding", "logical_not"]),
        ("rotary", ["embedding", "embedding", "embedding", "logical_not"]),
    ],
)
def test_what_a_step_computes_before_its_layers(name: str, before: list[str]) -> None:
    """Rows of the tables, and which keys are no padding."""
    step, _ = run_pipeline(model(name).functions["step"], parse_pipeline(DEFAULT_PIPELINE))
    weights = {
        p.value.name: np.zeros([int(d) for d in p.value.type.shape], "f4") for p in step.params
    }
    launches = lower(step, weights, CpuKernels(cpu_machine())).main.launches
    found = [
        launch.node.op for launch in launches if launch.node and launch.kernel != "compact_keys"
    ]
    assert sorted(op for op in found if op in {*before, "iota", "less", "sub", "add"}) == before
