"""The fuzzer's judge: runs graphs on the reference and on a backend, and tells right from wrong.

The bound is the project's own, `tfgraph.api.bounds`. Where an output exceeds it, the graph may be
so ill-conditioned that float32 cannot do better. So the exact result is computed (float64
throughout, nothing rounded), and how far it moves when every op reads operands that are a rounding
error away. A kernel is backward stable if its result is the exact one of such operands (Higham,
Accuracy and Stability of Numerical Algorithms, 2002, section 1.5): a right backend's error is of
that size, and a wrong one's is not. `Judge` counts the outputs that needed this second look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import tfgraph
from tfgraph.api.bounds import difference
from tfgraph.backends.numpy import NumpyExecutable, in_float64
from tfgraph.ir import Graph, Output, Value
from tfgraph.ops import FloatArray, evaluate
from tfgraph.ops.define import OpDef
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from helpers.fuzz_inputs import Case

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]

POINTS: tuple[dict[str, int], ...] = (
    {"batch": 1, "seq": 1, "memory": 1, "past": 1},
    {"batch": 2, "seq": 7, "memory": 3, "past": 5},
    {"batch": 3, "seq": 34, "memory": 33, "past": 2},
    {"batch": 1, "seq": 65, "memory": 64, "past": 31},
)
_ULPS = 1  # operands are moved by as many units of float32's rounding error, 2^-24
_RUNS = 3
_SLACK = 8  # the moves are random, the worst case is not
_UNDERFLOW = 2.0**-126  # the least normal number of float32


def merge(cases: Sequence[Case]) -> Graph:
    """All cases as one graph: the symbols are shared, other names begin with the case's seed."""

    def renamed(case: Case) -> Graph:
        graph = case.graph

        def new(value: Value) -> Value:
            return Value(f"s{case.seed}.{value.name}", value.type)

        return replace(
            graph,
            inputs=tuple(replace(i, value=new(i.value)) for i in graph.inputs),
            params=tuple(replace(p, value=new(p.value)) for p in graph.params),
            nodes=tuple(
                replace(n.map_values(new), outputs=tuple(map(new, n.outputs))) for n in graph.nodes
            ),
            outputs=tuple(Output(f"s{case.seed}.{o.name}", new(o.value)) for o in graph.outputs),
        )

    graphs = [renamed(case) for case in cases]
    parts = {
        name: tuple(item for graph in graphs for item in getattr(graph, name))
        for name in ("inputs", "params", "nodes", "outputs")
    }
    return Graph(name="fuzz", symbols=graphs[0].symbols, **parts)


def merged_feeds(cases: Sequence[Case], sizes: Mapping[str, int]) -> dict[str, NDArray]:
    """The inputs of `merge(cases)`."""
    return {
        f"s{case.seed}.{name}": array for case in cases for name, array in case.feeds(sizes).items()
    }


@dataclass(frozen=True)
class Wrong:
    """An output that is wrong at some sizes; `output` is empty where the backend raised."""

    output: str
    sizes: Mapping[str, int]
    why: str


@dataclass
class Judge:
    """Compares a backend with the reference; counts outputs, and those looked at twice."""

    backend: str = "cpu"
    threads: int | None = None
    outputs: int = 0
    sensitive: int = 0
    notes: list[str] = field(default_factory=list)

    def check(self, graph: Graph, feeds: Sequence[tuple[Mapping[str, int], Arrays]]) -> list[Wrong]:
        """What is wrong at any of the sizes with their inputs."""
        weights = Seeded(graph.params)
        try:
            run = tfgraph.compile(graph, self.backend, weights=weights, threads=self.threads)
        except Exception as error:  # a compiler must not fail, in whatever way
            return [Wrong("", feeds[0][0], f"compile: {type(error).__name__}: {error}"[:2000])]
        try:
            return [
                wrong
                for sizes, arrays in feeds
                for wrong in self._at(run, graph, weights, sizes, arrays)
            ]
        finally:
            run.close()

    def _at(
        self, run: Any, graph: Graph, weights: Any, sizes: Mapping[str, int], arrays: Arrays
    ) -> list[Wrong]:
        dims = untold(graph, sizes)
        expected = NumpyExecutable(graph, weights)(dims=dims, **arrays)
        try:
            got = run(dims=dims, **arrays)
        except Exception as error:
            return [Wrong("", sizes, f"run: {type(error).__name__}: {error}"[:2000])]
        found: list[Wrong] = []
        for name, want in expected.items():
            self.outputs += 1
            d = difference(name, want, got[name])
            if d.ok:
                continue
            self.sensitive += 1
            why = f"off by {d.max_abs:.2e} at {list(d.worst_index)}, bound {d.bound:.2e}"
            allowed = _sensitivity(only(graph, name), weights, sizes, arrays, want, got[name])
            if d.max_abs <= allowed:
                self.notes.append(f"{name} at {dict(sizes)}: {why}, sensitivity {allowed:.2e}")
            else:
                found.append(Wrong(name, sizes, f"{why}, sensitivity {allowed:.2e}"))
        return found


def _sensitivity(
    graph: Graph,
    weights: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    arrays: Arrays,
    want: NDArray,
    got: NDArray,
) -> float:
    """How far rounding, and underflow of the result, may move the graph's output; 0 where it is not
    of floats, or where the two are not finite at the same places."""
    if want.shape != got.shape or want.dtype != got.dtype or want.dtype.kind != "f":
        return 0.0
    if not np.array_equal(np.isfinite(want), np.isfinite(got)):
        return 0.0
    inputs = {i.value.name: arrays[i.value.name] for i in graph.inputs}
    (exact,) = NumpyExecutable(graph, weights, exact=True)(
        dims=untold(graph, sizes), **inputs
    ).values()
    given = inputs | {p.value.name: weights[p.value.name] for p in graph.params}
    with np.errstate(all="ignore"):
        moves = [np.abs(_moved(graph, given, sizes, seed) - exact) for seed in range(_RUNS)]
    finite = np.isfinite(want)
    return _UNDERFLOW + _SLACK * max(float(np.max(move[finite], initial=0)) for move in moves)


def untold(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that no input's shape tells."""
    told = {str(d) for i in graph.inputs for d in i.value.type.shape}
    return {name: size for name, size in sizes.items() if name not in told}


def only(graph: Graph, output: str) -> Graph:
    """The part of the graph that makes one output."""
    (chosen,) = (o for o in graph.outputs if o.name == output)
    needed = {chosen.value}
    nodes = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            nodes.append(node)
            needed.update(node.inputs)
    return replace(
        graph,
        inputs=tuple(i for i in graph.inputs if i.value in needed),
        params=tuple(p for p in graph.params if p.value in needed),
        nodes=tuple(reversed(nodes)),
        outputs=(chosen,),
    )


# Ops that compute nothing, or jump: their operands are not moved.
_KEPT = {
    *("reshape", "transpose", "broadcast_to", "concat", "slice", "take", "take_at", "embedding"),
    *("where", "cast", "floor", "less", "equal", "topk", "empty", "maximum", "minimum", "max"),
}


@dataclass(frozen=True, eq=False)
class Moved(FloatArray):
    """An array whose ops read operands that are a few ulp of float32 away, and round nothing."""

    rng: np.random.Generator | None = None

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The body of a core op in float64; of a composite op, each op in its body so."""
        composite = definition.kind == "composite"
        kept = composite or definition.name in _KEPT

        def move(x: Any) -> Any:
            if not isinstance(x, FloatArray):
                return x.map(move) if hasattr(x, "map") else x
            data = x.data
            if data.dtype.kind == "f" and not kept:
                assert self.rng is not None
                shift = self.rng.choice([-_ULPS, _ULPS], data.shape) * 2.0**-24
                data = data * (1 + shift)
            return Moved(data, self.rng) if composite else FloatArray(data)

        with np.errstate(all="ignore"):
            result = definition.body(*map(move, operands), **attrs)
        if isinstance(result, tuple):
            return tuple(Moved(r.data, self.rng) for r in result)
        return Moved(result.data, self.rng)


def _moved(graph: Graph, given: Arrays, sizes: Mapping[str, int], seed: int) -> NDArray:
    rng = np.random.default_rng(seed)
    arrays = {
        name: Moved(a.astype(np.float64) if a.dtype.kind == "f" else a, rng)
        for name, a in given.items()
    }
    value = graph.outputs[0].value
    found = {name: a.data for name, a in arrays.items() if name == value.name}
    for node, results in evaluate(in_float64(graph), arrays, sizes, Moved(np.zeros(()), rng)):
        found |= {v.name: r.data for v, r in zip(node.outputs, results, strict=True) if v == value}
    return np.asarray(found[value.name], np.float64)
