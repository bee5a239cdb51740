"""What a FILE argument may be: a YAML model, a graph in Python, a graph as text.

May import: model, text, weights, ops, ir, runtime.files, errors.
"""

from __future__ import annotations

import inspect
import runpy
import sys
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.ir import Graph
from tfgraph.model.model import Model, read_model
from tfgraph.ops import Builder, verify
from tfgraph.runtime.files import read_text
from tfgraph.text import parse_graph
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from types import TracebackType

MAX_TEXT = 32_000_000
"""Bytes of a graph as text: some 300,000 nodes."""
_YAML = (".yaml", ".yml")
_TEXT = (".tfg", ".txt")
_KINDS = (
    "a .yaml model, a .onnx file, a checkpoint's folder (with config.json), file.py:name, or a "
    "graph as text (.tfg)"
)
_ONE = "name a Graph, or a function of no arguments that returns one"
_NO_STREAM = "models are read from files, not from standard input or a pipe: write it to one"


def load_source(spec: str | Path) -> Model:
    """The model that `spec` names: `model.yaml`, `file.py:name` (a Graph, a Builder, a Model, or a
    function of no arguments that returns one), or a file of textual IR (`.tfg`, `.txt`, or any that
    begins with `graph `). Graphs without weights of their own get seeded ones.

    Raises TfgraphError for a file that is missing, of another kind, or wrong.
    """
    spec = str(spec)
    file, colon, name = spec.rpartition(":")
    if colon and Path(file).suffix == ".py":
        return _from_python(Path(file), name)
    path = Path(spec)
    if path.suffix == ".py":
        raise TfgraphError(
            "which graph of the file?",
            Location(spec),
            f"write {spec}:name, such as :model",
        )
    if path.suffix in _YAML:
        return read_model(path)
    if path.is_dir():
        checkpoint = (path / "config.json").is_file()
        hint = f"tfgraph import hf {spec} -o model.yaml" if checkpoint else f"expected {_KINDS}"
        raise TfgraphError("this is a folder", Location(spec), hint)
    if spec == "-" or (path.exists() and not path.is_file()):
        raise TfgraphError("cannot read the model: this is not a file", Location(spec), _NO_STREAM)
    if not path.is_file():
        raise TfgraphError("cannot read the model: no such file", Location(spec), _near(path))
    if path.suffix in _TEXT or _begins_with_graph(path):
        return _from_text(path)
    raise TfgraphError("this is not a model", Location(spec), f"expected {_KINDS}")


def _near(path: Path) -> str | None:
    folder = path.parent
    return nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else None


def _begins_with_graph(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4096).lstrip().startswith(b"graph ")
    except OSError:
        return True  # why it cannot be read is told when it is


def _from_text(path: Path) -> Model:
    try:
        text = read_text(path, MAX_TEXT)
    except OSError as cause:
        what = f"cannot read the graph: {cause.strerror}"
        raise TfgraphError(what, Location(str(path))) from cause
    except UnicodeDecodeError as cause:
        raise TfgraphError(
            "cannot read the graph: this is not text", Location(str(path)), f"expected {_KINDS}"
        ) from cause
    if not text.strip():
        raise TfgraphError("the file is empty", Location(str(path)), f"expected {_KINDS}")
    return _model(parse_graph(text, str(path)), path)


def _model(graph: Graph, path: Path) -> Model:
    verify(graph)
    return Model(graph, Seeded(graph.params), graph.name, path=path)


def _from_python(path: Path, name: str) -> Model:
    where = Location(str(path))
    if not path.is_file():
        raise TfgraphError("no such file", where, _near(path))
    names = _run(path)
    if name not in names:
        usable = [n for n, value in names.items() if _may_be_graph(n, value, names)]
        known = f"it has {', '.join(usable)}" if usable else "it has no graph, nor a function"
        raise TfgraphError(f"the file has no '{name}'", where, nearest(name, usable) or known)
    made = names[name]
    if callable(made) and not isinstance(made, Graph | Builder | Model):
        made = _call(path, name, made)
    if isinstance(made, Builder):
        made = made.build()
    if isinstance(made, Model):
        return made
    if not isinstance(made, Graph):
        raise TfgraphError(f"'{name}' is a {type(made).__name__}, expected a graph", where, _ONE)
    return _model(made, path)


def _may_be_graph(name: str, value: Any, names: dict[str, Any]) -> bool:
    """Whether a name of the file is a graph, or a function written there that may return one."""
    if name.startswith("_") or isinstance(value, type):
        return False
    own = callable(value) and getattr(value, "__module__", None) == names["__name__"]
    return isinstance(value, Graph | Builder | Model) or (own and not _needed(value))


def _needed(function: Any) -> list[str]:
    """The arguments that a function cannot be called without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in optional]


def _run(path: Path) -> dict[str, Any]:
    """The names that a file defines, run with its folder first on the import path."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path))
    except TfgraphError:
        raise
    except SyntaxError as cause:
        where = Location(cause.filename or str(path), cause.lineno or 0, cause.offset or 0)
        raise TfgraphError(f"not Python: {cause.msg}", where) from cause
    except (Exception, SystemExit) as cause:
        raise _blame(path, cause) from cause
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _call(path: Path, name: str, function: Any) -> Any:
    needed = _needed(function)
    if needed:
        code = getattr(function, "__code__", None)
        line = 0
        if isinstance(code, CodeType) and code.co_filename == str(path):
            line = code.co_firstlineno
        raise TfgraphError(
            f"'{name}' takes arguments ({', '.join(needed)}): there are none to give",
            Location(str(path), line),
            _ONE,
        )
    try:
        return function()
    except TfgraphError:
        raise
    except Exception as cause:
        raise _blame(path, cause) from cause


def _blame(path: Path, cause: BaseException) -> TfgraphError:
    """The error of a user's file, at its innermost line there."""
    line = 0
    trace: TracebackType | None = cause.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return TfgraphError(f"{type(cause).__name__}: {cause}", Location(str(path), line))
