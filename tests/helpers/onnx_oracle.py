"""Runs one ONNX operator in onnx's own reference, and compares an op of ours with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.tolerance import UNIT
from onnx import ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

from tfgraph.ir import DType, Mask
from tfgraph.ops import FloatArray, evaluate, graph
from tfgraph.ops.define import apply_op, find_op

if TYPE_CHECKING:
    from collections.abc import Sequence

    NDArray = np.ndarray[Any, Any]

OPSET = 24
# The spacing of numbers near 1, in the dtypes that are not compared exactly.
EPS = {name: 2 * UNIT[name] for name in ("float64", "float32", "float16")}
FLOAT32_INSIDE = ("Erf", "Gelu", "LayerNormalization", "RMSNormalization")


@dataclass(frozen=True)
class Case:
    """One call. `inputs` go to both sides; `shape_inputs` are further inputs of the ONNX node.

    `terms` is the size of what is summed, where cancellation loses digits, and `n` how many.
    """

    inputs: tuple[NDArray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    onnx_attrs: dict[str, Any] = field(default_factory=dict)
    shape_inputs: tuple[NDArray, ...] = ()
    n: int = 0
    terms: float | NDArray = 0.0


def run_onnx(
    op: str, inputs: Sequence[NDArray | None], outputs: int = 1, opset: int = OPSET, **attrs: Any
) -> Any:
    """The outputs of one ONNX node in onnx.reference."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    made = helper.make_graph([node], "one", infos, [ValueInfoProto(name=r) for r in results])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, feeds)


def run_ours(op: str, inputs: Sequence[NDArray | Mask | None], **attrs: Any) -> tuple[NDArray, ...]:
    """The results of one op of ours, called in a graph on arrays, or on masks of arrays."""
    given: dict[str, FloatArray] = {}
    with graph("one") as g:

        def declare(x: NDArray) -> Any:
            name = f"x{len(given)}"
            given[name] = FloatArray(x)
            return g.input(name, DType(x.dtype.name), *x.shape)

        operands = [
            x.map(declare) if isinstance(x, Mask) else None if x is None else declare(x)
            for x in inputs
        ]
        results = apply_op(find_op(op), operands, attrs)
    for i, result in enumerate(results if isinstance(results, tuple) else (results,)):
        g.output(f"y{i}", result)
    ((_, arrays),) = evaluate(g.build(), given, {}, FloatArray(np.zeros(1, np.float32)))
    return tuple(np.asarray(a.data) for a in arrays)


def check(op: str, case: Case) -> None:
    """Ours against ONNX, in the dtype of the inputs; and against ONNX in float64, rounded once."""
    definition = find_op(op)
    assert definition.onnx is not None
    got = run_ours(op, case.inputs, **case.attrs)

    def onnx(inputs: Sequence[NDArray]) -> Any:
        every = (*inputs, *case.shape_inputs)
        return run_onnx(str(definition.onnx), every, len(got), **case.onnx_attrs)

    want = [np.asarray(w) for w in onnx(case.inputs)]
    wide = onnx([x.astype(np.float64) if x.dtype.kind == "f" else x for x in case.inputs])
    for ours, native, exact in zip(got, want, wide, strict=True):
        assert (ours.dtype, ours.shape) == (native.dtype, native.shape)
        if ours.dtype.name not in EPS:
            readable = np.float32 if ours.dtype.name == "bfloat16" else ours.dtype
            np.testing.assert_array_equal(ours.astype(readable), native.astype(readable))
            continue
        # Some of ONNX's references compute in float32, whatever their inputs are.
        with np.errstate(all="ignore"):
            if ours.dtype == np.float64 and definition.onnx in FLOAT32_INSIDE:
                ours, native = ours.astype(np.float32), native.astype(np.float32)
            once = np.asarray(exact).astype(ours.dtype)
        eps = EPS[ours.dtype.name]
        close(ours, native, (4 + case.n) * eps, case.terms)
        if definition.onnx not in FLOAT32_INSIDE:
            close(ours, once, max(eps, 4 * EPS["float64"]), case.terms * EPS["float64"] / eps * 8)


def close(got: NDArray, want: NDArray, relative: float, terms: float | NDArray = 0.0) -> None:
    """Equal where not finite, else within `relative` of the result and of its terms."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = relative * (np.abs(b) + terms) + 4 * np.finfo(got.dtype).smallest_subnormal
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= allowed)
    wrong = ~(same | near)
    assert not wrong.any(), (
        f"got {got[wrong][:5]}, want {want[wrong][:5]} at {np.argwhere(wrong)[:5]}"
    )
