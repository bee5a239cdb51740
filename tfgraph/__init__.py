"""tfgraph: a small graph compiler for Transformers.

    import tfgraph

    with tfgraph.graph("block") as g:
        x = g.input("x", "f32", "batch", "seq", 256)
        g.output("y", tfgraph.blocks.layer_norm(x + tfgraph.blocks.attention(x, x, x)))
    model = tfgraph.compile(g.build())
    outputs = model(x=array)

The public API is what stands in `__all__`; each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfgraph import blocks, errors, ops
    from tfgraph.api.bisect import Bisection, bisect
    from tfgraph.api.change import Change, compare_models
    from tfgraph.api.compare import compare
    from tfgraph.api.comparison import Comparison
    from tfgraph.api.compile import CompileReport, build, compile
    from tfgraph.api.export import ExportReport, export_onnx
    from tfgraph.api.source import load_source
    from tfgraph.api.verify import Verification, verify
    from tfgraph.errors import CheckFailed, MissingTool, TfgraphError
    from tfgraph.ir import Fill, Graph
    from tfgraph.ir.mask import (
        alibi,
        bias,
        causal,
        dense,
        padding,
        prefix,
        relative,
        segments,
        window,
    )
    from tfgraph.model import Model
    from tfgraph.ops import Builder, graph
    from tfgraph.plugins import load_plugins
    from tfgraph.runtime.model import load
    from tfgraph.runtime.version import VERSION as __version__
    from tfgraph.text import parse_graph, print_graph
else:
    _MODULES = {"blocks", "errors", "ops"}
    _HOMES = {
        "tfgraph.api": (
            "Bisection",
            "Change",
            "Comparison",
            "CompileReport",
            "Verification",
            "bisect",
            "build",
            "compare",
            "compare_models",
            "compile",
            "verify",
        ),
        "tfgraph.api.export": ("ExportReport", "export_onnx"),
        "tfgraph.api.source": ("load_source",),
        "tfgraph.errors": ("CheckFailed", "MissingTool", "TfgraphError"),
        "tfgraph.ir": ("Fill", "Graph"),
        "tfgraph.ir.mask": (
            "alibi",
            "bias",
            "causal",
            "dense",
            "padding",
            "prefix",
            "relative",
            "segments",
            "window",
        ),
        "tfgraph.model": ("Model",),
        "tfgraph.ops": ("Builder", "graph"),
        "tfgraph.plugins": ("load_plugins",),
        "tfgraph.runtime.model": ("load",),
        "tfgraph.text": ("parse_graph", "print_graph"),
    }

    def __getattr__(name):
        if name == "__version__":
            return importlib.import_module("tfgraph.runtime.version").VERSION
        if name in _MODULES:
            return _imported(f"tfgraph.{name}")
        for home, names in _HOMES.items():
            if name in names:
                value = getattr(_imported(home), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'tfgraph' has no attribute '{name}'")

    def _imported(module):
        """The module; MissingTool where a package is not installed, which to run does not take."""
        from tfgraph.runtime.packages import packages_named

        with packages_named():
            return importlib.import_module(module)

    def __dir__():
        return sorted(__all__)


__all__ = [
    "Bisection",
    "Builder",
    "Change",
    "CheckFailed",
    "Comparison",
    "CompileReport",
    "ExportReport",
    "Fill",
    "Graph",
    "MissingTool",
    "Model",
    "TfgraphError",
    "Verification",
    "__version__",
    "alibi",
    "bias",
    "bisect",
    "blocks",
    "build",
    "causal",
    "compare",
    "compare_models",
    "compile",
    "dense",
    "errors",
    "export_onnx",
    "graph",
    "load",
    "load_plugins",
    "load_source",
    "ops",
    "padding",
    "parse_graph",
    "prefix",
    "print_graph",
    "relative",
    "segments",
    "verify",
    "window",
]
