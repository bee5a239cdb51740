"""Weights of an ONNX file are views of it; constants that follow a formula become that formula."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.onnx_files import node, save

import tfgraph
from tfgraph.ir import Graph, Mask
from tfgraph.ir.mask import Alibi, Causal, Relative
from tfgraph.onnx import import_onnx
from tfgraph.onnx.wire import skim
from tfgraph.passes import parse_pipeline, run_pipeline

X = {"x": ("f32", [3, 4])}
WEIGHT = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)


@pytest.mark.parametrize("external", [False, True])
def test_views(tmp_path: Path, external: bool) -> None:
    """The bytes are those of the file, and importing takes no memory for them."""
    weight = np.random.default_rng(0).standard_normal((1024, 2048)).astype(np.float32)
    inputs = {"x": ("f32", [3, 1024])}
    stored = {"w": weight, "b": weight[0]}
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y")]
    path = save(tmp_path / "m.onnx", nodes, inputs, ["y"], stored)
    if external:
        onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="m.bin")
    tracemalloc.start()
    _, weights = import_onnx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < weight.nbytes // 4
    assert list(weights) == ["w", "b"]
    np.testing.assert_array_equal(weights["w"], weight)
    np.testing.assert_array_equal(weights["b"], weight[0])
    if external:  # else the bytes may be unaligned
        assert np.shares_memory(weights["w"], weights["w"])


def test_the_skeleton_is_the_same_message() -> None:
    from helpers.onnx_files import export_path

    data = export_path("llama.dynamo_dyn").read_bytes()
    whole = onnx.ModelProto.FromString(data)
    skeleton, spans = skim(memoryview(data))
    model = onnx.ModelProto.FromString(skeleton)
    assert len(spans) > 10
    for i, (start, stop) in spans.items():
        assert not model.graph.initializer[i].raw_data
        model.graph.initializer[i].raw_data = data[start:stop]
    assert model == whole


def ops_of(tmp_path: Path, constant: Any, op: str = "Add") -> tuple[Graph, list[str]]:
    """The ops of x + constant."""
    kind = {"f": "f32", "i": "i64", "b": "bool"}[constant.dtype.kind]
    inputs = {"x": (kind, ["n", *constant.shape[1:]])}
    nodes = [node(op, "x c", "y")]
    path = save(tmp_path / "m.onnx", nodes, inputs, ["y"], {"c": constant})
    graph, weights = import_onnx(path)
    x = np.ones(constant.shape, constant.dtype)
    got = tfgraph.compile(graph, weights=weights, target="numpy")(x=x)["y"]
    want = np.logical_and(x, constant) if op == "And" else x + constant
    np.testing.assert_array_equal(got, want)
    return graph, [n.op for n in graph.nodes]


SEEN = np.tri(5, dtype=bool)
BIAS = np.random.default_rng(1).standard_normal((2, 5, 5)).astype(np.float32)
LEAST = np.finfo(np.float32).min
FAR = (np.arange(5) - np.arange(5)[:, None]).astype(np.float32)
DISTANT = np.random.default_rng(2).standard_normal((2, 99)).astype(np.float32)
FURTHER = np.arange(50) - np.arange(50)[:, None] + 49
ALIBI = np.array([0.5, 0.3], np.float32)[:, None, None] * FAR

FORMULAS = {
    "one number": (np.full((1, 3, 4), 2.5, np.float32), "full add"),
    "positions": (np.arange(70).reshape(1, 70), "iota reshape add"),
    "from 2 by 3": (2 + 3 * np.arange(70).reshape(1, 70), "iota mul reshape add add"),
    "differences": (
        np.arange(9)[None, :, None] - np.arange(8)[None, None],
        "iota reshape iota mul reshape add add",
    ),
    "indices side by side": (
        np.stack(np.broadcast_arrays(np.arange(3)[:, None], np.arange(9)), -1)[None],
        "iota reshape broadcast_to iota reshape broadcast_to concat add",
    ),
    "an index that stays": (
        np.stack([np.zeros(9, int), np.arange(9)], -1)[None],
        "full iota reshape concat add",
    ),
    "a triangle": (
        np.tri(5, 7, 2, dtype=bool)[None],
        "iota reshape iota reshape add less reshape logical_and",
    ),
    "a triangle above": (
        ~np.tri(5, dtype=bool)[None],
        "iota reshape iota reshape add less reshape logical_and",
    ),
    "a window": (
        np.tri(9, k=1, dtype=bool)[None] & ~np.tri(9, k=-3, dtype=bool)[None],
        "iota reshape iota reshape add less add less logical_and reshape logical_and",
    ),
    "one triangle for a batch": (
        np.stack([np.tri(5, dtype=bool)] * 2),
        "iota reshape iota reshape add less reshape broadcast_to logical_and",
    ),
    "a triangle of floats": (
        np.where(np.tri(5), 0, np.finfo(np.float32).min).astype(np.float32)[None],
        "iota reshape iota reshape add less full full where reshape add",
    ),
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_formulas(tmp_path: Path, kind: str) -> None:
    constant, ops = FORMULAS[kind]
    graph, found = ops_of(tmp_path, constant, "And" if constant.dtype == bool else "Add")
    assert found == ops.split()
    assert not graph.params


@pytest.mark.parametrize("axis", [-1, -2])
def test_tables_of_two_equal_halves(tmp_path: Path, axis: int) -> None:
    """Half of the table is a parameter, as the cosines of rotary positions take it."""
    halves = np.stack([WEIGHT[:, :4]] * 2, axis)
    graph, found = ops_of(tmp_path, halves.reshape(1, 4, 8))
    assert [str(p.value.type) for p in graph.params] == ["f32[1,4,4]"]
    assert found[-1] == "add"


@pytest.mark.parametrize(
    ("seen", "least", "ops"),
    [
        (SEEN, LEAST, "add less full where add"),
        (SEEN, -1e4, "add less full where add"),
        (SEEN.T, LEAST, "add less full where add"),
        (SEEN, -np.inf, "add less mask add"),
        (SEEN & SEEN.T, -np.inf, "add less add less logical_and mask add"),
    ],
)
def test_biases_with_a_least_number_outside_of_a_band(
    tmp_path: Path, seen: Any, least: float, ops: str
) -> None:
    """The bias is a parameter, and 0 there."""
    constant = np.where(seen, BIAS, np.float32(least))
    _, found = ops_of(tmp_path, constant)
    assert [op for op in found if op not in ("iota", "reshape")] == ops.split()
    _, weights = import_onnx(tmp_path / "m.onnx")
    assert list(weights) == ["c"]
    np.testing.assert_array_equal(weights["c"], np.where(seen, BIAS, 0))


@pytest.mark.parametrize("least", [None, LEAST, -np.inf])
@pytest.mark.parametrize("shape", [(2, 5, 5), (1, 2, 5, 5)])
def test_slopes_times_distances(tmp_path: Path, shape: tuple[int, ...], least: Any) -> None:
    """ALiBi: the slopes are the parameter, and the mask that was added is one again."""
    whole = ALIBI if least is None else np.where(SEEN, ALIBI, np.float32(least))
    inputs = {n: ("f32", ["b", 2, 5, 3]) for n in "qk"}
    nodes = [node("Transpose", "k", "t", perm=[0, 1, 3, 2]), node("MatMul", "q t", "s")]
    nodes += [node("Add", "s c", "a"), node("Softmax", "a", "y", axis=-1)]
    stored = {"c": whole.reshape(shape)}
    graph, weights = import_onnx(save(tmp_path / "m.onnx", nodes, inputs, ["y"], stored))
    np.testing.assert_array_equal(weights["c"], np.float32([[[0.5]], [[0.3]]]))
    graph, _ = run_pipeline(graph, parse_pipeline("recover-masks"))
    (mask,) = [o for n in graph.nodes for o in n.operands if isinstance(o, Mask)]
    assert [type(part) for part in mask.parts] == [Causal] * (least is not None) + [Alibi]
    ops_of(tmp_path, whole.reshape(shape))


def bucket(distance: int, count: int, most: int, both: bool) -> int:
    """T5's own formula."""
    count = count // 2 if both else count
    start = count if both and distance > 0 else 0
    far = abs(distance) if both else max(-distance, 0)
    if far < count // 2:
        return start + far
    grown = np.log(far / (count // 2)) / np.log(most / (count // 2)) * (count - count // 2)
    return start + min(count // 2 + int(grown + 1e-9), count - 1)


@pytest.mark.parametrize("least", [None, LEAST, -np.inf])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("rows", "most", "both", "size"),
    [(8, 9, True, 9), (8, 12, False, 20), (32, 128, True, 50), (32, 128, False, 50)],
)
def test_buckets_of_distances(
    tmp_path: Path, rows: int, most: int, both: bool, size: int, batch: int, least: Any
) -> None:
    """A table is the parameter, as it was, where there are distances for all of its rows."""
    table = np.random.default_rng(3).standard_normal((rows, 2)).astype(np.float32)
    seen = np.tri(size, dtype=bool)
    far = np.arange(size) - np.arange(size)[:, None]
    index = np.vectorize(lambda d: bucket(int(d), rows, most, both))(far)
    whole = table[index].transpose(2, 0, 1)
    whole = whole if least is None else np.where(seen, whole, np.float32(least))
    whole = np.stack([whole] * batch)
    graph, _ = ops_of(tmp_path, whole)
    _, weights = import_onnx(tmp_path / "m.onnx")
    (found,) = [
        m
        for n in graph.nodes
        for o in n.operands
        if isinstance(o, Mask)
        for m in o.parts
        if isinstance(m, Relative)
    ]
    if least is None:
        used = np.unique(index)
        assert (int(found.max_distance), found.bidirectional) == (most, both)
        np.testing.assert_array_equal(weights["c"][used], table[used])


def test_zeros_with_minus_infinity_outside_of_a_band(tmp_path: Path) -> None:
    zeros = np.where(SEEN, 0, -np.inf).astype(np.float32)
    graph, found = ops_of(tmp_path, zeros[None])
    assert found[-2:] == ["mask", "add"]
    assert not graph.params


NO_FORMULAS = {
    "noise": WEIGHT[None],
    "minus infinity alone": np.full((1, 5, 5), -np.inf, np.float32),
    "slopes but for one": ALIBI + np.float32(1e-6) * (FAR == -3) * (np.arange(5) == 1),
    "slopes with -0": np.where(FAR == 0, np.float32(-0.0), ALIBI),
    "slopes of a batch": np.stack([ALIBI, ALIBI * 2]),
    "more distances than buckets": DISTANT[:, FURTHER],
    "a batch of distances": np.stack([DISTANT[:, FURTHER], -DISTANT[:, FURTHER]]),
    "distances of a small square": DISTANT[:, FURTHER[:3, :3]],
    "distances of fewer queries": ALIBI[:, 1:],
    "one distance": np.array([[[0]], [[1]]], np.float32),
    "slopes alone": ALIBI[0],
    "numbers that hide nothing": np.where(SEEN, BIAS, -9999).astype(np.float32),
    "one that is hidden inside": np.where(SEEN ^ np.eye(5, k=-2, dtype=bool), BIAS, LEAST),
    "other rows hidden in another head": np.where(
        [SEEN, SEEN ^ np.eye(5, dtype=bool)], BIAS, LEAST
    ),
    "two least numbers": np.where(SEEN, BIAS, [[LEAST]] * 3 + [[-np.inf], [LEAST]]).astype(
        np.float32
    ),
    "not a number": np.full((1, 2, 3), np.nan, np.float32),
    "minus zero": np.full((1, 2, 3), -0.0, np.float32),
    "few numbers": np.array([0, 0, 1, 1]),
    "not quite positions": np.array([[*range(70), 71]]),
    "not quite a triangle": np.tri(5, dtype=bool)[None] ^ np.eye(5, k=-3, dtype=bool)[None],
}


@pytest.mark.parametrize("kind", NO_FORMULAS)
def test_no_formulas(tmp_path: Path, kind: str) -> None:
    constant = NO_FORMULAS[kind]
    graph, found = ops_of(tmp_path, constant, "And" if constant.dtype == bool else "Add")
    assert len(found) == 1
    assert [p.value.name for p in graph.params] == ["c"]


def test_scalars_are_exact_decimals(tmp_path: Path) -> None:
    scale = {"s": np.array(0.1, np.float32)}
    graph, _ = import_onnx(save(tmp_path / "m.onnx", [node("Mul", "x s", "y")], X, ["y"], scale))
    assert "mul(%x, 0.1)" in tfgraph.print_graph(graph)
