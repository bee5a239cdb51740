"""`export_onnx`: write a model as an ONNX file, checked by ONNX and verified in ONNX Runtime.

May import: source, verify, backends, passes, onnx, ops, ir, errors.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tfgraph.api.source import open_source
from tfgraph.api.verify import Verification, verify
from tfgraph.backends.onnxruntime import OnnxExecutable
from tfgraph.errors import CheckFailed, MissingTool, TfgraphError
from tfgraph.onnx.export import (
    DEFAULT_OPSET,
    EXTERNAL_BYTES,
    has_attention,
    to_onnx,
    write_model,
)
from tfgraph.ops import verify as verify_graph
from tfgraph.passes import parse_pipeline, run_pipeline
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.api.source import Source
    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph

FUSED = "fuse-attention,dce"
"""What is done to the graph where ONNX has Attention: see docs/adr/0008-onnx-out.md."""

_SUFFIX = ".onnx"


@dataclass(frozen=True)
class ExportReport:
    """What `export_onnx` did. `path` is None where a failed verification left no file, and `data`
    where the weights are in the file itself."""

    path: Path | None
    data: Path | None
    opset: int
    operators: Mapping[str, int]
    """How many nodes of each operator."""
    graph: Graph
    verification: Verification

    def to_json(self) -> dict[str, Any]:
        """The object that `export --json` prints."""
        return {
            "model": None if self.path is None else str(self.path),
            "data": None if self.data is None else str(self.data),
            "opset": self.opset,
            "operators": dict(self.operators),
            "verify": self.verification.to_json(),
        }


class ExportFailed(CheckFailed):
    """ONNX Runtime does not compute from the file what the graph means; `report` is what would be
    returned."""

    def __init__(self, report: ExportReport) -> None:
        failure = report.verification.failure.replace("numpy", "NumPy")
        super().__init__(
            f"verification in ONNX Runtime failed: {failure}",
            hint="nothing was written; --no-verify writes the file all the same",
        )
        self.report = report


def export_onnx(
    source: Source,
    path: str | Path | None = None,
    *,
    opset: int = DEFAULT_OPSET,
    weights: Weights | None = None,
    check: bool = True,
    external_bytes: int = EXTERNAL_BYTES,
    progress: Callable[[str], None] = lambda stage: None,
) -> ExportReport:
    """Write `source` as an ONNX file (default `NAME.onnx` here), of standard operators in version
    `opset` of the operator set, 13 to 28.

    ONNX's checker passes it in full; with `check` ONNX Runtime runs it against the reference, at
    the sizes of `verify`, if it is installed. Weights of more than `external_bytes` stand beside
    the file, in `NAME.onnx.data`, and are never held as a whole. The file appears when all that is
    done, or not at all. `source` and `weights` are those of `compile`; of a model that generates,
    the whole model is written and not its steps. Raises TfgraphError that names all nodes without a
    form in that version, ExportFailed.
    """
    opened = open_source(source, weights)
    graph = opened.graph
    verify_graph(graph)
    final = Path(path or f"{graph.name}{_SUFFIX}")
    _check_place(final)
    arrays = Seeded(graph.params) if opened.weights is None else opened.weights
    progress("write")
    written = graph
    if has_attention(opset):
        written, _ = run_pipeline(graph, parse_pipeline(FUSED))
    model = to_onnx(written, opset)
    operators = Counter(node.op_type for node in model.graph.node)
    data = final.with_name(f"{final.name}.data")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(
            tempfile.mkdtemp(prefix=f".{final.name[:100]}.", suffix=".partial", dir=final.parent)
        )
    except OSError as cause:
        raise TfgraphError(f"cannot write {final}: {cause.strerror}") from cause
    try:
        staged = folder / final.name
        try:
            external = write_model(model, written, arrays, staged, data.name, external_bytes)
        except OSError as cause:
            raise TfgraphError(f"cannot write {final}: {cause.strerror}") from cause
        del model
        progress("check")
        _check_file(staged)
        progress("verify")
        outcome = _verified(graph, arrays, staged) if check else _not_run("--no-verify")
        report = ExportReport(
            final, data if external else None, opset, dict(operators), graph, outcome
        )
        if outcome.ok is False:
            raise ExportFailed(ExportReport(None, None, opset, dict(operators), graph, outcome))
        for name in ([data.name] if external else []) + [final.name]:
            os.replace(folder / name, final.with_name(name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _check_place(final: Path) -> None:
    if final.is_dir():
        raise TfgraphError(f"{final} is a folder", hint="-o names a file, such as model.onnx")
    if final.suffix != _SUFFIX:
        raise TfgraphError(f"{final}: the name of an ONNX file ends in {_SUFFIX}")


def _check_file(path: Path) -> None:
    """ONNX's checker, with the inference of all shapes."""
    import onnx

    checker = cast("Any", onnx.checker)
    try:
        checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as cause:
        raise CheckFailed(f"ONNX's checker refuses the file: {cause}") from cause


def _verified(graph: Graph, weights: Weights, path: Path) -> Verification:
    try:
        executable = OnnxExecutable(graph, path)
    except MissingTool as missing:
        return _not_run(missing.message)
    with executable:
        return verify(executable, graph, weights, None)


def _not_run(reason: str) -> Verification:
    return Verification("numpy", None, f"not run: {reason}")
