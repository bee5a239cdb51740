"""Graphs run, round and expand as the formulas say; nodes and errors know the user's line."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from helpers.op_samples import Sample, own_ops, takes

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Dim, DType, Graph, Input, Node, Value, rsqrt, tensor
from tfgraph.ir.mask import causal, padding
from tfgraph.ops import (
    REGISTRY,
    FloatArray,
    add,
    add_layer_norm,
    attention,
    embedding,
    evaluate,
    expand,
    full,
    graph,
    iota,
    layer_norm,
    linear,
    linear_activation,
    matmul,
    mul,
    slice_,
    softmax,
    sum_,
    take,
    verify,
    xp,
)

NDArray = np.ndarray[Any, Any]
LIKE = FloatArray(np.zeros(1, np.float32))


def run(g: Graph, given: dict[str, Any], sizes: dict[str, int] | None = None) -> dict[str, NDArray]:
    """The outputs by name."""
    arrays = {k: v if isinstance(v, FloatArray) else FloatArray(v) for k, v in given.items()}
    known = dict(arrays)
    for node, results in evaluate(g, arrays, sizes or {}, LIKE):
        known.update(zip((v.name for v in node.outputs), results, strict=True))
    return {o.name: np.asarray(known[o.value.name].data) for o in g.outputs}


# A post-norm encoder layer, by hand. Vaswani et al. 2017, section 3; Devlin et al. 2019.

WIDTH, HEADS, FFN, VOCABULARY = 12, 3, 20, 11
WEIGHTS: dict[str, tuple[int, ...]] = {
    "table": (VOCABULARY, WIDTH),
    **{f"w{n}": (WIDTH, WIDTH) for n in "qkvo"},
    **{f"b{n}": (WIDTH,) for n in "qkvo"},
    "w1": (WIDTH, FFN),
    "b1": (FFN,),
    "w2": (FFN, WIDTH),
    "b2": (WIDTH,),
    "s1": (WIDTH,),
    "t1": (WIDTH,),
    "s2": (WIDTH,),
    "t2": (WIDTH,),
}


def encoder() -> Graph:
    with graph("encoder") as g:
        ids = g.input("ids", "i64", "batch", "seq")
        keep = g.input("keep", "i64", "batch", "seq")
        w = {name: g.param(name, "f64", *shape) for name, shape in WEIGHTS.items()}
        x = embedding(ids, w["table"]) * 4
        q, k, v = (linear(x, w[f"w{n}"], w[f"b{n}"]) for n in "qkv")
        a = attention(q, k, v, padding(keep), heads=HEADS, kv_heads=HEADS, scale=rsqrt(4))
        y = add_layer_norm(linear(a, w["wo"], w["bo"]), x, w["s1"], w["t1"], eps=1e-12)
        h = linear_activation(y, w["w1"], w["b1"], activation="gelu")
        z = layer_norm(y + linear(h, w["w2"], w["b2"]), w["s2"], w["t2"], eps=1e-12)
        g.output("z", z)
    return g.build()


def encoder_by_hand(ids: NDArray, keep: NDArray, w: dict[str, NDArray]) -> NDArray:
    def norm(x: NDArray, scale: NDArray, shift: NDArray) -> NDArray:
        mean = x.sum(-1, keepdims=True) / WIDTH
        variance = ((x - mean) ** 2).sum(-1, keepdims=True) / WIDTH
        return scale * (x - mean) / np.sqrt(variance + 1e-12) + shift

    z = np.empty((*ids.shape, WIDTH))
    for b in range(len(ids)):
        x = w["table"][ids[b]] * 4
        q, k, v = (x @ w[f"w{n}"] + w[f"b{n}"] for n in "qkv")
        heads = []
        for h in range(HEADS):
            columns = slice(4 * h, 4 * h + 4)
            scores = q[:, columns] @ k[:, columns].T / math.sqrt(4)
            weights = np.exp(scores) * (keep[b] != 0)
            heads.append(weights / weights.sum(-1, keepdims=True) @ v[:, columns])
        y = norm(x + np.concatenate(heads, -1) @ w["wo"] + w["bo"], w["s1"], w["t1"])
        inner = y @ w["w1"] + w["b1"]
        inner = np.array([t * (1 + math.erf(t / math.sqrt(2))) / 2 for t in inner.flat])
        z[b] = norm(y + inner.reshape(-1, FFN) @ w["w2"] + w["b2"], w["s2"], w["t2"])
    return z


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7), (3, 33)])
@pytest.mark.parametrize("expanded", [False, True], ids=["fused", "expanded"])
def test_an_encoder_layer_by_hand(batch: int, length: int, expanded: bool) -> None:
    rng = np.random.default_rng(length)
    w = {name: rng.normal(0, 0.5, shape) for name, shape in WEIGHTS.items()}
    ids = rng.integers(0, VOCABULARY, (batch, length))
    keep = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int64)
    g = expand(encoder()) if expanded else encoder()
    verify(g)
    got = run(g, {"ids": ids, "keep": keep, **w}, {"batch": batch, "seq": length})["z"]
    want = encoder_by_hand(ids, keep, w)
    assert got.dtype == np.float64
    assert np.abs(got - want).max() <= 1e-12 * np.sqrt((want**2).mean())


# Rounding and expanding, for every op.


@pytest.mark.parametrize("kind", [DType.float16, DType.bfloat16, DType.float32], ids=str)
@pytest.mark.parametrize("name", [n for n in own_ops() if "logical" not in n])
def test_rounding_happens_once_an_op(name: str, kind: DType) -> None:
    for seed in range(6):
        sample = Sample(name, kind, seed)
        narrow = run(sample.graph, sample.given, sample.sizes)
        wide = {
            k: FloatArray(a.data.astype(np.float64)) if a.dtype.is_float else a
            for k, a in sample.given.items()
        }
        exact = run(sample.graph, wide, sample.sizes)
        for key, result in narrow.items():
            np.testing.assert_array_equal(
                result.astype(np.float64), exact[key].astype(result.dtype).astype(np.float64)
            )


@pytest.mark.parametrize("name", own_ops("composite"))
def test_expanding_a_composite_op_gives_the_same_numbers(name: str) -> None:
    for seed in range(20):
        sample = Sample(name, DType.float64, seed)
        expanded = expand(sample.graph)
        verify(expanded)
        assert all(n.op != name for n in expanded.nodes)
        assert {v.name for v in sample.graph.values()} <= {v.name for v in expanded.values()}
        _same_results(sample, expanded)


@pytest.mark.parametrize(
    "name", [n for n in own_ops("core") if REGISTRY[n].operands and n != "cast"]
)
def test_a_core_op_expands_to_what_its_body_does(name: str) -> None:
    kind = DType.float64 if DType.float64 in takes(REGISTRY[name]) else DType.bool_
    for seed in range(20):
        sample = Sample(name, kind, seed)
        expanded = expand(sample.graph, lambda node: True)
        verify(expanded)
        _same_results(sample, expanded)


def _same_results(sample: Sample, expanded: Graph) -> None:
    want = run(sample.graph, sample.given, sample.sizes)
    got = run(expanded, sample.given, sample.sizes)
    assert got.keys() == want.keys()
    for key in want:
        assert got[key].dtype == want[key].dtype
        np.testing.assert_array_equal(got[key], want[key])


def test_expand_until_only_core_ops_are_left() -> None:
    g = encoder()
    while any(REGISTRY[n.op].kind == "composite" for n in g.nodes):
        g = expand(g)
    verify(g)
    assert {n.op for n in g.nodes} <= set(own_ops("core"))


def test_expansions_keep_the_place_and_make_new_names() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "b", 4)
        y = g.label(add_layer_norm(x, x), "y")
        place = Location(__file__, _line(), 13)
        g.label(y + 1, "y.0")  # taken
        g.output("y", y)
    expanded = expand(g.build())
    verify(expanded)
    first, second, _ = expanded.nodes
    assert (first.op, second.op) == ("add", "layer_norm")
    assert second.output.name == "y"
    assert first.output.name not in ("y", "y.0", "x")
    for node in (first, second):
        assert node.location is not None
        assert (node.location.file, node.location.line) == (__file__, place.line - 1)


def test_expand_only_what_is_picked() -> None:
    g = encoder()
    some = expand(g, lambda n: n.op == "add_layer_norm")
    ops = [n.op for n in some.nodes]
    assert "add_layer_norm" not in ops
    assert "attention" in ops


# Evaluation itself.


def test_results_come_in_order_and_all_of_them() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 3)
        y = x + 1
        z = y * x
        g.output("z", z)
        g.output("y", y)
    seen = list(evaluate(g.build(), {"x": FloatArray(np.ones(3, np.float32))}, {}, LIKE))
    assert [node.op for node, _ in seen] == ["add", "mul"]
    assert [results[0].data.tolist() for _, results in seen] == [[2, 2, 2], [2, 2, 2]]


def test_the_domain_is_set_only_while_running() -> None:
    with graph("g") as g:
        g.output("n", iota(length=g.symbol("n")))
    run(g.build(), {}, {"n": 3})
    assert xp.domain.get(None) is None


@pytest.mark.parametrize("like", [np.float16, np.int64, np.bool_, np.float64])
def test_a_full_tensor_does_not_depend_on_the_array_of_the_domain(like: Any) -> None:
    with graph("g") as g:
        g.output("tenth", full(shape=(2,), value=0.1, dtype=DType.float32))
        g.output("big", full(shape=(g.symbol("n"), 1), value=70001, dtype=DType.int64))
    found = dict(
        zip(
            ("tenth", "big"),
            (r for _, (r,) in evaluate(g.build(), {}, {"n": 2}, FloatArray(np.ones(3, like)))),
            strict=True,
        )
    )
    np.testing.assert_array_equal(found["tenth"].data, np.full(2, 0.1, np.float32))
    np.testing.assert_array_equal(found["big"].data, np.full((2, 1), 70001))


def test_no_warning_escapes(recwarn: pytest.WarningsRecorder) -> None:
    from tfgraph.ops import cast, exp, log, sigmoid

    x = FloatArray(np.array([-1e4, 0, 1e4, np.inf], np.float16))
    for f in (exp, log, sigmoid, softmax):
        f(x)
    mul(x, x)
    cast(x, dtype=DType.int8)
    assert not recwarn.list


# Places.


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_node_knows_the_users_file_line_and_column() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 2, 2)
        a = softmax(x); b = x @ a; c = -b; d = 1 - c  # fmt: skip  # noqa: E702
        line = _line() - 1
        e = add(
            d,
            mul(c, 2),
        )
        g.output("e", e)
    source = "        a = softmax(x); b = x @ a; c = -b; d = 1 - c"
    places = [n.location for n in g.build().nodes]
    assert all(p is not None and p.file == __file__ for p in places)
    found = [(p.line - line, p.column) for p in places if p is not None]
    columns = [source.index(s) + 1 for s in ("softmax(x)", "x @ a", "-b", "1 - c")]
    assert found[:4] == [(0, c) for c in columns]
    assert found[4:] == [(4, 13), (2, 13)]


def test_the_library_is_skipped_and_helpers_of_the_user_are_not() -> None:
    def block(x: Any) -> Any:
        return x + 1

    with graph("g") as g:
        g.output("y", block(g.input("x", "f32", 2)))
    (node,) = g.build().nodes
    assert node.location is not None
    assert node.location.line == inspect.getsourcelines(block)[1] + 1


def test_a_place_can_be_given() -> None:
    place = Location("model.yaml", 7, 3)
    with graph("g") as g, g.at(place):
        x = g.input("x", "f32", 2)
        y = softmax(x)
        with pytest.raises(TfgraphError) as inferred:
            x @ x
        with pytest.raises(TfgraphError) as bound:
            x @ 2
        g.output("y", y)
    assert [n.location for n in g.build().nodes] == [place]
    assert inferred.value.location == bound.value.location == place


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, g: x @ x, "matmul: the number of rows of f32[2,3] is 2, expected 3"),
        (lambda x, g: matmul(x, 3), "matmul: 'b' must be a tensor, not a number"),
        (lambda x, g: x @ 3, "matmul: 'b' must be a tensor, not a number"),
        (lambda x, g: x + float("nan"), "add: b: nan is not a finite constant"),
        (lambda x, g: x + "one", "add: an operand belongs to another graph, or to none"),
        (lambda x, g: x + None, "add: 'b' must be given"),
        (lambda x, g: softmax(x, axis=2), "softmax: axis 2 is out of range for rank 2"),
        (lambda x, g: softmax(x, axes=1), "softmax has no attribute 'axes'"),
        (lambda x, g: sum_(x, axis=None), "sum: axis: expected int, got None"),
        (lambda x, g: slice_(x, axis=0), "slice: attribute 'stop' is missing"),
        (lambda x, g: softmax(), "softmax: operand 'x' is missing"),
        (lambda x, g: softmax(x, x), "softmax takes 1 operands"),
        (lambda x, g: g.apply("sofmax", x), "unknown op 'sofmax'"),
        (lambda x, g: g.apply("softmax", 3), "softmax: 'x' must be a tensor, not a number"),
        (lambda x, g: attention(x, x, x, heads=1, kv_heads=1, scale=1),
         "attention: expected q, k, v of [batch, length, width], got f32[2,3]"),
        (lambda x, g: layer_norm(x, x), "layer_norm: the scale is f32[2,3], expected f32[3]"),
        (lambda x, g: layer_norm(x, eps=-1), "layer_norm: eps is -1, expected at least 0"),
        (lambda x, g: add(x, g.input("i", "i64", 3)), "add: dtypes differ: f32 and i64"),
        (lambda x, g: add(x, g.input("s", "f32", "s")),
         "add: shapes [2,3] and [s] do not broadcast: 3 against s"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_a_mistake_is_reported_at_the_users_line(wrong: Any, message: str) -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 2, 3)
        with pytest.raises(TfgraphError) as caught:
            wrong(x, g)
    assert caught.value.message == message
    place = caught.value.location
    assert place is not None
    assert place.file == __file__
    lines, first = inspect.getsourcelines(wrong)
    assert first <= place.line < first + len(lines)
    assert place.column > 1


def test_outside_of_a_graph() -> None:
    with pytest.raises(TfgraphError, match="no graph is being built") as caught:
        iota(length=3)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert caught.value.hint == "with tfgraph.graph('name') as g:"


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"heads": 3, "kv_heads": 1}, "3 heads do not divide the width 8"),
        ({"heads": 4, "kv_heads": 3}, "4 query heads are not a multiple of 3 key/value heads"),
        ({"heads": 4, "kv_heads": 0}, "4 query heads are not a multiple of 0 key/value heads"),
        ({"heads": 0, "kv_heads": 1}, "0 heads do not divide the width 8"),
        ({"heads": 4, "kv_heads": 2}, "head sizes differ: 2 of q, 4 of k"),
        ({"heads": 4, "kv_heads": 4, "softcap": 0}, "softcap is 0, expected a positive rational"),
        ({"heads": 4, "kv_heads": 4, "softcap": rsqrt(2)},
         "softcap is rsqrt(2), expected a positive rational"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_heads_must_fit(attrs: dict[str, Any], message: str) -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "b", "s", 8)
        with pytest.raises(TfgraphError) as caught:
            attention(x, x, x, **attrs, scale=1)
    assert caught.value.message == f"attention: {message}"


# While running.


def test_an_index_out_of_range_is_reported_at_the_node() -> None:
    with graph("g") as g:
        table, ids = g.input("table", "f32", 3, 2), g.input("ids", "i64", "n")
        g.output("y", take(table, ids))
        line = _line() - 1
    for index in (3, -1):
        with pytest.raises(TfgraphError, match=f"take: index {index} is out of range") as caught:
            run(g.build(), {"table": np.ones((3, 2), np.float32), "ids": np.array([0, index])})
        assert caught.value.location is not None
        assert caught.value.location.line == line


def test_sizes_that_do_not_fit_are_reported_at_the_node() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "n")
        g.output("y", slice_(x, axis=0, start=2, stop="n"))
        line = _line() - 1
    with pytest.raises(TfgraphError, match="is not a window of axis 0") as caught:
        run(g.build(), {"x": np.ones(1, np.float32)}, {"n": 1})
    assert caught.value.location is not None
    assert caught.value.location.line == line


# The verifier of types.


def _graph_of(node: Node, *inputs: Value) -> Graph:
    from tfgraph.ir import Fill

    return Graph("g", tuple(Input(v, Fill("ones")) for v in inputs), (), (node,), ())


def test_verify_names_the_node_and_its_place() -> None:
    x = Value("x", tensor("f32", "n", 4))
    place = Location("model.py", 3, 5)
    wrong = Node("softmax", (x,), (Value("y", tensor("f32", "n", 5)),), {"axis": -1}, place)
    with pytest.raises(TfgraphError) as caught:
        verify(_graph_of(wrong, x))
    assert caught.value.message == "%y = softmax: the result is f32[n,4], not f32[n,5]"
    assert caught.value.location == place
    unknown = Node("sofmax", (x,), (Value("y", x.type),), {}, place)
    with pytest.raises(TfgraphError, match="unknown op 'sofmax'") as caught:
        verify(_graph_of(unknown, x))
    assert caught.value.hint == "did you mean 'softmax'?"
    refused = Node("matmul", (x, x), (Value("y", x.type),), {}, place)
    with pytest.raises(TfgraphError, match="the number of rows of") as caught:
        verify(_graph_of(refused, x))
    assert caught.value.location == place


def test_verify_takes_what_the_dsl_builds() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "b", "s", 8)
        a = attention(x, x, x, causal(), heads=2, kv_heads=2, scale=rsqrt(4))
        total, normed = add_layer_norm(a, x, keep_sum=True)
        g.output("y", total + normed)
    built = g.build()
    verify(built)
    assert all(isinstance(d, Dim) for v in built.values() for d in v.type.shape)
