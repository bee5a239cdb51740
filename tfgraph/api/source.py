"""What `compile`, `build` and `compare` take: a graph, a model, or the path of one.

May import: weights, backends.base, passes, hf, onnx, model, ops, runtime, ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tfgraph.api.weights import given_weights
from tfgraph.backends.base import Target, Weights
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Graph
from tfgraph.ir import dtype as dtype_of
from tfgraph.ops import Builder
from tfgraph.passes import DEFAULT_PIPELINE, IMPORTED_PIPELINE
from tfgraph.runtime.files import read_file
from tfgraph.runtime.format import MANIFEST
from tfgraph.runtime.packages import packages_named
from tfgraph.runtime.runnable import Runnable
from tfgraph.runtime.text import MAX_TOKENIZER, TokenRules

if TYPE_CHECKING:
    from tfgraph.model import Model

    Source = Graph | Model | str | Path


CONFIG = "config.json"
"""The file by which a folder is a checkpoint."""


@dataclass(frozen=True)
class Opened:
    """A graph with its weights, None for seeded ones, the target that it names itself, and what
    else a model has: other functions, a tokenizer, where generation starts and stops, or why it
    does not generate. `file` is the one that it was read from, without its folder."""

    graph: Graph
    weights: Weights | None
    target: Target = Target("cpu")
    functions: Mapping[str, Graph] = field(default_factory=dict[str, Graph])
    tokenizer: Path | None = None
    generation: TokenRules | None = None
    no_generation: str | None = None
    file: str | None = None
    passes: str = DEFAULT_PIPELINE
    """Those that its kind of file wants."""
    onnx: Path | None = None
    """The ONNX file that the graph was read from, and is what it means."""
    gpu: Target = Target("cuda")
    """What it says of compiling for a GPU, also where its own target is another."""

    def tokenizer_json(self) -> bytes | None:
        """The bytes of the tokenizer. Raises TfgraphError for a file that cannot be read."""
        try:
            return None if self.tokenizer is None else read_file(self.tokenizer, MAX_TOKENIZER)
        except OSError as cause:
            raise TfgraphError(f"{self.tokenizer}: {cause.strerror}") from cause

    def choose(self, target: str | Target | None, dtype: str | DType | None = None) -> Target:
        """The target asked for, one that has only a name as the model's file wants it, else its
        own; tf32 of the file is for the model in float32."""
        if isinstance(target, Target):
            return target
        if (target or self.target.name) != "cuda":
            return Target(target) if target else self.target
        narrow = dtype is not None and dtype_of(dtype) is not DType.float32
        return replace(self.gpu, tf32=False) if narrow else self.gpu


def open_source(source: Source, weights: Weights | None = None) -> Opened:
    """The graph of `source`: a Graph, a Model, or a path as `load_source` takes it (`model.yaml`,
    `file.onnx`, `file.py:name`, `graph.tfg`, a checkpoint's folder). `weights` stand in for the
    model's own: all of them, of the parameters' shapes and dtypes. Raises TfgraphError."""
    opened = _open(source)
    given = opened.weights if weights is None else weights
    opened = opened if weights is None else replace(opened, onnx=None)
    return opened if given is None else replace(opened, weights=given_weights(opened.graph, given))


def load_source(spec: str | Path) -> Model:
    """The model that `spec` names: a checkpoint's folder, an ONNX file (`.onnx`), `model.yaml`,
    `file.py:name` (a Graph, a Builder, a Model, or a function of no arguments that returns one), or
    a file of textual IR (`.tfg`, `.txt`, or any that begins with `graph `). Graphs without weights
    of their own get seeded ones.

    Raises TfgraphError for a file that is missing, of another kind, or wrong, MissingTool where a
    package that reads it is not installed.
    """
    with packages_named():
        from tfgraph import model
    path = Path(spec)
    if path.suffix == ".onnx" and not path.is_dir() and lexists(path):
        with packages_named():
            from tfgraph.onnx import import_onnx
        graph, weights = import_onnx(path)
        return model.Model(graph, weights, graph.name, path=path, passes=IMPORTED_PIPELINE)
    if not (path.is_dir() and (path / CONFIG).is_file()):
        return model.load_source(spec)
    with packages_named():
        from tfgraph.hf import import_checkpoint
    file = path / "model.yaml"  # where the text would stand: it is not written
    return model.read_model(file, import_checkpoint(path, file))


def _open(source: Source) -> Opened:
    if isinstance(source, Graph):
        return Opened(source, None)
    with packages_named():
        from tfgraph.model import Model  # not for graphs: reading YAML loads much

    if isinstance(source, str | Path):
        if (Path(source) / MANIFEST).is_file():
            raise TfgraphError(
                f"{source} is an artifact, compiled already", hint="tfgraph.load runs it"
            )
        opened = _open(load_source(source))
        return replace(opened, file=Path(source).name)
    given = cast("object", source)  # whatever the annotation says
    if isinstance(given, Model):
        gpu = Target("cuda", arch=given.arch, tf32=given.tf32)
        own = gpu if given.target == "cuda" else Target(given.target or "cpu")
        more = given.functions, given.tokenizer, given.generation, given.no_generation
        passes = given.passes or DEFAULT_PIPELINE
        path = given.path if given.path is not None and given.path.suffix == ".onnx" else None
        found = Opened(given.graph, given.weights, own, *more, passes=passes, onnx=path)
        return replace(found, gpu=gpu)
    if isinstance(given, Builder):
        raise TfgraphError(
            f"graph {given.name} is still being built", hint="call build() for the graph"
        )
    if isinstance(given, Runnable):
        raise TfgraphError(f"{given.name} is compiled already", hint="call it with its inputs")
    raise TfgraphError(f"expected a graph, a model or the path of one, got {given!r:.60}")
