"""`import_onnx`: an ONNX file as a graph, node for node.

Every node is translated by itself; nothing is recovered, which is what the passes `recover-*` do.
Shapes are computed while the nodes are read, so that none of their arithmetic is left. Where two
sizes that the file calls differently must be equal, they become one, and the import begins anew.
May import: file, parts, site, registry, ranges, dims, ops, ir, errors.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx

from tfgraph import ops
from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.ir import Dim, Fill, Graph, Value, as_dim
from tfgraph.ir.legal import LONGEST_NAME, NOT_INPUTS
from tfgraph.onnx.dims import AtMost, Equal, Sizes
from tfgraph.onnx.file import DOMAINS, File, Stored, Weights, element_type, read_file
from tfgraph.onnx.known import Known, shortest
from tfgraph.onnx.order import in_order
from tfgraph.onnx.parts import of_parts
from tfgraph.onnx.ranges import limited, pruned
from tfgraph.onnx.registry import Translator, find_translator, operators
from tfgraph.onnx.site import Site, Tensor, array_of, elements, literal, small
from tfgraph.ops import Traced
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tfgraph.ir import Node

NDArray = np.ndarray[Any, Any]

log = logging.getLogger("tfgraph")
_MOST_SYMBOLS = 200
_MOST_NODES = 10_000  # that one of the file becomes
_SHOWN = 1000  # nodes of one file that no translator takes
_HINT = "a plugin adds an operator: see tfgraph.onnx.translates"


def import_onnx(
    path: str | Path, given: Mapping[str, NDArray] | None = None
) -> tuple[Graph, Weights]:
    """The graph of an ONNX file, and its weights by parameter name as lazy views.

    `given` are inputs that are known now, by name: those that hold shapes, which a graph's sizes
    cannot depend on. They are constants of the graph and no inputs. Raises TfgraphError for a file
    that is damaged, and one that names every node whose operator is not known.
    """
    file = read_file(path)
    translators = _find_translators(file)
    sizes = Sizes()
    if file.notes is not None:
        sizes.high |= {symbol.name: symbol.high for symbol in file.notes.symbols}
    for _ in range(_MOST_SYMBOLS):
        try:
            return Importer(file, sizes, translators, given or {}).run()
        except Equal as found:
            log.info("%s is %s: %s", found.symbol, found.size, found.why)
            sizes.replace(found)
        except AtMost as found:
            log.info("%s: %s", found, found.why)
            sizes.high[found.symbol] = found.high
        except RecursionError as cause:
            raise TfgraphError("the graph is nested too deeply", Location(str(path))) from cause
    raise TfgraphError(f"more than {_MOST_SYMBOLS} sizes are equal", Location(str(path)))


def _find_translators(file: File) -> list[Step]:
    """The nodes, each behind those whose results it reads, with their translators. Raises one
    TfgraphError for all nodes that have none."""
    found: list[Step] = []
    errors: list[TfgraphError] = []
    where = Location(str(file.path))
    for node in in_order(file):
        name = node.op_type if node.domain in DOMAINS else f"{node.domain}.{node.op_type}"
        translator = find_translator(name, file.opset)
        if translator is None:
            what = f"node '{node.name or next(iter(node.output), '')}': the operator {name}"
            hint = nearest(name, operators()) if name not in operators() else None
            what += " is not supported" + (f" in version {file.opset}" if hint is None else "")
            errors.append(TfgraphError(what, where, None))
        else:
            found.append((node, translator))
    if errors:
        first, *rest = errors[:_SHOWN]
        more = len(errors) - _SHOWN
        hint = f"and {more} more nodes; {_HINT}" if more > 0 else _HINT
        raise TfgraphError(first.message, where, hint, rest)
    return found


Step = tuple[onnx.NodeProto, Translator]


class Importer:
    """One attempt at a file, with the symbols that are known to be equal so far."""

    def __init__(
        self,
        file: File,
        sizes: Sizes,
        translators: list[Step],
        given: Mapping[str, NDArray],
    ) -> None:
        self.file, self.sizes, self._given = file, sizes, given
        self._translators = translators
        self._notes = file.notes
        self._builder = ops.graph(
            _identifier(file.path.stem) if file.notes is None else file.notes.name
        )
        self._values: dict[str, Tensor | None] = {"": None}
        self._weights = Weights()
        self._params: dict[str, Traced] = {}  # by the file's names
        self._param_values: set[Value] = set()
        self._small: dict[str, Known | None] = {}
        self._noted: Mapping[str, Fill] = {} if file.notes is None else file.notes.weights
        self._taken = set(self._noted)
        self._labels: set[Value] = set()
        self.step = -1
        self._steps: list[int] = []  # of each node
        self._producer: dict[Value, Node] = {}
        self._seen = 0  # nodes of the builder that are among its producers
        self._where = Location(str(file.path))

    @property
    def producer(self) -> Mapping[Value, Node]:
        """The node that makes each value so far."""
        for node in self._builder.nodes[self._seen :]:
            self._producer |= dict.fromkeys(node.outputs, node)
        self._seen = len(self._builder.nodes)
        return self._producer

    def is_weight(self, value: Value) -> bool:
        """Whether a value is a parameter, or of fixed size and computed from parameters alone."""
        if value in self._param_values:
            return True
        node = self.producer.get(value)
        return node is not None and node.is_static and all(map(self.is_weight, node.inputs))

    @contextmanager
    def at_step(self, step: int) -> Generator[None]:
        """What is made inside belongs to that node of the file: it may be asked for by a later
        one."""
        self._mark()
        before, self.step = self.step, step
        try:
            yield
        finally:
            self._mark()
            self.step = before

    def _mark(self) -> None:
        """Note to which step the newest nodes belong."""
        self._steps += [self.step] * (len(self._builder.nodes) - len(self._steps))

    def run(self) -> tuple[Graph, Weights]:
        """The graph and its weights."""
        with self._builder:
            try:
                self._declare_inputs()
                for step, (node, translator) in enumerate(self._translators):
                    with self.at_step(step):
                        self._translate(node, translator)
                self._name_outputs()
                graph = self._in_order(self._builder.build())
            except TfgraphError as error:
                error.location = self._where
                raise
        graph = limited(pruned(graph), self.sizes, self._notes)
        kept = Weights()
        for param in graph.params:
            kept.add(param.value.name, self._weights.reader(param.value.name))
        return graph, kept

    def _in_order(self, graph: Graph) -> Graph:
        """The graph with its nodes as in the file, and its weights in the order of the notes."""
        self._mark()
        steps = dict(zip(graph.nodes, self._steps, strict=True))
        nodes = sorted(graph.nodes, key=lambda node: steps[node])
        place = {name: i for i, name in enumerate(self._noted)}
        params = sorted(graph.params, key=lambda p: place.get(p.value.name, len(place)))
        return replace(graph, nodes=tuple(nodes), params=tuple(params))

    def tensor(self, x: Stored) -> Any:
        """A tensor of the file in the graph: a formula where one gives it, else a parameter."""
        if x.name not in self._params:
            made: Any = None
            if x.name in self._noted:
                made = self._param(x)
            elif not x.dtype.is_float or len(x.shape) != 1 or x.shape[0] == 1:
                made = literal(x.read(), x.dtype)
            if made is None and x.dtype.is_float:
                made = of_parts(x, self._param)
            self._params[x.name] = self._param(x) if made is None else made
        return self._params[x.name]

    @property
    def is_own(self) -> bool:
        """Whether `export` wrote the file: what is no weight in it is no parameter."""
        return self._notes is not None

    def elements(self, x: Stored) -> Any:
        """A constant by its elements, each the shortest decimal that rounds to it."""
        numbers = [shortest(n) if x.dtype.is_float else int(n) for n in x.read().reshape(-1)]
        return ops.constant(values=numbers, shape=x.shape, dtype=x.dtype)

    def from_known(self, x: Known, site: Site) -> Any:
        """Numbers as a tensor of the graph; those that sizes don't say are a constant of a node."""
        if x.make is not None:
            return x.make()
        if not x.is_const:
            return elements(x, self.sizes)
        array = array_of(x)
        made = literal(array, x.dtype)
        if made is None:
            name = site.node.output[0] if site.node.output else site.node.name
            made = self._param(Stored(f"{name}.constant", x.dtype, array.shape, lambda: array))
        return made

    def known(self, x: Stored) -> Known | None:
        """The numbers of a small tensor of the file."""
        if x.name not in self._small:
            weight = x.name in self._noted
            self._small[x.name] = None if weight else small(x, lambda: self.tensor(x))
        return self._small[x.name]

    def _param(self, x: Stored) -> Traced:
        fill = self._noted.get(x.name)
        name = self._unique(x.name or "constant") if fill is None else x.name
        self._weights.add(name, x.read)
        fill = fill or (None if x.dtype.is_float else Fill("zeros"))
        param = self._builder.param(name, x.dtype, *x.shape, fill=fill)
        self._param_values.add(param.value)
        return param

    def _declare_inputs(self) -> None:
        for stored in self.file.stored.values():
            self._values[stored.name] = stored
        names = [declared.name for declared in self.file.graph.input]
        for name in self._given:
            if name not in names:
                raise TfgraphError(f"there is no input '{name}'", hint=nearest(name, names))
        for declared in self.file.graph.input:
            if declared.name in self._values:
                if declared.name not in self.file.stored:
                    raise TfgraphError(f"there are two inputs called '{declared.name}'")
                continue  # older files list their weights among the inputs, too
            self._values[declared.name] = self._input(declared)

    def _input(self, declared: onnx.ValueInfoProto) -> Tensor:
        if declared.name in self._given:
            array = self._given[declared.name]
            dtype = element_type(
                declared.type.tensor_type.elem_type, f"the input '{declared.name}'"
            )
            if array.dtype != numpy_dtype(dtype):
                raise TfgraphError(f"'{declared.name}' is {array.dtype}, expected {dtype.value}")
            return Stored(declared.name, dtype, array.shape, lambda: array)
        name, kind = declared.name, declared.type.WhichOneof("value")
        if kind != "tensor_type":
            raise TfgraphError(f"the input '{name}' is no tensor")
        type_ = declared.type.tensor_type
        dtype = element_type(type_.elem_type, f"the input '{name}'")
        if not type_.HasField("shape"):
            raise TfgraphError(f"the input '{name}' has no shape: its rank must be known")
        shape: list[Dim] = []
        for axis, dim in enumerate(type_.shape.dim):
            if dim.HasField("dim_value"):
                shape.append(as_dim(dim.dim_value))
            else:
                text = dim.dim_param
                shape.append(self.sizes.named(text or f"{name} dim {axis}", f"{name}_{axis}"))
        public = self._unique(name + "_" * (name in NOT_INPUTS), keep=True)
        fill: Fill | None = None
        if self._notes is not None:
            fill = self._notes.inputs.get(name)
        elif "mask" in name and len(shape) == 2 and not dtype.is_float:
            fill = Fill("prefix")
        return self._builder.input(public, dtype, *shape, fill=fill)

    def _translate(self, node: onnx.NodeProto, translator: Translator) -> None:
        site = Site(self, node, self.file.opset)
        try:
            inputs = [self._read(name) for name in node.input]
            attributes = site.attributes()
            label = node.name or next(iter(node.output), node.op_type)
            with (
                self._builder.at(Location(f"{self.file.path}:{label}")),
                self._builder.at_most(_MOST_NODES),
            ):
                results = translator(site, inputs, attributes)
        except TfgraphError as error:
            told = str(site) in error.message
            message = error.message if told else f"{site}: {error.message}"
            raise TfgraphError(message, self._where, error.hint, error.related) from error
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as cause:
            message = f"{site} cannot be translated: {type(cause).__name__}: {cause}"
            raise TfgraphError(message, self._where) from cause
        several = isinstance(results, tuple)
        results = list(cast("tuple[Tensor, ...]", results)) if several else [results]
        if len(results) < sum(map(bool, node.output)):
            raise TfgraphError(f"{site} has {len(node.output)} results, expected {len(results)}")
        for name, result in zip(node.output, results, strict=False):
            if name in self._values and name:
                raise TfgraphError(f"two values are called '{name}'")
            if name:
                self._values[name] = result
                self._label(result, name)

    def _read(self, name: str) -> Tensor | None:
        if name not in self._values:
            raise TfgraphError(f"nothing makes '{name}'")
        return self._values[name]

    def _label(self, result: Any, name: str) -> None:
        """The result of a node has the file's name; one that was there before keeps its own."""
        if not isinstance(result, Traced) or result.value in self._labels:
            return
        if result.value.name.isdigit():
            self._labels.add(result.value)
            self._builder.label(result, self._unique(name))

    def _name_outputs(self) -> None:
        for declared in self.file.graph.output:
            site = Site(self, onnx.NodeProto(output=[declared.name]), self.file.opset)
            value = self._read(declared.name)
            if value is None:
                raise TfgraphError("an output has no name")
            x = site.tensor(value)
            kind = declared.type.tensor_type.elem_type
            if kind and element_type(kind, f"the output '{declared.name}'") != x.dtype:
                raise TfgraphError(f"the output '{declared.name}' is {x.type}, declared otherwise")
            self._builder.output(declared.name, x)

    def _unique(self, name: str, *, keep: bool = False) -> str:
        """A name of letters, digits, _ and . that no other value has."""
        base = name if keep and len(name) <= LONGEST_NAME else clean(name)
        base = f"v{base}" if base.isdigit() else base
        free, number = base, 1
        while free in self._taken:
            number += 1
            free = f"{base}_{number}"
        self._taken.add(free)
        return free


def clean(name: str) -> str:
    """A name of the file as values have it, /m/layer.0/MatMul_output_0 as
    m.layer.0.MatMul_output_0; another value of that name has a number behind it."""
    text = re.sub(r"[/:]+", ".", name).strip(".")
    text = re.sub(r"[^A-Za-z0-9_.]+", "_", text)[: LONGEST_NAME - 20]
    return text or "value"


def _identifier(stem: str) -> str:
    text = re.sub(r"\W+", "_", stem, flags=re.ASCII)[:100] or "model"
    return text if text.isidentifier() else f"model_{text}"
