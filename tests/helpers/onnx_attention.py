"""The node cases of ONNX's `Attention` in the installed onnx package, each as a graph of ours.

The graph is what an importer would make of the node: the op `attention`, masks with structure where
the node has it, core ops for what ONNX does beside it. `softmax_precision` asks for at least a
precision, and changes nothing: the reference computes in float64.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from onnx import helper

from tfgraph import ops
from tfgraph.ir import DType, exact, rsqrt
from tfgraph.ir.mask import bias, causal, dense, padding, window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfgraph.ir import Graph, Mask

    NDArray = np.ndarray[Any, Any]

# By position, of opsets 23 to 25.
INPUTS = ("q", "k", "v", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("y", "present_key", "present_value", "qk_matmul_output")
ATTRIBUTES = {
    "is_causal": 0,
    "kv_num_heads": None,
    "left_window_size": -1,
    "q_num_heads": None,
    "qk_matmul_output_mode": 0,
    "right_window_size": -1,
    "scale": None,
    "softcap": 0.0,
    "softmax_precision": None,
}


@dataclass(frozen=True)
class AttentionCase:
    """One case: the node's attributes, its inputs and recorded outputs by their roles."""

    name: str
    attrs: dict[str, Any]
    inputs: dict[str, NDArray]
    outputs: dict[str, NDArray]

    @property
    def dtype(self) -> str:
        """That of Q."""
        return str(self.inputs["q"].dtype)

    @property
    def shares(self) -> tuple[int, int, int]:
        """Query heads, key/value heads, and the size of a query's head."""
        q, k = self.inputs["q"].shape, self.inputs["k"].shape
        if len(q) == 4:  # [batch, heads, length, size]
            return q[1], k[1], q[3]
        heads: int = self.attrs["q_num_heads"]
        return heads, self.attrs["kv_num_heads"], q[2] // heads

    @property
    def features(self) -> frozenset[str]:
        """What the case asks for, a word each."""
        a, x = self.attrs, self.inputs
        heads, kv_heads, _ = self.shares
        mask = x.get("attn_mask")
        y = self.outputs["y"]
        found = {
            f"{x['q'].ndim}D": True,
            "mask of too few keys": mask is not None and mask.shape[-1] < self.keys,
            "grouped heads": heads != kv_heads,
            "wider values": x["k"].shape[-1] != x["v"].shape[-1],
            "causal": a["is_causal"],
            "left window": a["left_window_size"] >= 0,
            "right window": a["right_window_size"] >= 0,
            "scale": a["scale"],
            "softcap": a["softcap"],
            "empty rows": (y == 0).all(-1).any(),
            "not finite": not all(np.isfinite(v).all() for v in (x["q"], x["k"], x["v"])),
        }
        words = {word for word, there in found.items() if there}
        words |= x.keys() - {"q", "k", "v"}
        if mask is not None:
            words.add(f"mask of rank {mask.ndim}, {mask.dtype}")
        if "qk_matmul_output" in self.outputs:
            words.add(f"scores {a['qk_matmul_output_mode']}")
        return frozenset(words)

    @property
    def keys(self) -> int:
        """How many keys there are, former ones with them."""
        past = self.inputs.get("past_key")
        return int(self.inputs["k"].shape[-2] + (0 if past is None else past.shape[-2]))


def covering(cases: Mapping[str, AttentionCase]) -> list[AttentionCase]:
    """Few of the cases, with every feature that any has: the one with most new ones, and so on."""
    wanted = set[str]().union(*(case.features for case in cases.values()))
    chosen: list[AttentionCase] = []
    while wanted:
        best = max(cases.values(), key=lambda case: len(case.features & wanted))
        chosen.append(best)
        wanted -= best.features
    return chosen


def attention_cases() -> dict[str, AttentionCase]:
    """All cases of one `Attention` node by name, of the module of onnx that makes them: it is one
    of those that `onnx.backend.test.loader.load_model_tests(kind="node")` imports, in seconds."""
    importlib.import_module("onnx.backend.test.case.node.attention")
    from onnx.backend.test.case.node import _NodeTestCases

    return cases_of(_NodeTestCases)


def cases_of(tests: Iterable[Any]) -> dict[str, AttentionCase]:
    """Those of ONNX's node tests that are of one `Attention` node."""
    found: dict[str, AttentionCase] = {}
    for test in tests:
        nodes = test.model.graph.node
        if [(node.domain, node.op_type) for node in nodes] == [("", "Attention")]:
            found[test.name] = _case(test)
    return found


def _case(test: Any) -> AttentionCase:
    (node,) = test.model.graph.node
    ((given, recorded),) = test.data_sets
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    unknown = attrs.keys() - ATTRIBUTES.keys()
    assert not unknown, f"{test.name}: what do {unknown} mean?"
    assert len(node.input) <= len(INPUTS)
    assert len(node.output) <= len(OUTPUTS)

    def by_role(roles: Any, names: Any, declared: Any, arrays: Any) -> dict[str, NDArray]:
        found = {info.name: x for info, x in zip(declared, arrays, strict=True)}
        pairs = zip(roles, names, strict=False)
        return {role: np.asarray(found[name]) for role, name in pairs if name}

    graph = test.model.graph
    inputs = by_role(INPUTS, node.input, graph.input, given)
    outputs = by_role(OUTPUTS, node.output, graph.output, recorded)
    return AttentionCase(test.name, ATTRIBUTES | attrs, inputs, outputs)


def as_graph(cases: Iterable[AttentionCase]) -> Graph:
    """The nodes side by side in one graph; see `inputs_of` for the names of inputs and outputs."""
    with ops.graph("attention") as g:
        for case in cases:
            given = {
                role: g.input(f"{case.name}.{role}", DType(str(a.dtype)), *a.shape)
                for role, a in case.inputs.items()
            }
            results = _attention(case, given)
            for role in case.outputs:
                g.output(f"{case.name}.{role}", results[role])
    return g.build()


def inputs_of(cases: Iterable[AttentionCase]) -> dict[str, NDArray]:
    """The inputs of all cases, each called CASE.ROLE."""
    return {f"{case.name}.{role}": a for case in cases for role, a in case.inputs.items()}


def _attention(case: AttentionCase, x: dict[str, Any]) -> dict[str, Any]:
    """All that the node may return, by role."""
    attrs = case.attrs
    q, k, v = x["q"], x["k"], x["v"]
    heads, kv_heads, size = case.shares
    separate = len(q.shape) == 4
    if separate:
        q, k, v = map(ops.merge_heads, (q, k, v))
    if "past_key" in x:
        k = ops.concat(ops.merge_heads(x["past_key"]), k, axis=1)
        v = ops.concat(ops.merge_heads(x["past_value"]), v, axis=1)
    scale = rsqrt(size) if attrs["scale"] is None else exact(attrs["scale"])
    softcap = attrs["softcap"] or None
    m = _mask(case, x)
    y = ops.attention(q, k, v, m, heads=heads, kv_heads=kv_heads, scale=scale, softcap=softcap)
    queries, keys = ops.split_heads(q, heads), ops.split_heads(k, kv_heads)
    results = {
        "y": ops.split_heads(y, heads) if separate else y,
        "present_key": keys,
        "present_value": ops.split_heads(v, kv_heads),
    }
    if "qk_matmul_output" in case.outputs:
        keys = ops.repeat_heads(keys, heads)
        scores = ops.mul(ops.matmul(queries, ops.transpose(keys, perm=(0, 1, 3, 2))), scale)
        mode = attrs["qk_matmul_output_mode"]
        assert mode in (0, 1, 2, 3)
        if mode >= 1 and softcap is not None:
            scores = ops.mul(ops.tanh(ops.div(scores, softcap)), softcap)
        if mode >= 2 and m is not None:
            scores = ops.mask(scores, m)
        results["qk_matmul_output"] = ops.softmax(scores) if mode == 3 else scores
    return results


def _mask(case: AttentionCase, x: dict[str, Any]) -> Mask | None:
    """All that hides keys, joined."""
    queries, keys = case.inputs["q"].shape[-2], case.keys
    found: list[Mask] = []
    if "attn_mask" in x:
        found += _given_mask(x["attn_mask"], keys)
    left, right = case.attrs["left_window_size"], case.attrs["right_window_size"]
    lengths = x.get("nonpad_kv_seqlen")
    if lengths is None:
        past = keys - case.inputs["k"].shape[-2]
        if case.attrs["is_causal"]:
            found.append(causal(past))
        if left >= 0 or right >= 0:
            bounds = (None if side < 0 else side for side in (left, right))
            found.append(window(*bounds, offset=past))
    else:
        # The queries of a row are the last of its real keys: the position depends on the row.
        row = ops.reshape(ops.sub(lengths, queries), shape=(lengths.shape[0], 1, 1, 1))
        i = ops.add(row, ops.reshape(ops.iota(length=queries), shape=(queries, 1)))
        j = ops.iota(length=keys)
        if case.attrs["is_causal"]:
            found.append(dense(ops.logical_not(ops.less(i, j))))
        if left >= 0:
            found.append(dense(ops.logical_not(ops.less(ops.add(j, left), i))))
        if right >= 0:
            found.append(dense(ops.logical_not(ops.less(ops.add(i, right), j))))
        found.append(padding(lengths))
    return reduce(and_, found) if found else None


def _given_mask(x: Any, keys: int) -> list[Mask]:
    """A bool mask, or what a float one allows and what it adds there: -inf hides. Of keys that it
    is too short for none is allowed."""
    missing = keys - int(x.shape[-1])
    more = (*x.shape[:-1], missing)

    def padded(y: Any) -> Any:
        if not missing:
            return y
        return ops.concat(y, ops.full(shape=more, value=0, dtype=y.dtype), axis=len(more) - 1)

    if x.dtype == DType.bool_:
        return [dense(padded(x))]
    lowest = exact(float(ml_dtypes.finfo(x.dtype.value).min))
    allowed = ops.less(lowest, x)
    added = ops.where(allowed, x, ops.full(shape=(), value=0, dtype=x.dtype))
    return [bias(padded(added)), dense(padded(allowed))]
