"""Random models: passes keep every value, leave nothing for a second run, and look at structure
alone, not at names or at the order of commutative operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import assert_close
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfgraph import ops
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.blocks import Experts, Layer, Norm, decoder_states, encoder_states
from tfgraph.ir import Graph, Value, map_operand
from tfgraph.ir import mask as masks
from tfgraph.ops import Builder, find_op
from tfgraph.passes import DEFAULT_PIPELINE, PASSES, parse_pipeline, run_pipeline

SIZES = st.sampled_from([1, 2, 3, 7])
MASKS: dict[str, Callable[[Builder], masks.Mask | None]] = {
    "none": lambda g: None,
    "causal": lambda g: masks.causal(),
    "window": lambda g: masks.window(left=2, right=0),
    "padding": lambda g: masks.padding(g.input("keep", "i64", "batch", "seq")),
    "lengths": lambda g: masks.padding(g.input("lengths", "i64", "batch")) & masks.causal(),
    "segments": lambda g: masks.segments(g.input("ids", "i64", "batch", "seq")),
    "dense": lambda g: masks.dense(g.input("dense", "bool", "batch", 1, "seq", "seq")),
    "bias": lambda g: masks.bias(g.input("bias", "f32", "seq", "seq")) & masks.causal(),
}


@dataclass(frozen=True)
class Model:
    """A stack of layers, some of whose inner values are outputs too."""

    layers: int
    layer: Layer
    mask: str
    memory: bool
    embed: bool
    states: bool
    constants: bool
    wide: int

    def graph(self) -> Graph:
        with ops.graph("random") as g:
            x = g.input("x", "f32", "batch", "seq", self.wide)
            if self.embed:
                table = g.param("positions", "f32", 16, self.wide)
                x = ops.add(x, ops.slice_(table, axis=0, start=0, stop="seq"))
            if self.constants:
                x = ops.reshape((x * 3) / 1, shape=("batch", "seq", self.wide)) * 0.5 - 0
            mask = MASKS[self.mask](g)
            if self.memory:
                memory = g.input("memory", "f32", "batch", "source", self.wide)
                states = decoder_states(x, self.layers, self.layer, mask=mask, memory=memory)
            else:
                states = encoder_states(x, self.layers, self.layer, mask=mask)
            for i, state in enumerate(states if self.states else states[-1:]):
                g.output(f"state{i}", state)
        return g.build()


NORMS = ("layer_norm", "rms_norm", Norm(scale=False), Norm(bias=False, unit_offset=True))


@st.composite
def models(draw: st.DrawFn) -> Model:
    kv_heads, groups, size = draw(SIZES), draw(st.sampled_from([1, 2, 3])), draw(SIZES)
    heads = kv_heads * groups
    layer = Layer(
        heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        ffn=draw(SIZES),
        value_size=draw(st.sampled_from([None, 3])),
        qk_norm=draw(st.sampled_from([None, None, Norm("rms_norm", unit_offset=True)])),
        norm=draw(st.sampled_from(NORMS)),
        placement=draw(st.sampled_from(["pre", "post", "sandwich", "parallel"])),
        shared_norm=draw(st.booleans()),
        residual_scale=draw(st.sampled_from([None, None, 0.5])),
        activation=draw(st.sampled_from(["none", *ops.ACTIVATIONS])),
        gated=draw(st.booleans()),
        experts=draw(st.sampled_from([None, None, None, Experts(3, 2, shared=4)])),
        bias=draw(st.booleans()),
        ffn_bias=draw(st.sampled_from([None, True, False])),
        scale=draw(st.sampled_from([None, 1, 0.3])),
        softcap=draw(st.sampled_from([None, None, 5])),
    )
    flags = [draw(st.booleans()) for _ in range(4)]
    flags[0] &= layer.placement != "parallel"  # whose layers have no memory
    return Model(
        draw(st.integers(1, 2)), layer, draw(st.sampled_from(list(MASKS))), *flags, draw(SIZES)
    )


def arrays_of(graph: Graph, sizes: dict[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and weights in float64, from a fixed seed."""
    rng = np.random.default_rng(1)

    def make(value: Value) -> Any:
        shape = tuple(d.evaluate(sizes) for d in value.type.shape)
        if value.type.dtype.is_float:
            return rng.standard_normal(shape).astype(np.float32)
        if value.name == "lengths":
            return rng.integers(1, sizes["seq"] + 1, shape)
        return rng.integers(0, 2, shape).astype(value.type.dtype.value)

    inputs = {i.value.name: make(i.value) for i in graph.inputs}
    return inputs, {p.value.name: make(p.value) for p in graph.params}


def values_of(graph: Graph, inputs: Any, weights: Any, sizes: dict[str, int]) -> dict[str, Any]:
    """Every value by name, and every output as `output NAME`, in exact arithmetic or nearly."""
    used = {
        k: v
        for k, v in sizes.items()
        if any(k in d.symbols for val in graph.values() for d in val.type.shape)
    }
    executable = NumpyExecutable(graph, weights, exact=True)
    found = {v.name: a for v, _, a in executable.trace(inputs, used)}
    return found | {f"output {o.name}": found[o.value.name] for o in graph.outputs}


def assert_same_values(graph: Graph, after: Graph, sizes: dict[str, int]) -> None:
    """The outputs, and all values that bear the same name, are the same."""
    inputs, weights = arrays_of(graph, sizes)
    want = values_of(graph, inputs, weights, sizes)
    got = values_of(after, inputs, weights, sizes)
    common = [name for name in want if name in got]
    assert set(common) >= {f"output {o.name}" for o in graph.outputs}
    for name in common:
        assert_close(got[name], want[name], length=500, dtype="float64", name=name)


def names(model: Model) -> set[str]:
    return {v.name for v in model.graph().values()}


few = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.parametrize("name", PASSES)
@settings(few, max_examples=10)
@given(model=models(), batch=SIZES, seq=SIZES, source=SIZES)
def test_each_pass_keeps_all_values(
    name: str, model: Model, batch: int, seq: int, source: int
) -> None:
    graph = model.graph()
    after, _ = run_pipeline(graph, [PASSES[name]()])
    assert_same_values(graph, after, {"batch": batch, "seq": seq, "source": source})


@few
@given(model=models(), batch=SIZES, seq=SIZES, source=SIZES)
def test_the_pipeline_keeps_all_values(model: Model, batch: int, seq: int, source: int) -> None:
    graph = model.graph()
    after, _ = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))
    assert_same_values(graph, after, {"batch": batch, "seq": seq, "source": source})


@few
@given(model=models())
def test_a_second_run_changes_nothing(model: Model) -> None:
    once, _ = run_pipeline(model.graph(), parse_pipeline(DEFAULT_PIPELINE))
    twice, reports = run_pipeline(once, parse_pipeline(DEFAULT_PIPELINE))
    assert [report.applied for report in reports] == [{}] * len(reports)
    assert twice is once


@few
@given(model=models())
def test_every_layer_fuses(model: Model) -> None:
    _, reports = run_pipeline(model.graph(), parse_pipeline(DEFAULT_PIPELINE))
    applied = {rule: n for report in reports for rule, n in report.applied.items()}
    attentions = model.layers * (2 if model.memory else 1)
    assert applied["fuse-attention"] == attentions
    layer = model.layer
    merged = applied.get("merge-qkv", 0) + applied.get("merge-kv", 0)
    assert merged == (0 if layer.qk_norm else attentions)
    norms = applied.get(f"fuse-add-{layer.norm_of.kind.replace('_', '-')}", 0)
    assert norms == model.layers * added_and_normed(layer, model.memory)
    linears = layer.experts.count + 1 if layer.experts else 1
    activated = 0 if layer.activation == "none" else linears
    assert applied.get("fuse-linear-activation", 0) == model.layers * activated


def added_and_normed(layer: Layer, memory: bool) -> int:
    """How many sums a layer has whose norm follows, in this layer or the next one."""
    if layer.placement == "parallel":
        return 1  # of two norms of one sum, the first takes it
    return 3 if memory else 2


def rename(graph: Graph, name: Callable[[str], str]) -> Graph:
    def value(old: Value) -> Value:
        return replace(old, name=name(old.name))

    return replace(
        graph,
        inputs=tuple(replace(i, value=value(i.value)) for i in graph.inputs),
        params=tuple(replace(p, value=value(p.value)) for p in graph.params),
        nodes=tuple(
            replace(node.map_values(value), outputs=tuple(map(value, node.outputs)))
            for node in graph.nodes
        ),
        outputs=tuple(replace(o, value=value(o.value)) for o in graph.outputs),
    )


@few
@given(model=models(), salt=st.integers(0, 2**32))
def test_names_make_no_difference(model: Model, salt: int) -> None:
    """Every name becomes another word; the same rules apply, and leave the same nodes."""
    graph = model.graph()
    words = [f"v{n}" for n in np.random.default_rng(salt).permutation(len(names(model)))]
    new = dict(zip(sorted(names(model)), words, strict=True))
    plain, plain_reports = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))
    other, other_reports = run_pipeline(
        rename(graph, new.__getitem__), parse_pipeline(DEFAULT_PIPELINE)
    )
    assert [r.applied for r in plain_reports] == [r.applied for r in other_reports]
    assert shape_of(plain) == shape_of(other)


def shape_of(graph: Graph) -> list[Any]:
    """The nodes with values by number."""
    number = {value: Value(str(i), value.type) for i, value in enumerate(graph.values())}
    return [
        (
            node.op,
            tuple(map_operand(o, lambda v: number[v]) for o in node.operands),
            tuple(node.attrs.items()),
        )
        for node in graph.nodes
    ]


@few
@given(model=models(), data=st.data())
def test_the_order_of_commutative_operands_makes_no_difference(
    model: Model, data: st.DataObject
) -> None:
    graph = model.graph()
    swapped = replace(
        graph,
        nodes=tuple(
            replace(node, operands=node.operands[::-1])
            if find_op(node.op).commutative and data.draw(st.booleans())
            else node
            for node in graph.nodes
        ),
    )
    before, reports = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))
    after, swapped_reports = run_pipeline(swapped, parse_pipeline(DEFAULT_PIPELINE))
    assert [r.applied for r in swapped_reports] == [r.applied for r in reports]
    assert sorted(n.op for n in after.nodes) == sorted(n.op for n in before.nodes)
    assert_same_values(graph, after, {"batch": 2, "seq": 3, "source": 2})
