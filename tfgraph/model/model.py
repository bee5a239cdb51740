"""A model: a graph with its weights. `read_model` makes one from a YAML file.

May import: the other files of this package, weights, ir, errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir.targets import find_target
from tfgraph.model.build import build_graph
from tfgraph.model.check import is_free, validate
from tfgraph.model.files import find_tokenizer, where_it_is_sought, whole_path
from tfgraph.model.free import build_free
from tfgraph.model.generate import build_functions, why_not
from tfgraph.model.limits import check_sizes
from tfgraph.model.read import read_document
from tfgraph.model.schema import FreeForm, HighLevel
from tfgraph.runtime.text import TokenRules
from tfgraph.weights import Checkpoint, Seeded, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tfgraph.ir import DType, Graph
    from tfgraph.model.read import Document
    from tfgraph.model.schema import File

    NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Model:
    """A graph, its weights by parameter name (lazy), and what its file says about compiling.

    `passes` are those that its kind of file wants, where these are not the default ones;
    `locations` gives the place of each key at the top of the file, for messages about them;
    `functions` are those with which it generates, over the same weights (see `model.generate`);
    `tokenizer` is the tokenizer.json that goes into artifacts, and `no_generation` why the model
    does not generate.
    """

    graph: Graph
    weights: Mapping[str, NDArray]
    name: str
    target: str | None = None
    arch: str | None = None
    tf32: bool = False
    path: Path | None = None
    passes: str | None = None
    locations: Mapping[str, Location] = field(default_factory=lambda: dict[str, Location]())
    functions: Mapping[str, Graph] = field(default_factory=lambda: dict[str, "Graph"]())
    tokenizer: Path | None = None
    generation: TokenRules | None = None
    no_generation: str | None = None

    @property
    def seeded(self) -> bool:
        """Whether the weights are made from a seed, not read from a file."""
        return isinstance(self.weights, Seeded)

    @property
    def dtype(self) -> DType:
        """The element type of the parameters; of the outputs in a graph without any."""
        values = [p.value for p in self.graph.params] + [o.value for o in self.graph.outputs]
        return next((v.type.dtype for v in values if v.type.dtype.is_float), values[0].type.dtype)

    def intervene(self, edits: Mapping[str, Any]) -> Model:
        """The model with `Graph.intervene` done to its graph and to the functions with which it
        generates, of which each has a part of the graph. No file holds it."""

        def has(graph: Graph, name: str) -> bool:
            try:
                find_target(graph, name)
            except TfgraphError:
                return False
            return True

        graph = self.graph.intervene(edits)
        functions = {
            key: part.intervene({name: new for name, new in edits.items() if has(part, name)})
            for key, part in self.functions.items()
        }
        return replace(self, graph=graph, functions=functions, path=None)

    def load(self) -> dict[str, NDArray]:
        """All parameters as arrays: by name, in the graph's shapes and dtypes."""
        return {param.value.name: self.weights[param.value.name] for param in self.graph.params}


def read_model(path: str | Path, text: str | None = None) -> Model:
    """The model of a YAML file, in either form, or of a `text` that would stand there. Raises one
    TfgraphError with every mistake, each at its line and column."""
    document = read_document(path, text)
    spec: HighLevel | FreeForm
    functions: dict[str, Graph] = {}
    generation = None
    no_generation: str | None = "its file lists nodes"
    if is_free(document.data):
        spec = validate(document, FreeForm)
        name = _name(spec.name, document)
        graph, file, key = build_free(spec, document, name), spec.checkpoint, "checkpoint"
    else:
        spec = validate(document, HighLevel)
        name = _name(spec.name, document)
        graph, file, key = build_graph(spec, document, name), spec.weights, "weights"
        functions, no_generation = build_functions(spec, document, name), why_not(spec)
        if spec.generation is not None:
            generation = TokenRules(
                *(tuple(getattr(spec.generation, f.name)) for f in fields(TokenRules))
            )
    check_sizes(graph, spec, document, seeded=file is None)
    return Model(
        graph=graph,
        weights=Seeded(graph.params, spec.seed)
        if file is None
        else _open(file, graph, document, key),
        name=name,
        target=spec.target,
        arch=spec.arch,
        tf32=spec.tf32,
        path=Path(path),
        locations={k: document.place(k).value for k in document.data},
        functions=functions,
        tokenizer=None if spec.tokenizer is None else find_tokenizer(spec.tokenizer, document),
        generation=generation,
        no_generation=no_generation,
    )


def _name(given: str | None, document: Document) -> str:
    """The graph's name: the file's own unless the model has one."""
    if given is None:
        stem = re.sub(r"\W", "_", Path(document.file).stem, flags=re.ASCII)
        return stem if stem.isidentifier() else f"model_{stem}"
    if not (given.isidentifier() and given.isascii()):
        raise TfgraphError(
            f"name: '{given}' is not a name of letters, digits and _", document.place("name").value
        )
    return given


def _open(file: File, graph: Graph, document: Document, key: str) -> Weights:
    where = document.place(key, "file").value
    path = whole_path(file.file, document)
    places: dict[str | None, Location] = {None: where}
    places |= {rule: document.place(key, "names", rule).value for rule in file.names}
    try:
        checkpoint = Checkpoint(path)
    except TfgraphError as error:
        message = error.message if path.name in error.message else f"{file.file}: {error.message}"
        hint = error.hint if path.exists() else where_it_is_sought(file.file, document)
        raise TfgraphError(f"{key}: {message}", where, hint) from error
    return Weights(graph.params, checkpoint, file.names, file.ignore, places)
