"""The graphs of ONNX Runtime's own tests of fusions: each imports and matches ONNX Runtime, or says
by which operator it is outside."""

from __future__ import annotations

import re
import tarfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.tolerance import assert_within, relative
from onnx import TensorProto, numpy_helper

from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx, operators
from tfgraph.passes import IMPORTED_PIPELINE, parse_pipeline, run_pipeline

runtime = pytest.importorskip("onnxruntime")

NDArray = np.ndarray[Any, Any]
ARCHIVE = Path(__file__).parents[1] / "data" / "ort_graphs.tar.xz"
OUTSIDE = {
    "TFBertForQuestionAnswering": "ReduceProd",
    "reshape_fusion_concat_subgraph_not_triggered": "Pad",
}
"""Graphs with an operator that the importer does not have."""
_OTHER_SHAPE = "Reshape .*: cannot reshape"
_TWICE = "there is an output 'fused_result' already"
IMPOSSIBLE = {
    "attention_distilbert": _OTHER_SHAPE,
    "reshape_fusion_concat_subgraph_mul": _OTHER_SHAPE,
    "reshape_fusion_multiple_values_in_initializer_tensor_1": _OTHER_SHAPE,
    "fuse-matmul-bn-only-transpose": "a number for each channel: 5 against 1",
    "fuse-conv-bn-mul-add-unsqueeze": _TWICE,
    "fuse-conv-bn-mul-add-unsqueeze.negative_axes": _TWICE,
}
"""Graphs that no input fits, in ONNX Runtime neither: a Reshape to another number of elements, a
norm of another number of channels; and those that list an output twice."""
UNKNOWN_THERE = {"bias_softmax_fusion_bfloat16"}
"""Graphs for which ONNX Runtime has no kernel."""
LONGEST = 1024  # rows of products here are up to 768 long
SENSITIVE = 10  # scores of random inputs are large, and their softmax steep
LARGE = re.compile("bias_softmax_fusion_.*ones")  # 20 million elements


@cache
def graphs() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE) as archive:
        files = {m.name: archive.extractfile(m) for m in archive.getmembers()}
        return {name.removesuffix(".onnx"): f.read() for name, f in files.items() if f is not None}


def names() -> list[Any]:
    """All, of which most are long."""
    few = {name for name in list(graphs())[::9] if not LARGE.match(name)}
    few |= {"constant_folding_transpose_empty_initializer", *OUTSIDE, *IMPOSSIBLE}
    return [
        name if name in few else pytest.param(name, marks=pytest.mark.long) for name in graphs()
    ]


def in_float32(data: bytes) -> bytes:
    """The same with float32 wherever it says float16: what rounding hides is seen then."""
    model = onnx.load(BytesIO(data))
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.type == onnx.AttributeProto.TENSOR:
                array = numpy_helper.to_array(attribute.t)
                wide = array.astype(np.float32) if array.dtype == np.float16 else array
                attribute.t.CopyFrom(numpy_helper.from_array(wide, attribute.t.name))
    return model.SerializeToString()


def compare(path: Path) -> None:
    """As imported, and after the passes: as near to float64 as ONNX Runtime, or as rounding
    to the coarsest of the graph's types brings. ONNX Runtime itself is near, but in float16:
    then the graph is also compared in float32."""
    graph, weights = import_onnx(path)
    fused, _ = run_pipeline(graph, parse_pipeline(IMPORTED_PIPELINE))
    runtime.set_default_logger_severity(4)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    sizes = {s.name: min(3 + i, s.high) for i, s in enumerate(graph.symbols)}
    imported = NumpyExecutable(graph, weights)
    given = imported.example(sizes)
    named = zip(session.get_inputs(), imported.inputs, strict=True)
    found = session.run(None, {i.name: np.asarray(given[port.name]) for i, port in named})
    exact = NumpyExecutable(graph, weights, exact=True)(**given)
    types = {value.type.dtype.value for value in graph.values()}
    coarsest = "float16" if "float16" in types else "float32"
    for run in (imported, NumpyExecutable(fused, weights)):
        for (name, got), there in zip(run(**given).items(), found, strict=True):
            assert got.dtype == np.asarray(there).dtype, name
            if got.dtype.kind != "f":
                np.testing.assert_array_equal(got, there)
                continue
            scale = float(np.max(np.abs(exact[name])))
            allowed = relative(coarsest, LONGEST) * scale + float(np.finfo(got.dtype).tiny)
            theirs = float(np.max(np.abs(there - exact[name])))
            if coarsest == "float32":
                assert theirs <= SENSITIVE * allowed, name
            assert_within(got, exact[name], max(allowed, theirs), name)


@pytest.mark.parametrize("name", names())
def test_it_matches_or_says_why_not(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    data = graphs()[name]
    path.write_bytes(data)
    if name in OUTSIDE:
        with pytest.raises(TfgraphError, match=OUTSIDE[name]):
            import_onnx(path)
        used = {node.op_type for node in onnx.load(BytesIO(data)).graph.node}
        assert used - set(operators())
    elif name in IMPOSSIBLE:
        with pytest.raises(TfgraphError, match=IMPOSSIBLE[name]):
            import_onnx(path)
    elif name in UNKNOWN_THERE:
        import_onnx(path)
        with pytest.raises(Exception, match=re.escape("NOT_IMPLEMENTED")):
            runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    else:
        compare(path)
        wide = in_float32(data)
        if wide != data:
            path.write_bytes(wide)
            compare(path)
