"""What exporters write out is recovered, with the values that were recorded: norms, activations,
rotary positions, masks, attentions. What only looks like one is left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.onnx_files import NAMES, export_path, references
from helpers.reference import run_graph
from helpers.tolerance import TRANSFORMERS, assert_close, assert_within

import tfgraph
import tfgraph.ops as ops
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ir import Graph, Mask
from tfgraph.ir import mask as masks
from tfgraph.onnx import import_onnx
from tfgraph.passes import IMPORTED_PIPELINE, PassReport, parse_pipeline, run_pipeline
from tfgraph.passes.proof import READ

# For each export: attentions, rotary positions (of queries and keys together where they lie side by
# side), norms, and the masks of the attentions.
EXPECTED = {
    "bert.legacy_op11": (2, 0, 5, {"padding": 2}),
    "bert.legacy_static": (2, 0, 5, {"padding": 2}),
    "bloom.legacy_dyn": (2, 0, 6, {"causal padding bias": 2}),
    "deberta_v2.dynamo_dyn": (2, 0, 6, {"dense bias": 2}),
    "gpt2.legacy_dyn": (2, 0, 5, {"causal padding": 2}),
    "gptj.legacy_op11": (2, 2, 3, {"causal padding": 2}),
    "llama.dynamo_dyn": (2, 2, 5, {"causal padding": 2}),
    "mixtral.legacy_dyn": (2, 2, 5, {"causal padding": 2}),
    "modernbert.dynamo_static": (4, 8, 10, {"padding": 2, "window padding": 2}),
    "qwen3.dynamo_sdpa23": (2, 4, 9, {"causal padding": 2}),
    "t5.dynamo_dyn": (6, 0, 12, {"padding relative": 2, "causal relative": 2, "padding": 2}),
    "vit.legacy_dyn": (2, 0, 5, {"": 2}),
    "whisper.dynamo_static": (6, 0, 12, {"": 4, "causal": 2}),
}
LEFT = {"sqrt", "erf", "tanh", "pow", "sigmoid"}
"""Ops that only what was not recovered would have; but these do."""
READINGS = ("gelu", "quick", "constant", "repeated")
KEPT = {
    "bert.legacy_op11": {"tanh"},
    "bert.legacy_static": {"tanh"},
}


@cache
def recovered(export: str) -> tuple[Graph, list[PassReport]]:
    graph, _ = import_onnx(export_path(export))
    return run_pipeline(graph, parse_pipeline(IMPORTED_PIPELINE), prove=True)


def mask_names(graph: Graph) -> Counter[str]:
    """The masks of the attentions, by the names of their parts."""
    found: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op == "attention":
            given = next((o for o in node.operands if isinstance(o, Mask)), None)
            parts = () if given is None else given.parts
            found[" ".join(type(part).__name__.lower() for part in parts)] += 1
    return found


@pytest.mark.parametrize("export", NAMES)
def test_everything_is_recovered(export: str) -> None:
    graph, _ = recovered(export)
    count = Counter(node.op for node in graph.nodes)
    attentions, rotaries, norms, named = EXPECTED[export]
    assert count["attention"] == attentions
    assert count["rotary"] == rotaries
    assert sum(n for op, n in count.items() if op.endswith("_norm")) == norms
    assert mask_names(graph) == named
    assert not set(count) & LEFT - KEPT.get(export, set())


@pytest.mark.parametrize("export", NAMES)
def test_all_is_proved_but_what_is_read(export: str) -> None:
    _, reports = recovered(export)
    for report in reports:
        read = [r for r in report.applied if "empty-rows" in r or r.startswith(READINGS)]
        assert report.proof is not None
        assert (report.proof.kind == READ) == bool(read), report


@pytest.mark.parametrize("export", NAMES)
def test_values_stay(export: str) -> None:
    graph, _ = recovered(export)
    _, weights = import_onnx(export_path(export))
    run, ref = NumpyExecutable(graph, weights), references(export)
    prefixes = ["in"] + ["leftpad"] * ("leftpad.logits" in ref and bool(graph.symbols))
    for prefix in prefixes:
        given = {i.value.name: ref[f"{prefix}.{i.value.name}"] for i in graph.inputs}
        for name, got in run(**given).items():
            want = ref[f"{'out' if prefix == 'in' else prefix}.{name}"]
            real: Any = ...
            if "attention_mask" in given and want.shape[:2] == given["attention_mask"].shape:
                real = given["attention_mask"].astype(bool)
            assert_within(np.asarray(got)[real], want[real], TRANSFORMERS, f"{prefix} {name}")


def after(graph: Graph, passes: str) -> tuple[Graph, list[PassReport]]:
    return run_pipeline(graph, parse_pipeline(passes))


def check(make: Callable[[Any], Any], passes: str, ops_after: str, *shape: int) -> Graph:
    """The ops after the passes; the values stay, within what one rounding more costs."""
    with tfgraph.graph("g") as g:
        g.output("y", make(g.input("x", "f32", *(shape or (2, 3, 8)))))
    before = g.build()
    graph, _ = after(before, passes)
    assert [n.op for n in graph.nodes] == ops_after.split()
    x = np.random.default_rng(0).standard_normal(shape or (2, 3, 8)).astype(np.float32)
    weights = {
        p.value.name: np.random.default_rng(1)
        .standard_normal(tuple(map(int, p.value.type.shape)))
        .astype(np.float32)
        for p in before.params
    }
    a, b = (NumpyExecutable(item, weights)(x=x)["y"] for item in (before, graph))
    assert_close(b, a, length=32)
    return graph


def layer_norm(x: Any, *, last: bool = True, keep: Any = None) -> Any:
    axis = -1 if last else 1
    d = x - ops.mean(x, axis=axis, keepdims=True)
    return d / ops.sqrt(ops.mean(d**2, axis=axis, keepdims=True) + 1e-5)


def rms(x: Any) -> Any:
    return 1 / ops.sqrt(ops.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def row(name: str, *shape: int) -> Any:
    return ops.current().param(name, "f32", *(shape or (8,)))


def test_norms() -> None:
    check(layer_norm, "recover-norms", "layer_norm")
    check(lambda x: layer_norm(x) * row("s") + row("b"), "recover-norms", "layer_norm")
    check(lambda x: row("s") * (x * rms(x)), "recover-norms", "rms_norm")
    check(lambda x: x * rms(x) * row("s", 3, 8), "recover-norms", "rms_norm mul")
    text = "mean sub pow mean add sqrt div"
    check(lambda x: layer_norm(x, last=False), "recover-norms", text)


def gelu(x: Any, root: float = 1.4142135) -> Any:
    return x * (1 + ops.erf(x / root)) * 0.5


def tanh_form(x: Any, cubic: float = 0.044715) -> Any:
    return 0.5 * x * (1 + ops.tanh(0.7978845608028654 * (x + cubic * x**3)))


def bloom(x: Any) -> Any:
    return x * 0.5 * (1 + ops.tanh(x * 0.79788456 * (1 + x * 0.044715 * x)))


def test_activations() -> None:
    check(gelu, "recover-activations", "gelu")
    check(lambda x: 0.5 * x * (ops.erf(x * 0.70710677) + 1), "recover-activations", "gelu")
    check(lambda x: x * (0.5 * (ops.erf(x * 0.70710677) + 1)), "recover-activations", "gelu")
    check(tanh_form, "recover-activations", "gelu_tanh")
    check(bloom, "recover-activations", "gelu_tanh")
    check(lambda x: x * ops.sigmoid(x), "recover-activations", "silu")
    check(lambda x: x * ops.sigmoid(x * 1.702), "recover-activations", "quick_gelu")
    check(lambda x: gelu(x, 1.4142), "recover-activations", "div erf add mul mul")
    text = "mul pow mul add mul tanh add mul"
    check(lambda x: tanh_form(x, 0.0447), "recover-activations", text)
    check(lambda x: x * ops.sigmoid(x * 1.7), "recover-activations", "mul sigmoid mul")


def test_linear() -> None:
    w, b = ("w", 8, 5), ("b", 5)
    check(lambda x: x @ row(*w) + row(*b), "recover-linear", "linear")
    check(
        lambda x: x @ ops.transpose(row("w", 5, 8), perm=(1, 0)),
        "recover-linear",
        "transpose linear",
    )
    check(lambda x: x @ ops.transpose(x, perm=(0, 2, 1)), "recover-linear", "transpose matmul")
    check(lambda x: x @ row(*w) + row("b", 3, 5), "recover-linear", "linear add")


def scores(g: Any, *shape: Any) -> Any:
    """Q K^T of four-dimensional inputs."""
    batch, length = shape or ("batch", "seq")
    q, k = (g.input(n, "f32", batch, 2, length, 4) for n in "qk")
    return q @ ops.transpose(k, perm=(0, 1, 3, 2))


def number(value: float) -> Any:
    return ops.full(shape=(), value=value, dtype="f32")


def line(size: Any, *shape: Any) -> Any:
    return ops.reshape(ops.iota(length=size), shape=shape)


def same_where_each_row_sees_a_key(before: Graph, recovered: Graph) -> None:
    """The values of both, of masks [3, 5] that allow the first key."""
    ids = np.random.default_rng(0).integers(0, 2, (3, 5))
    ids[:, 0] = 1
    q, k = np.random.default_rng(1).standard_normal((2, 3, 2, 5, 4)).astype(np.float32)
    given = {
        i.value.name: {"q": q, "k": k}.get(i.value.name, ids).astype(i.value.type.dtype.value)
        for i in recovered.inputs
    }
    a, b = (run_graph(graph, given)["y"] for graph in (before, recovered))
    assert_close(b, a, length=8)


def recovered_mask(make: Callable[[Any, Any, Any], Any], *sizes: Any, options: str = "") -> str:
    """The mask of softmax(scores + where(make(query, key, g), 0, -3e38))."""
    batch, n = sizes or ("batch", "seq")
    with tfgraph.graph("g") as g:
        x = scores(g, batch, n)
        seen = make(line(n, 1, 1, n, 1), line(n, 1, 1, 1, n), g)
        g.output("y", ops.softmax(x + ops.where(seen, number(0), number(-3.4e38))))
    graph, reports = after(g.build(), f"simplify,cse,recover-masks{options}")
    (node,) = [n for n in graph.nodes if n.op == "mask"]
    assert reports[-1].count
    shown = str(node.operands[1])
    same_where_each_row_sees_a_key(g.build(), graph)
    return shown


def test_masks_from_positions() -> None:
    assert recovered_mask(lambda q, k, g: ops.logical_not(ops.less(q, k))) == "causal()"
    assert recovered_mask(lambda q, k, g: ops.less(k, q + 1)) == "causal()"
    assert recovered_mask(lambda q, k, g: ops.less(k, q + 2)) == "window(right=1)"
    assert recovered_mask(lambda q, k, g: ops.less(q, k + 3)) == "window(left=2)"
    near = lambda q, k, g: ops.logical_not(ops.less(1, ops.abs_(q - k)))  # noqa: E731
    assert recovered_mask(near) == "window(left=1, right=1)"
    both = lambda q, k, g: ops.logical_and(  # noqa: E731
        ops.less(k, q + 1), ops.logical_not(ops.less(q, 0))
    )
    assert recovered_mask(both) == "causal()"


def test_what_positions_do_not_say() -> None:
    assert recovered_mask(lambda q, k, g: ops.less(k, q * 2 + 1)).startswith("dense(")
    assert recovered_mask(lambda q, k, g: ops.less(k, 4)).startswith("dense(")


def test_keys_that_count() -> None:
    def plain(q: Any, k: Any, g: Any) -> Any:
        keep = g.input("ids", "bool", "batch", "seq")
        return ops.reshape(keep, shape=("batch", 1, 1, "seq"))

    def by_index(q: Any, k: Any, g: Any) -> Any:
        keep = ops.cast(g.input("ids", "i64", "batch", "seq"), dtype="bool")
        return ops.take_at(keep, line("batch", "batch", 1, 1, 1), k)

    def flat(q: Any, k: Any, g: Any) -> Any:
        keep = ops.reshape(g.input("ids", "bool", 3, 5), shape=(15,))
        return ops.take(keep, line(3, 3, 1, 1, 1) * 5 + k)

    def other_rows(q: Any, k: Any, g: Any) -> Any:
        keep = g.input("ids", "bool", 3, 5)
        return ops.take_at(keep, 2 - line(3, 3, 1, 1, 1), k)

    assert recovered_mask(plain) == "padding(%ids)"
    assert recovered_mask(by_index) == "padding(%ids)"
    assert recovered_mask(flat, 3, 5) == "padding(%ids)"
    assert recovered_mask(other_rows, 3, 5).startswith("dense(")


def test_pairs_are_not_taken_for_keys() -> None:
    """Where batch and length are the same number, a mask [query, key] is not one [batch, key]."""
    with tfgraph.graph("g") as g:
        x = scores(g, 5, 5)
        pairs = ops.reshape(g.input("pairs", "bool", 5, 5), shape=(1, 1, 5, 5))
        pairs = ops.broadcast_to(pairs, shape=(5, 1, 5, 5))
        g.output("y", ops.softmax(ops.where(pairs, x, number(-1e30))))
    graph, _ = after(g.build(), "recover-masks")
    (node,) = [n for n in graph.nodes if n.op == "mask"]
    assert isinstance(node.operands[1], masks.Dense)


def test_queries_that_count_are_not_taken_for_keys() -> None:
    """A mask [batch, length] of the queries, though there are as many keys."""

    def column(q: Any, k: Any, g: Any) -> Any:
        return ops.reshape(g.input("ids", "bool", 3, 5), shape=(3, 1, 5, 1))

    def repeated(q: Any, k: Any, g: Any) -> Any:
        return ops.broadcast_to(column(q, k, g), shape=(3, 1, 5, 5))

    for make in (column, repeated):
        with tfgraph.graph("g") as g:
            x = scores(g, 3, 5)
            g.output("y", ops.softmax(ops.where(make(None, None, g), x, number(-1e30))))
        graph, _ = after(g.build(), "recover-masks")
        (node,) = [n for n in graph.nodes if n.op == "mask"]
        assert isinstance(node.operands[1], masks.Dense)


def decoder_mask(keep: Any, g: Any) -> Any:
    """What decoders add: -3e38 where a key is later, and where both that and `keep` are 0."""
    later = ops.less(line("seq", "seq", 1), line("seq", "seq"))
    added = ops.full(shape=("seq", "seq"), value=-3.4e38) * ops.cast(later, dtype="f32")
    added = ops.broadcast_to(
        ops.reshape(added, shape=(1, 1, "seq", "seq")), shape=("batch", 1, "seq", "seq")
    )
    keep = ops.reshape(keep(g), shape=("batch", 1, 1, "seq"))
    return ops.where(ops.equal(added + keep, 0), number(-3.4e38), added)


@pytest.mark.parametrize(
    ("keep", "mask"),
    [
        (lambda g: ops.full(shape=("batch", "seq"), value=1), "causal()"),
        (
            lambda g: ops.cast(g.input("ids", "i64", "batch", "seq"), dtype="f32"),
            "causal() & padding(%ids)",
        ),
        (lambda g: g.input("ids", "f32", "batch", "seq"), "dense(%18~3) & causal()"),
    ],
)
def test_the_mask_of_a_decoder(keep: Any, mask: str) -> None:
    with tfgraph.graph("g") as g:
        g.output("y", ops.softmax(scores(g) + decoder_mask(keep, g)))
    graph, _ = after(g.build(), "simplify,cse,recover-masks")
    (node,) = [n for n in graph.nodes if n.op == "mask"]
    assert str(node.operands[1]).startswith(mask)
    same_where_each_row_sees_a_key(g.build(), graph)


@pytest.mark.parametrize("otherwise", [0, 1])
def test_the_guard_of_rows_with_no_key(otherwise: int) -> None:
    """where(isnan(p), 0, p) of a softmax is p, of which such a row is zeros; other numbers stay."""
    with tfgraph.graph("g") as g:
        seen = ops.less(line("seq", 1, 1, 1, "seq") + 1, line("seq", 1, 1, "seq", 1) + 1)
        p = ops.softmax(ops.mask(scores(g), masks.dense(seen)))
        y = ops.where(ops.logical_not(ops.equal(p, p)), number(otherwise), p)
        g.output("y", y)
    graph, reports = after(g.build(), "recover-masks")
    assert reports[0].applied.get("guard-changes-nan-rows", 0) == 1 - otherwise
    q, k = np.random.default_rng(1).standard_normal((2, 3, 2, 5, 4)).astype(np.float32)
    a, b = (run_graph(item, {"q": q, "k": k})["y"] for item in (g.build(), graph))
    assert_close(b, a, length=8)


def test_keys_turned_in_folded_heads() -> None:
    """[b, h, k, d] -> [b*h, k, d] -> [b*h, d, k] -> [b, h, d, k] is one transpose; of other folds
    it is not."""

    def turned(x: Any, *folded: int) -> Any:
        y = ops.transpose(ops.reshape(x, shape=folded), perm=(0, 2, 1))
        return ops.reshape(y, shape=(2, 3, 5, 4))

    check(lambda x: turned(x, 6, 4, 5), "recover-heads", "transpose", 2, 3, 4, 5)
    check(lambda x: turned(x, 3, 8, 5), "recover-heads", "reshape transpose reshape", 2, 3, 4, 5)


def test_strict_masks_keep_the_arithmetic() -> None:
    causal = lambda q, k, g: ops.less(k, q + 1)  # noqa: E731
    assert recovered_mask(causal, options="{strict=true}").startswith("bias(")


def test_rows_with_no_key_are_reported() -> None:
    """Of arithmetic they are the mean of all values, of a mask zeros."""
    with tfgraph.graph("g") as g:
        seen = ops.less(line("seq", 1, 1, 1, "seq") + 1, line("seq", 1, 1, "seq", 1) + 1)
        hidden = ops.where(seen, number(0), number(-3.4e38))
        g.output("y", ops.softmax(scores(g) + hidden))
    graph, reports = after(g.build(), "recover-masks")
    assert reports[0].applied == {"changes-empty-rows": 1}
    q, k = np.random.default_rng(1).standard_normal((2, 3, 2, 5, 4)).astype(np.float32)
    a, b = (run_graph(item, {"q": q, "k": k})["y"] for item in (g.build(), graph))
    assert_close(a[..., 0, :], np.full((3, 2, 5), 0.2, np.float32), length=8)
    assert not b[..., 0, :].any()
    assert_close(b[..., 1:, :], a[..., 1:, :], length=8)


def test_a_small_constant_hides_nothing() -> None:
    with tfgraph.graph("g") as g:
        seen = ops.less(line("seq", 1, 1, 1, "seq"), line("seq", 1, 1, "seq", 1) + 1)
        g.output("y", ops.softmax(scores(g) + ops.where(seen, number(0), number(-9))))
    graph, _ = after(g.build(), "recover-masks")
    (node,) = [n for n in graph.nodes if n.op == "mask"]
    assert isinstance(node.operands[1], masks.Bias)


def half_turn(x: Any, cos: Any, sin: Any) -> Any:
    low, high = (ops.slice_(x, axis=-1, start=i, stop=i + 4) for i in (0, 4))
    return x * cos + ops.concat(-high, low, axis=-1) * sin


def test_rotary_needs_equal_halves() -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", "batch", 2, 3, 8)
        angle = g.param("angle", "f32", 1, 1, 3, 4)
        whole = ops.concat(angle, angle, axis=-1)
        other = g.param("other", "f32", 1, 1, 3, 8)
        g.output("same", half_turn(x, ops.cos(whole), ops.sin(whole)))
        g.output("maybe", half_turn(x, ops.cos(other), ops.sin(other)))
    graph, reports = after(g.build(), "recover-rotary")
    assert [n.op for n in graph.nodes].count("rotary") == 1
    reasons = [d.reason for d in reports[0].declined]
    assert len(reasons) == 1
    assert "has two halves that may differ" in reasons[0]
    rng = np.random.default_rng(0)
    weights = {
        "angle": rng.random((1, 1, 3, 4), np.float32),
        "other": rng.random((1, 1, 3, 8), np.float32),
    }
    given = rng.standard_normal((2, 2, 3, 8)).astype(np.float32)
    a, b = (NumpyExecutable(item, weights)(x=given)["same"] for item in (g.build(), graph))
    assert_close(b, a, length=4)
