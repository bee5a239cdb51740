"""Graphs made of a model's graphs: at exact sizes, and steps of generation as runtimes take them.

A graph is run through the bodies of its ops with other sizes, and so built anew. May import:
tfgraph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from tfgraph import ops
from tfgraph.ir import DimLike, DType, Graph, Mask, Node, as_dim
from tfgraph.ir.mask import Causal, Padding
from tfgraph.ops import Builder, Traced
from tfgraph.ops.evaluate import run_node


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph at exact sizes of all its symbols: it has none left."""
    with ops.graph(graph.name) as g:
        known = _params(g, graph)
        for item in graph.inputs:
            shape = [dim.substitute(sizes) for dim in item.value.type.shape]
            known[item.value.name] = g.input(
                item.value.name, item.value.type.dtype, *shape, fill=item.fill
            )
        _replay(graph, graph.nodes, known, sizes)
        for output in graph.outputs:
            g.output(output.name, known[output.value.name])
    return g.build()


def prefill(step: Graph) -> Graph:
    """The step on a whole prompt: ids [batch, seq] to the next token's logits, and to the keys and
    values of each layer, `layers.0.k` [batch, seq, width]."""
    return _with_past(step, decodes=False)


def decode(step: Graph) -> Graph:
    """The step on one token: it takes the keys and values of all before it, `past.layers.0.k`
    [batch, past, width], and gives them with its own, as `layers.0.k` [batch, past + 1, width]."""
    return _with_past(step, decodes=True)


def _with_past(step: Graph, decodes: bool) -> Graph:
    """A step without states, which ONNX has not, and without padding, so that no mask is left but
    the causal one of a prompt."""
    with ops.graph(step.name) as g:
        high = step.symbol("end").high
        bounds = step.symbol("batch")
        batch = g.symbol("batch", bounds.low, bounds.high, 1)
        past = g.symbol("past", 1, high - 1, min(128, high - 1)) if decodes else as_dim(0)
        seq = as_dim(1) if decodes else g.symbol("seq", 1, high, min(128, high))
        sizes = {"batch": batch, "seq": seq, "end": past + seq, "capacity": past + seq}
        known = _params(g, step)
        for item in step.inputs:
            name, kind = item.value.name, item.value.type
            if name == "first":
                known[name] = cast("Traced", ops.full(shape=(batch,), value=0, dtype=DType.int64))
            elif item.fill is None or item.fill.kind != "state":
                shape = [dim.substitute(sizes) for dim in kind.shape]
                known[name] = g.input(name, kind.dtype, *shape, fill=item.fill)
            elif decodes:
                known[name] = g.input(f"past.{name}", kind.dtype, batch, past, kind.shape[-1])
        for node in step.nodes:
            if node.op == "cache_append":
                state, new = (value.name for value in node.inputs)
                if decodes:
                    joined = ops.concat(known[state], known[new], axis=1)
                    known[node.output.name] = cast("Traced", joined)
                else:
                    known[node.output.name] = known[new]
            elif node.op == "mask" and decodes:  # the newest token sees all
                known[node.output.name] = known[node.inputs[0].name]
            elif node.op == "mask":
                _replay(step, [_causal(node)], known, sizes)
            else:
                _replay(step, [node], known, sizes)
        logits, *states = sorted(step.outputs, key=lambda o: o.name != "logits")
        for output in (logits, *states):
            g.output(output.name, known[output.value.name])
    return g.build()


def _causal(node: Node) -> Node:
    """The node with the causal mask alone."""
    scores, given = node.operands
    assert isinstance(given, Mask)
    if not all(isinstance(part, Causal | Padding) for part in given.parts):
        raise ValueError(f"a step under {given} is not known here")
    return replace(node, operands=(scores, Causal()))


def _params(g: Builder, graph: Graph) -> dict[str, Traced]:
    return {
        p.value.name: g.param(p.value.name, p.value.type.dtype, *p.value.type.shape, fill=p.fill)
        for p in graph.params
    }


def _replay(
    graph: Graph, nodes: Any, known: dict[str, Traced], sizes: Mapping[str, DimLike]
) -> None:
    like = next(iter(known.values()))
    for node in nodes:
        results = run_node(node, known, cast("Mapping[str, int]", sizes), like)
        known.update(zip((v.name for v in node.outputs), results, strict=True))
