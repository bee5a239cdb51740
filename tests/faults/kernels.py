"""Faults of kernels: the CPU backend emits something else at one node of the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from faults.fault import Fault
from faults.models import MODELS, SIZES, compiled, model

import tfgraph
from tfgraph.backends.tvm import emitters, lower
from tfgraph.backends.tvm.cpu import gemm
from tfgraph.ir import Mask, Node, Value, as_dim, exact
from tfgraph.ir import mask as masks
from tfgraph.ops.fused import LINEARS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pytest

    from tfgraph.api.comparison import Divergence
    from tfgraph.backends.tvm.lower import Lowering

    Change = Callable[[Node], Node]

_ = emitters  # registers what is wrapped here
_OPS = {
    "gemm": LINEARS,
    "attention": ("attention",),
    "norm": ("layer_norm", "add_layer_norm"),
    "masks": ("attention",),
}


def _attrs(**attrs: Any) -> Change:
    return lambda node: replace(node, attrs={**node.attrs, **attrs})


def _operands(choose: Callable[..., tuple[Any, ...]]) -> Change:
    return lambda node: replace(node, operands=choose(*node.operands))


def _activation(node: Node) -> Node:
    """Another activation, or one where there is none."""
    other = "relu" if node.attrs.get("activation") != "relu" else "silu"
    return replace(node, op="linear_activation", attrs={"activation": other})


def _mask(keep: Callable[[Mask], Mask | None]) -> Change:
    """Another mask: each of its parts as `keep` makes it, None to leave it out."""

    def other(operand: Any) -> Any:
        if not isinstance(operand, Mask):
            return operand
        parts = [made for part in operand.parts if (made := keep(part)) is not None]
        return masks.All(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)

    return lambda node: replace(node, operands=tuple(map(other, node.operands)))


def _shifted(by: int) -> Callable[[Mask], Mask | None]:
    def keep(part: Mask) -> Mask | None:
        if isinstance(part, masks.Causal):
            return masks.causal(as_dim(part.offset or 0) + by)
        if isinstance(part, masks.Window):
            return masks.Window(part.left + by, part.right, part.offset)  # type: ignore[operator]
        return part

    return keep


def _without(kind: type[Mask]) -> Callable[[Mask], Mask | None]:
    return lambda part: None if isinstance(part, kind) else part


def _scaled(factor: str) -> Callable[[Lowering, Node], None]:
    """Multiply the result once more."""

    def after(low: Lowering, node: Node) -> None:
        result = node.outputs[-1]
        wrong = Value("wrong", result.type)
        low.emit_generic(Node("mul", (result, exact(factor)), (wrong,)))
        low._matrices.pop(result, None)
        low.put(result, low.value(wrong))

    return after


_CHANGES: dict[str, dict[str, Change]] = {
    "gemm": {
        "no bias": _operands(lambda x, w, b: (x, w)),
        "another activation": _activation,
    },
    "attention": {
        "no scale": _attrs(scale=exact(1)),
        "a larger scale": _attrs(scale=exact("0.37")),
        "Q and K swapped": _operands(lambda q, k, v, *m: (k, q, v, *m)),
        "K for V": _operands(lambda q, k, v, *m: (q, k, k, *m)),
        "a cap": _attrs(softcap=exact("0.5")),
        "one head": _attrs(heads=1, kv_heads=1),
    },
    "norm": {
        "another eps": _attrs(eps=exact("0.01")),
        "scale and bias swapped": _operands(lambda *o: (*o[:-2], o[-1], o[-2])),
        "no bias": _operands(lambda *o: (*o[:-1], None)),
        "no scale": _operands(lambda *o: (*o[:-2], None, o[-1])),
    },
    "masks": {
        "no mask": _mask(lambda part: None),
        "one key more": _mask(_shifted(1)),
        "one key less": _mask(_shifted(-1)),
        "no padding": _mask(_without(masks.Padding)),
    },
}
_AFTER = {"a result 0.1 % too large": _scaled("1.001")}


def kernel_fault(kind: str, rng: np.random.Generator) -> Fault:
    """A fault at a node of a model, both drawn."""
    if kind == "gemm" and rng.random() < 0.2:
        return _short_sum(MODELS[rng.integers(len(MODELS))])
    while True:
        name = MODELS[rng.integers(len(MODELS))]
        nodes = [n for n in compiled(name).nodes if n.op in _OPS[kind]]
        node = nodes[rng.integers(len(nodes))]
        changes: dict[str, Any] = {**_CHANGES[kind], **({} if kind == "masks" else _AFTER)}
        what = list(changes)[rng.integers(len(changes))]
        if what in _AFTER or str(changes[what](node)) != str(node):
            break  # it changes this node
    return Fault(
        kind,
        f"{what} at {node.outputs[0]} of the {name}",
        lambda patch: _found(patch, name, node, changes[what], what in _AFTER),
        lambda first: _names(first, node),
    )


def _names(first: Divergence, node: Node) -> bool:
    return (
        first.kind == "kernel"
        and first.op == node.op
        and first.location == str(node.location)
        and first.value in {v.name for v in node.outputs}
    )


def _found(
    patch: pytest.MonkeyPatch, name: str, victim: Node, change: Any, after: bool
) -> Divergence | None:
    for key, (emit, *rest) in list(lower._EMITTERS.items()):

        def wrong(low: Lowering, node: Node, emit: Any = emit) -> None:
            hit = node.outputs == victim.outputs and node.op == victim.op
            emit(low, change(node) if hit and not after else node)
            if hit and after:
                change(low, node)

        patch.setitem(lower._EMITTERS, key, (wrong, *rest))
    return tfgraph.compare(model(name), ("numpy", "cpu"), dims=SIZES).first_divergence


def _short_sum(name: str) -> Fault:
    """The generator of GEMM kernels ends every sum one term early: the first GEMM is wrong."""
    first = next(n for n in compiled(name).nodes if n.op in _OPS["gemm"])

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        whole = gemm.accumulate

        def short(rows: int, vectors: int, lanes: int, k: Any, *more: Any, **options: Any) -> Any:
            return whole(rows, vectors, lanes, k - 1, *more, **options)

        patch.setattr(gemm, "accumulate", short)
        return tfgraph.compare(model(name), ("numpy", "cpu"), dims=SIZES).first_divergence

    return Fault("gemm", f"sums one term short in the {name}", find, lambda d: _names(d, first))
