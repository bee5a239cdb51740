"""ONNX Runtime: runs the ONNX file that was written for a graph.

May import: onnx_file, errors; onnxruntime, which is a development dependency.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfgraph.backends.onnx_file import OnnxFile
from tfgraph.errors import CheckFailed, MissingTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.backends.base import NDArray

_FATAL = 4  # of the levels of its log
_UNKNOWN = ("bfloat16", "int4")  # dtypes that its Python interface does not pass


@dataclass(repr=False)
class OnnxExecutable(OnnxFile):
    """An ONNX file in ONNX Runtime, on the CPU."""

    target: str = field(init=False, default="onnxruntime")
    library = "ONNX Runtime"

    def start(self) -> Any:
        """The session."""
        for port in (*self.inputs, *self.outputs):
            if port.dtype in _UNKNOWN:
                raise MissingTool(f"ONNX Runtime for Python passes no {port.dtype} ('{port.name}')")
        return start_session(str(self.path))

    def results(self, session: Any, names: list[str], given: dict[str, NDArray]) -> Sequence[Any]:
        """See `OnnxFile.results`."""
        return session.run(names, given)  # type: ignore[no-any-return]


def start_session(file: str | bytes, folder: str | None = None) -> Any:
    """A session of a file, or of its bytes, whose weights may lie in a folder. Raises
    MissingTool without ONNX Runtime or a kernel, CheckFailed where it refuses the file."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise MissingTool("onnxruntime is not installed", hint="pip install onnxruntime") from None
    options = runtime.SessionOptions()
    options.log_severity_level = _FATAL
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
    try:
        return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as cause:
        if type(cause).__name__ != "NotImplemented":
            raise CheckFailed(f"ONNX Runtime refuses the file: {cause}") from cause
        reason = str(cause).partition("Could not find an implementation for ")[2]
        operator = reason.partition(" node")[0] or str(cause)
        raise MissingTool(
            f"ONNX Runtime {runtime.__version__} has no kernel for {operator}"
        ) from None
