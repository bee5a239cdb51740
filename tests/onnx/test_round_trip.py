"""A file that `export` wrote comes back to the text that it was written from, value names aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from helpers.onnx_export import by_numpy
from helpers.op_samples import Sample, takes
from helpers.round_trips import (
    LENGTHS,
    OPSETS,
    PARTS,
    difference,
    fused,
    graphs_of_part,
    masks,
    models,
    recovered,
    returned,
    text,
    under_mask,
)
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.fuzz.schema import own_ops
from tfgraph.ir import DType, Fill, exact, rsqrt, sqrt
from tfgraph.onnx import import_onnx
from tfgraph.onnx.export import to_onnx, write_model
from tfgraph.ops import REGISTRY
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.ir import Graph

MODELS = models()
FEW = {
    "learned": 24,
    "rotary, parallel": 13,
    "alibi": 13,
    "relative": 24,
    "experts": 24,
    "longrope": 23,
    "masked": 17,
    "checkpoint deberta_v2": 24,
}
"""One of each thing that only a reading brings back, in some version of the operator set."""

DIFFER = {("weighted_sum", DType.float32), ("weighted_sum", DType.float16)} | {
    (name, DType.float16) for name in ("constant", "layer_norm", "rms_norm")
}
"""Ops, alone in a graph, whose text is lost: docs/onnx-out.md says why. A test holds that it is."""


REFUSED = {"03_positional_encoding", "09_linear"}
"""Parts whose outputs are called as weights, which ONNX does not allow."""


def check(graph: Graph, weights: Any, opset: int, *, ours: bool = False) -> Graph:
    """The text is that of the graph after the same recovery; of `ours`, after our passes alone."""
    again, _ = returned(graph, weights, opset)
    want = text((fused if ours else recovered)(graph))
    assert difference(want, text(recovered(again))) == ""
    return again


@pytest.mark.parametrize("name", FEW)
def test_models(name: str) -> None:
    graph, weights = MODELS[name]()
    check(graph, weights, FEW[name], ours=True)


@pytest.mark.long
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_in_every_opset(name: str, opset: int) -> None:
    graph, weights = MODELS[name]()
    check(graph, weights, opset, ours=True)


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.stem)
def test_parts(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = graphs_of_part(part, monkeypatch)
    written = [graph for graph in graphs if not is_refused(graph, 13)]
    assert bool(written) != (part.stem in REFUSED)
    for graph in written:
        for opset in (13, 24):
            check(graph, None, opset)


@pytest.mark.parametrize(("name", "opset"), [("alibi", 13), ("rotary", 24)])
def test_values_come_back(name: str, opset: int) -> None:
    graph, weights = MODELS[name]()
    again, read = returned(graph, weights, opset)
    sizes = {symbol.name: 3 for symbol in graph.symbols} | {"batch": 2}
    given = tfgraph.compile(graph, "numpy", weights=weights).example(sizes)
    want, got = by_numpy(graph, given, weights), by_numpy(recovered(again), given, read)
    assert got.keys() == want.keys()
    for key, array in got.items():
        assert_close(array, want[key], length=4096, name=key)


def test_masks() -> None:
    for i, name in enumerate(masks(1, 1, None)):
        check(under_mask(name, LENGTHS[i % 3], whole=bool(i % 2)), None, 24 if i % 2 else 13)


@pytest.mark.long
@pytest.mark.parametrize("opset", [13, 24])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_all_masks(lengths: tuple[Any, Any, Any], whole: bool, opset: int) -> None:
    for name in masks(1, 1, None):
        check(under_mask(name, lengths, whole=whole), None, opset)


def of_one_op(name: str, dtype: DType, seed: int) -> Graph:
    """A random call of an op; an input of one axis tells each size, as ONNX needs it."""
    made = Sample(name, dtype, seed)
    for symbol in made.sizes:
        made.builder.input(f"of_{symbol}", "i8", symbol)
    return made.graph


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in own_ops() if n != "cache_append"])
def test_every_op(name: str) -> None:
    """But `cache_append`, which is written as its body: ONNX has no states."""
    for dtype in takes(REGISTRY[name]):
        if dtype not in (DType.float32, DType.float16, DType.int64, DType.bool_):
            continue
        for seed in range(4):
            graph = of_one_op(name, dtype, seed)
            if any(o.value.type.dtype == DType.int4 for o in graph.outputs):
                continue  # which the importer has not
            for opset in (13, 24):
                if (name, dtype) not in DIFFER and not is_refused(graph, opset):
                    check(graph, None, opset)


def is_refused(graph: Graph, opset: int) -> bool:
    """Whether a version of the operator set has no form for it."""
    try:
        to_onnx(graph, opset)
    except TfgraphError:
        return True
    return False


@pytest.mark.parametrize(("name", "dtype"), sorted(DIFFER, key=str))
def test_what_is_lost(name: str, dtype: DType) -> None:
    """Named in the docs, and no longer than it must be."""
    texts = [
        difference(text(recovered(graph)), text(recovered(returned(graph, None, 13)[0])))
        for graph in (of_one_op(name, dtype, seed) for seed in range(4))
    ]
    assert any(texts)


def with_notes() -> Graph:
    """Everything that the text says beside its nodes."""
    with tfgraph.graph("noted") as g:
        g.symbol("n", 2, 40, example=7)
        g.symbol("m", 1, 30)
        g.constrain("n", "<=", "m")
        ids = g.input("ids", "i64", "n", fill=Fill("ids", exact(9)))
        mask = g.input("mask_of_none", "i64", "m", 3)
        table = g.param("table", "f32", 9, 4, fill=Fill("ones", exact(0.5)))
        zeros = g.param("zeros", "f32", 4, 4, fill=Fill("zeros"))
        one = g.param("one", "f32", 1, fill=Fill("ones"))
        g.output("y", ops.linear(ops.embedding(ids, table), zeros) * one)
        g.output("z", ops.add(mask, 1))
    return g.build()


def test_what_stands_beside_the_nodes() -> None:
    """Also weights whose elements follow a formula."""
    graph = with_notes()
    weights = {
        "table": np.ones((9, 4), np.float32),
        "zeros": np.zeros((4, 4), np.float32),
        "one": np.ones(1, np.float32),
    }
    again = check(graph, weights, 24, ours=True)
    assert (again.name, again.symbols, again.constraints) == (
        graph.name,
        graph.symbols,
        graph.constraints,
    )


def test_a_note_that_cannot_be_read(tmp_path: Path) -> None:
    graph, path = with_notes(), tmp_path / "file.onnx"
    write_model(to_onnx(graph, 24), graph, Seeded(graph.params), path, "data")
    file = onnx.load(path)
    for key, value in (
        ("tfgraph.symbol.n", "2..many"),
        ("tfgraph.symbol.n", "9..2"),
        ("tfgraph.constraints", "n << m"),
        ("tfgraph.input.ids", "ids(9"),
        ("tfgraph.weight.table", "gamma(1)"),
    ):
        changed = onnx.ModelProto.FromString(file.SerializeToString())
        for prop in changed.metadata_props:
            if prop.key == key:
                prop.value = value
        onnx.save(changed, path)
        with pytest.raises(TfgraphError, match="a note of tfgraph") as raised:
            import_onnx(path)
        assert raised.value.location is not None
        assert raised.value.location.file == str(path)


def test_notes_on_what_is_not_there(tmp_path: Path) -> None:
    """Another tool fixed a size and left out an input: the rest still holds."""
    graph, path = with_notes(), tmp_path / "file.onnx"
    write_model(to_onnx(graph, 24), graph, Seeded(graph.params), path, "data")
    file = onnx.load(path)
    file.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    del file.graph.node[-1], file.graph.output[-1], file.graph.input[-1]
    onnx.save(file, path)
    again, _ = import_onnx(path)
    assert (again.symbols, again.constraints) == ((), ())
    assert [str(item.fill) for item in again.inputs] == ["ids(9)"]


def test_constants_are_read_as_what_they_were() -> None:
    """And short decimals are what they are."""
    numbers = [sqrt(24), rsqrt(6), exact(1) / 3, -sqrt(2), 0.1, 1.702, 0.7978845, 2.0**-20, 1e-30]
    with tfgraph.graph("constants") as g:
        x = g.input("x", "f32", 4)
        for i, number in enumerate(numbers):
            g.output(f"y{i}", x * number)
    check(g.build(), None, 24, ours=True)
