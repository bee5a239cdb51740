"""A graph in another float type is what it would be if it had been written in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.reference import run_graph
from helpers.typed_models import MODELS, written

import tfgraph
from tfgraph import ops
from tfgraph.backends.base import input_ports
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType
from tfgraph.ir.mask import causal, padding
from tfgraph.ops import verify
from tfgraph.ops.floats import numpy_dtype
from tfgraph.ops.with_dtype import with_dtype
from tfgraph.runtime.examples import example
from tfgraph.weights import Seeded

NARROW = (DType.float16, DType.bfloat16)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_in_that_type_gives_the_same_bits(name: str, dtype: DType) -> None:
    made, want = with_dtype(written(name, DType.float32), dtype), written(name, dtype)
    verify(made)
    assert [p.value for p in made.params] == [p.value for p in want.params]
    assert [i.value for i in made.inputs] == [i.value for i in want.inputs]
    assert [(o.name, o.value.type) for o in made.outputs] == [
        (o.name, o.value.type) for o in want.outputs
    ]
    sizes = {"batch": 2, "seq": 7}
    arrays: dict[str, Any] = {p.name: example(p, sizes) for p in input_ports(made)}
    arrays |= dict(Seeded(made.params))
    got, expected = run_graph(made, arrays), run_graph(want, arrays)
    for output in made.outputs:
        assert got[output.name].dtype == numpy_dtype(dtype)
        assert got[output.name].tobytes() == expected[output.name].tobytes()


def test_back_and_forth() -> None:
    graph = written("encoder", DType.float32)
    assert with_dtype(graph, DType.float32) == graph
    assert with_dtype(with_dtype(graph, DType.float16), DType.float32) == graph


def test_integers_bools_and_names_stay() -> None:
    with ops.graph("g") as g:
        x, ids = g.input("x", "f32", "n", 8), g.input("ids", "i64", "n")
        near = ops.less(x, 0.5)
        rows = ops.embedding(ids, g.param("table", "f32", 9, 8))
        g.output("y", ops.where(near, x, rows))
        g.output("near", near)
        g.output("next", ops.add(ids, 1))
    made = with_dtype(g.build(), DType.float16)
    verify(made)
    assert [str(o.value.type) for o in made.outputs] == ["f16[n,8]", "bool[n,8]", "i64[n]"]
    assert [v.name for v in made.values()] == [v.name for v in g.build().values()]


def test_casts_between_floats_go_and_others_stay() -> None:
    with ops.graph("g") as g:
        x = g.input("x", "f32", "n")
        wide = ops.cast(ops.exp(x), dtype="f64")
        g.output("y", ops.cast(ops.sqrt(wide), dtype="f32"))
        g.output("count", ops.cast(ops.cast(x, dtype="i64"), dtype="f32"))
    made = with_dtype(g.build(), DType.bfloat16)
    assert [node.op for node in made.nodes] == ["exp", "sqrt", "cast", "cast"]
    assert {o.value.type.dtype for o in made.outputs} == {DType.bfloat16}


def test_positions_are_exact_beyond_what_the_type_holds() -> None:
    """float16 counts to 2048, bfloat16 to 256."""
    with ops.graph("g") as g:
        x = g.input("x", "f32", "n", 2)
        angles = ops.mul(
            ops.reshape(ops.cast(ops.iota(length="n"), dtype="f32"), shape=("n", 1)), 0.5
        )
        frequencies = g.param("frequencies", "f32", 2)
        g.output("y", ops.add(x, ops.sin(ops.mul(angles, frequencies))))
    made = with_dtype(g.build(), DType.float16)
    verify(made)
    assert [str(p.value.type) for p in made.params] == ["f32[2]"]
    frequencies = np.array([1, 0.1], np.float32)
    got = run_graph(made, {"x": np.zeros((5000, 2), np.float16), "frequencies": frequencies})["y"]
    want = np.sin(np.arange(5000)[:, None] * 0.5 * frequencies.astype(np.float64))
    assert np.abs(got - want).max() < 1e-3


def test_what_is_computed_of_data_before_a_sine_is_data() -> None:
    with ops.graph("g") as g:
        x, w = g.input("x", "f32", "n", 8), g.param("w", "f32", 8, 8)
        rows = ops.embedding(g.input("ids", "i64", "n"), g.param("table", "f32", 9, 8))
        g.output("y", ops.add(ops.sin(ops.linear(x, w)), ops.cos(rows)))
    made = with_dtype(g.build(), DType.float16)
    assert {v.type.dtype for v in made.values()} == {DType.float16, DType.int64}


@pytest.mark.parametrize("hidden", [-3.4028234663852886e38, -1e9, -65504, -1e4])
def test_a_number_that_hides_scores_hides_them(hidden: float) -> None:
    with ops.graph("g") as g:
        x, keep = g.input("x", "f32", "n", 4), g.input("keep", "i64", "n", 4)
        off = ops.mul(ops.sub(1, ops.cast(keep, dtype="f32")), hidden)
        g.output("y", ops.softmax(ops.add(x, off)))
        g.output("z", ops.softmax(ops.where(ops.equal(keep, 0), ops.add(ops.mul(x, 0), hidden), x)))
    made = with_dtype(g.build(), DType.float16)
    verify(made)
    arrays = {"x": np.ones((1, 4), np.float16), "keep": np.array([[1, 1, 0, 0]])}
    results = run_graph(made, arrays)
    for name in "yz":
        np.testing.assert_array_equal(results[name], [[0.5, 0.5, 0, 0]])


def test_a_constant_that_the_type_does_not_hold() -> None:
    with ops.graph("g") as g:
        x = g.input("x", "f32", "n")
        g.output("y", ops.mul(x, 1e5))
    with pytest.raises(TfgraphError, match="mul: 100000 does not fit f16") as error:
        with_dtype(g.build(), DType.float16)
    assert error.value.hint == "bfloat16 has the range of float32"
    assert error.value.location is not None
    assert error.value.location.file == __file__
    verify(with_dtype(g.build(), DType.bfloat16))


def test_masks_keep_their_structure() -> None:
    with ops.graph("g") as g:
        x = g.input("x", "f32", 2, 3, "n", "n")
        keep = g.input("keep", "i64", 2, "n")
        g.output("y", ops.softmax(ops.mask(x, causal() & padding(keep))))
    made = with_dtype(g.build(), DType.float16)
    assert "mask(%x, causal() & padding(%keep)) : f16[2,3,n,n]" in tfgraph.print_graph(made)
