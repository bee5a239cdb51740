"""Faults of importers: the translation of one node of an ONNX file is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
from faults.fault import Fault
from faults.models import SIZES, onnx_file

import tfgraph
from tfgraph import ops
from tfgraph.onnx import importer

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pytest

    from tfgraph.api.comparison import Divergence


def _transposed(results: Any) -> Any:
    """The last two axes exchanged, where they are equally long."""
    order = [*range(len(results.shape))]
    order[-2:] = order[:-3:-1]
    return ops.transpose(results, perm=tuple(order))


_SWAPPED = ("Mul", "Add", "MatMul")  # whose operands may be exchanged for one another
_WRONG: dict[str, dict[str, Callable[[list[Any], dict[str, Any]], tuple[Any, Any]]]] = {
    "Softmax": {"another axis": lambda i, a: (i, {**a, "axis": 1})},
    "LayerNormalization": {
        "another epsilon": lambda i, a: (i, {**a, "epsilon": 0.01}),
        "no bias": lambda i, a: ([*i[:2], None], a),
        "scale and bias swapped": lambda i, a: ([i[0], i[2], i[1]], a),
    },
    "Add": {"an operand twice": lambda i, a: ([i[0], i[0]], a)},
    "Mul": {"an operand twice": lambda i, a: ([i[0], i[0]], a)},
    "Where": {"the condition ignored": lambda i, a: ([i[0], i[1], i[1]], a)},
}
_AFTER: dict[str, Callable[[Any], Any]] = {
    "Erf": lambda y: ops.tanh(y),
    "MatMul": lambda y: ops.mul(y, 1.01),
    "Transpose": lambda y: ops.neg(y),
}


def importer_fault(rng: np.random.Generator) -> Fault:
    """A node of the file and what is wrong with its translation, drawn."""
    nodes = [n for n in onnx.load(str(onnx_file())).graph.node if n.op_type in {*_WRONG, *_AFTER}]
    nodes = [n for n in nodes if n.op_type != "Mul" or "hidden" in n.name]
    nodes = [n for n in nodes if n.op_type != "Where" or "masked" in n.name]
    kinds = sorted({n.op_type for n in nodes})
    kind = kinds[rng.integers(len(kinds))]
    of_kind = [n for n in nodes if n.op_type == kind]
    victim = of_kind[rng.integers(len(of_kind))]
    if kind in _WRONG:
        what, change = list(_WRONG[kind].items())[rng.integers(len(_WRONG[kind]))]
    else:
        what, change = "another result", None
    witness = ("onnxruntime", "onnx-reference")[rng.integers(2)]
    by_bisect = bool(rng.random() < 0.5)

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        found = importer.find_translator

        def wrong(name: str, opset: int) -> Any:
            translator = found(name, opset)

            def translated(site: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
                assert translator is not None
                if site.node.name != victim.name:
                    return translator(site, inputs, attributes)
                if change is not None:
                    return translator(site, *change(list(inputs), dict(attributes)))
                return _AFTER[kind](translator(site, inputs, attributes))

            return translator and translated

        patch.setattr(importer, "find_translator", wrong)
        if by_bisect:
            return tfgraph.bisect(onnx_file(), dims=SIZES, witness=witness).first
        pair = (witness, "numpy")
        return tfgraph.compare(onnx_file(), pair, dims=SIZES).first_divergence

    def right(first: Divergence) -> bool:
        at_node = first.location == f"{onnx_file()}:{victim.name}"
        return first.kind == "node" and first.op == kind and at_node

    how = f"{'bisect' if by_bisect else 'compare'} with {witness}"
    return Fault("importers", f"{kind} '{victim.name}': {what}, by {how}", find, right)
