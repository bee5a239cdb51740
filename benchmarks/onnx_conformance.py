"""ONNX's own tests of single operators, for every operator that the importer has: how many pass.

    python benchmarks/onnx_conformance.py            the table, and why cases are outside
    python benchmarks/onnx_conformance.py --failed   failures alone

Each case is imported and run on NumPy. In many of them a tensor that says a shape (axes, starts, a
number of elements) is an input, and empty tensors are inputs too; a graph's shapes are known when
it is compiled, so these inputs are given at import. May import: tfgraph, onnx.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx, operators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx.backend.test.case.test_case import TestCase

    NDArray = np.ndarray[Any, Any]

SHAPES = {
    *("axes", "axis", "shape", "repeats", "starts", "ends", "steps", "split", "k", "K", "depth"),
    *("start", "limit", "delta", "ratio", "training_mode", "size", "roi", "scales", "sizes"),
}
"""Names, in ONNX's signatures, of inputs that say shapes, or what is computed."""

# Why a case is outside of what the IR can say, by a part of the error that the importer raises.
REASONS = {
    "which the IR does not have": "an element type or an empty tensor that the IR does not have",
    "sizes are at least 1": "an empty tensor, which the IR does not have",
    "is no tensor": "a sequence or an optional value, which the IR does not have",
    "dropout of training": "training, which is out of scope",
    "in training is not supported": "training, which is out of scope",
    "a remainder of floats": "a remainder of floats, which no op of the IR computes",
    "functions cannot be inlined": "functions that onnx.inliner does not inline",
}
UNIT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""One step in the last place, by dtype. Cases list what steps rounded to these types give; here an
op rounds once, so that results differ by some steps."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case: "pass", "fail" or "outside", and why."""

    name: str
    operator: str
    kind: str
    reason: str = ""


def cases() -> list[TestCase]:
    """ONNX's cases made of operators that the importer has."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    known = set(operators())
    return [c for c in found if {_name(n) for n in c.model.graph.node} <= known]  # type: ignore[union-attr]


def _name(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def model_of(case: TestCase) -> onnx.ModelProto:
    """The model of a case, which all of ONNX's have."""
    assert case.model is not None
    return case.model


def operator_of(case: TestCase) -> str:
    """The operator that a case is about; cases of several nodes are those of an expanded one."""
    nodes = model_of(case).graph.node
    return nodes[0].op_type if len(nodes) == 1 and "_expanded" not in case.name else "(expanded)"


def outcome(case: TestCase, folder: Path) -> Outcome:
    """Import and run a case on NumPy."""
    operator, path = operator_of(case), folder / "case.onnx"
    onnx.save(model_of(case), str(path))
    for inputs, outputs in case.data_sets or ():
        names = [i.name for i in model_of(case).graph.input]
        arrays = dict(zip(names, map(_array, inputs), strict=True))
        given = {n: a for n, a in arrays.items() if n in _given(case) or not np.asarray(a).size}
        try:
            graph, weights = import_onnx(path, given)
            run = tfgraph.compile(graph, weights=weights, target="numpy")
            got = run(**{n: a for n, a in arrays.items() if n not in given})
        except TfgraphError as error:
            for part, reason in REASONS.items():
                if part in str(error):
                    return Outcome(case.name, operator, "outside", reason)
            return Outcome(case.name, operator, "fail", error.message)
        for result, expected in zip(got.values(), outputs, strict=True):
            if wrong := differs(np.asarray(result), _array(expected), case.rtol, case.atol):
                return Outcome(case.name, operator, "fail", wrong)
    return Outcome(case.name, operator, "pass")


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _given(case: TestCase) -> set[str]:
    """Inputs that say shapes, by the names that the operators' signatures give them."""
    found: set[str] = set()
    opset = max(o.version for o in model_of(case).opset_import)
    for node in model_of(case).graph.node:
        formal = onnx.defs.get_schema(node.op_type, opset, node.domain).inputs
        for name, parameter in zip(node.input, formal, strict=False):
            says = parameter.name in SHAPES or node.op_type == "ConstantOfShape"
            if says and name:
                found.add(name)
    if "_expanded" in case.name:  # it computes shapes of what it gets under the operator's names
        found |= SHAPES | ({"x"} if "window" in case.name else set())
    return found


def differs(got: NDArray, want: NDArray, rtol: float, atol: float) -> str:
    """How a result differs; "" where it does not."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    steps = 4 * UNIT.get(str(want.dtype), 0.0)
    a, b = got.astype(np.float64), want.astype(np.float64)
    near = np.isclose(a, b, max(rtol, steps), max(atol, steps), equal_nan=True)
    return "" if near.all() else f"off by {np.abs(a - b)[~near].max():.3g}"


def outcomes() -> Iterator[Outcome]:
    """All cases, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            yield outcome(case, Path(folder))


def main() -> int:
    """Print the table; 1 where a case fails."""
    found = list(outcomes())
    failed = [o for o in found if o.kind == "fail"]
    if "--failed" not in sys.argv:
        print(f"{'operator':24} pass  fail  outside")
        for name in sorted({o.operator for o in found}):
            count = Counter(o.kind for o in found if o.operator == name)
            print(f"{name:24} {count['pass']:4}  {count['fail']:4}  {count['outside']:7}")
        outside = Counter((o.operator, o.reason) for o in found if o.kind == "outside")
        print("\noutside:")
        for (name, reason), times in sorted(outside.items()):
            print(f"  {name}: {times} of {reason}")
    for o in failed:
        print(f"{o.name}: {o.reason}")
    total = Counter(o.kind for o in found)
    share = 100 * total["pass"] / (total["pass"] + total["fail"])
    print(f"\n{total['pass']} pass, {total['fail']} fail: {share:.4g} %")
    print(f"{total['outside']} are outside")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
