"""The generic kernels of the CPU against the ops' own bodies in float64, for every core op."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.large_calls import LARGE, SIZES, x_input
from helpers.op_samples import Sample
from helpers.portable_run import RUNS
from helpers.tolerance import UNIT
from tvm import relax, tirx

import tfgraph.ops as ops
from tfgraph.backends.tvm.build import build_objects
from tfgraph.backends.tvm.generic import SUPPORTED, cpu_kernel, cuda_kernel, symbols_of
from tfgraph.backends.tvm.generic.dims import to_expr
from tfgraph.backends.tvm.portable.emit import print_kernels
from tfgraph.backends.tvm.portable.languages import LANGUAGES
from tfgraph.backends.tvm.portable.program import program_of
from tfgraph.backends.tvm.portable.source import launch_plan, source_text
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.errors import TfgraphError
from tfgraph.fuzz.schema import own_ops
from tfgraph.ir import DType
from tfgraph.ops import FloatArray, evaluate, graph
from tfgraph.runtime.jit import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tfgraph.ir import Graph, Node

Array = np.ndarray[Any, np.dtype[Any]]

HAND_WRITTEN = {"linear", "layer_norm", "rms_norm"}  # these have no generic kernel
DTYPES = (DType.float32, DType.int64, DType.int32, DType.bool_)
U = UNIT["float32"]
# Sums of n numbers: their error is at most n * U times the sum of absolute values.
SUMS = {"sum", "mean", "cumsum", "matmul", "weighted_sum", "softmax"}
FUNCTIONS = {"exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "pow", "div"}


@dataclass(frozen=True, eq=False)
class Case:
    """A graph of one node."""

    graph: Graph

    @property
    def node(self) -> Node:
        return self.graph.nodes[0]

    def want(self, given: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Array]:
        """What the op's body gives, in float64 and rounded once."""
        arrays = {name: FloatArray(data) for name, data in given.items()}
        ((_, results),) = evaluate(self.graph, arrays, sizes, FloatArray(np.zeros(1, np.float32)))
        return [result.data for result in results]  # type: ignore[attr-defined]


class Compiled:
    """Cases compiled into one program."""

    def __init__(self, cases: Mapping[str, Case]) -> None:
        self.cases = cases
        builder = relax.BlockBuilder()
        for name, case in cases.items():
            _add(builder, name, case.node)
        objects = build_objects(builder.get(), cpu_machine())
        self._programs = {threads: Program(objects, threads=threads) for threads in (1, 2)}

    def run(
        self, name: str, given: Mapping[str, Array], sizes: Mapping[str, int], threads: int = 2
    ) -> list[Array]:
        node = self.cases[name].node
        carriers = [np.zeros(sizes[symbol], np.int8) for symbol in symbols_of(node)]
        inputs = [given[value.name] for value in node.inputs]
        return self._programs[threads].call(name, [*carriers, *inputs])

    def check(self, name: str, given: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Compare a case's results with those wanted."""
        case = self.cases[name]
        got, want = self.run(name, given, sizes), case.want(given, sizes)
        for g, w in zip(got, want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape), name
            _assert_close(case.node, g, w, [given[v.name] for v in case.node.inputs])


def _add(builder: Any, name: str, node: Node) -> None:
    """A function of a carrier [symbol] for each symbol, which tells its size, and the inputs."""
    symbols = {symbol: tirx.Var(symbol, "int64") for symbol in symbols_of(node)}

    def type_of(value: Any) -> Any:
        shape = [to_expr(dim, symbols) for dim in value.type.shape]
        return relax.TensorType(shape, value.type.dtype.value)

    carriers = [relax.Var(f"size_{s}", relax.TensorType([v], "int8")) for s, v in symbols.items()]
    inputs = [relax.Var(f"x{i}", type_of(value)) for i, value in enumerate(node.inputs)]
    results = [type_of(value) for value in node.outputs]
    kernel = builder.add_func(cpu_kernel(node), f"{name}_kernel")
    with builder.function(name, [*carriers, *inputs]):
        with builder.dataflow():
            types = results if len(results) > 1 else results[0]
            called = relax.call_tir(kernel, [*inputs, *symbols.values()], types)
            result = builder.emit_output(called)
        builder.emit_func_output(result)


def _assert_close(node: Node, got: Array, want: Array, inputs: Sequence[Array]) -> None:
    if got.dtype != np.float32:
        np.testing.assert_array_equal(got, want)
        return
    with np.errstate(all="ignore"):
        reference = want.astype(np.float64)
        bound = np.zeros_like(reference)
        if node.op in FUNCTIONS:  # 4 ulp: those of the functions in vector_math, rounded up
            bound = 4 * np.spacing(np.abs(want), dtype=np.float32).astype(np.float64)
        elif node.op == "softmax":
            n = inputs[0].shape[node.attrs["axis"]]  # type: ignore[call-overload]
            bound = (n + 16) * 2 * U * np.abs(reference) + 1e-40
        elif node.op in SUMS:
            bound = np.float64(_sum_bound(node, inputs))
        elif node.op == "rotary":  # two products and their sum, each rounded
            x, *tables = (np.abs(i).max(initial=0).astype(np.float64) for i in inputs)
            bound = np.full_like(reference, 3 * U * 2 * x * max(tables))
        elif node.op == "embedding_sum":  # the scale, the product by it, and each sum
            first, *others = (float(np.abs(i).max()) for i in inputs if i.dtype == np.float32)
            most = abs(float(node.attrs["scale"])) * first + sum(others)  # type: ignore[arg-type]
            bound = np.full_like(reference, (2 + len(others)) * U * most)
        elif node.op == "mask":  # scores + bias + distance * slope, each rounded
            bound = 8 * U * (np.abs(reference) + 64)
        elif any(operand not in node.inputs for operand in node.operands):
            bound = 2 * U * np.abs(reference) + 1e-44  # the scalar is rounded as well
        finite = np.isfinite(reference)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        error = np.abs(got.astype(np.float64) - reference)
        wrong = finite & ~(error <= bound)
    assert not wrong.any(), (str(node.op), got[wrong][:5], want[wrong][:5], error[wrong][:5])


def _sum_bound(node: Node, inputs: Sequence[Array]) -> Array:
    """n * U * sum |x| over the axis, or over all of x where that is simpler."""
    x = np.abs(inputs[0].astype(np.float64))
    if node.op in ("matmul", "weighted_sum"):
        y = np.abs(inputs[1].astype(np.float64))
        return np.asarray((x.shape[-1] + 1) * U * (x @ y))
    axis = int(node.attrs["axis"])  # type: ignore[arg-type]
    n = x.shape[axis]
    total = x.sum(axis, keepdims=node.op == "cumsum" or bool(node.attrs.get("keepdims")))
    return np.asarray((n + 2) * U * (total / n if node.op == "mean" else total))


@cache
def samples() -> dict[str, Sample]:
    """Random calls of every op with a generic kernel, for each element type that it takes."""
    found: dict[str, Sample] = {}
    for op in sorted(SUPPORTED):
        for dtype in (DType.float32, DType.int64, DType.bool_):
            for seed in range(8):
                try:
                    sample = Sample(op, dtype, seed)
                except TfgraphError:
                    continue  # the op does not take this type
                node = sample.graph.nodes[0]
                if all(v.type.dtype in DTYPES for v in (*node.inputs, *node.outputs)):
                    found[f"{op}_{dtype.short}_{seed}"] = sample
                    break
    return found


@cache
def sampled() -> Compiled:
    return Compiled({name: Case(sample.graph) for name, sample in samples().items()})


def test_every_core_op_has_a_kernel() -> None:
    assert {*own_ops("core"), "rotary", "embedding_sum"} - HAND_WRITTEN == SUPPORTED
    assert {name.rpartition("_")[0].rpartition("_")[0] for name in samples()} == SUPPORTED


@pytest.mark.parametrize("op", sorted(SUPPORTED))
def test_random_calls(op: str) -> None:
    for name, sample in samples().items():
        if name.startswith(f"{op}_") and sample.graph.nodes[0].op == op:
            given = {key: array.data for key, array in sample.given.items()}
            sampled().check(name, given, sample.sizes)


def test_cuda_kernels(tmp_path: Path) -> None:
    """The same calls, emitted as CUDA C and run on the CPU."""
    cuda = CudaOnCpu({n: cuda_kernel(s.graph.nodes[0]) for n, s in samples().items()}, tmp_path)
    for name, sample in samples().items():
        case = Case(sample.graph)
        given = {key: array.data for key, array in sample.given.items()}
        want = case.want(given, sample.sizes)
        got = [np.zeros_like(w) for w in want]
        arguments: dict[str, Array | int] = dict(sample.sizes)
        arguments |= {f"x{i}_ptr": given[v.name] for i, v in enumerate(case.node.inputs)}
        arguments |= {f"y{i}_ptr": array for i, array in enumerate(got)}
        for kernel in cuda.kernels:
            if re.fullmatch(rf"{name}_kernel(_\d+)?", kernel):
                cuda.launch(kernel, arguments)
        for g, w in zip(got, want, strict=True):
            _assert_close(case.node, g, w, [given[v.name] for v in case.node.inputs])


@cache
def large() -> Compiled:
    cases = {}
    for name, make in LARGE.items():
        builder = graph("large")
        for symbol in ("a", "b"):
            builder.symbol(symbol)
        with builder:
            result = make(builder)
        builder.output("y", result)
        cases[name] = Case(builder.build())
    return Compiled(cases)


def _inputs(case: Case, sizes: Mapping[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    given: dict[str, Array] = {}
    for item in case.graph.inputs:
        shape = [dim.evaluate(sizes) for dim in item.value.type.shape]
        dtype = item.value.type.dtype
        data = rng.normal(0, 2, shape) if dtype.is_float else rng.integers(0, 2, shape)
        given[item.value.name] = np.asarray(data).astype(dtype.value)
    if "i" in given and sizes["b"] == 1:  # indices below b
        given["i"][...] = 0
    return given


@pytest.mark.parametrize("name", LARGE)
def test_large_and_small(name: str) -> None:
    for sizes in SIZES:
        given = _inputs(large().cases[name], sizes)
        large().check(name, given, sizes)
        two, one = (large().run(name, given, sizes, threads)[0] for threads in (2, 1))
        assert two.tobytes() == one.tobytes(), "the bits depend on the number of threads"


@pytest.mark.parametrize("target", sorted(RUNS))
def test_portable_kernels(target: str) -> None:
    """The same calls, as the text of another language and on a device."""
    language, ran = LANGUAGES[target], set[str]()
    for case, given, sizes in _portable_cases():
        program = program_of(case.graph, {}, target)
        dtypes = {v.type.dtype.value for v in case.graph.values()}
        if not program.calls or not dtypes <= language.types.keys():
            continue  # a view, or of constants alone, or refused
        kernels = print_kernels(program.functions, language)
        plan = launch_plan(language, program, kernels)
        run = RUNS[target](source_text(language, program, kernels), plan)
        results = run(given | {w.name: w.make() for w in program.weights}, sizes)
        wanted = dict(zip(case.node.outputs, case.want(given, sizes), strict=True))
        for output in case.graph.outputs:
            want = wanted[output.value]
            got = results[output.name].astype(want.dtype)
            if language.finite and want.dtype == np.float32:
                largest = np.finfo(np.float32).max
                want = np.clip(want, -largest, largest)
            _assert_close(case.node, got, want, [given[v.name] for v in case.node.inputs])
        ran.add(case.node.op)
    assert ran == SUPPORTED - {"reshape"}


def _portable_cases() -> Iterator[tuple[Case, Mapping[str, Array], Mapping[str, int]]]:
    for sample in samples().values():
        given = {key: array.data for key, array in sample.given.items()}
        yield Case(sample.graph), given, sample.sizes
    for case in large().cases.values():
        yield case, _inputs(case, SIZES[1]), SIZES[1]


SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 2.5, -2.5, 88.8, -104.5, 3e38],
    np.float32,
)
UNARY = ("neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "floor")
BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "less")
ROWS = ("sum", "mean", "max", "empty", "softmax", "cumsum", "topk")


@cache
def special() -> Compiled:
    cases = {}
    for name in (*UNARY, *BINARY, *ROWS):
        with graph("special") as g:
            x, y = x_input(g, "a", "b"), g.input("y", "f32", "b")
            operands = [x, y] if name in BINARY else [x]
            result = g.apply(name, *operands, **({"k": 3} if name == "topk" else {}))
        for i, r in enumerate(result if isinstance(result, tuple) else (result,)):
            g.output(f"r{i}", r)
        cases[name] = Case(g.build())
    return Compiled(cases)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_special_values(name: str) -> None:
    n = len(SPECIAL)
    x, y = np.repeat(SPECIAL, n).reshape(n, n), SPECIAL
    x = np.ascontiguousarray(np.tile(x, (1, 3)))  # wide enough for the vectorised loop
    given, sizes = {"x": x, "y": np.tile(y, 3)}, {"a": n, "b": 3 * n}
    special().check(name, given, sizes)
    (got,), (want,) = special().run(name, given, sizes), special().cases[name].want(given, sizes)
    if name not in ("maximum", "minimum"):  # of 0 and -0 either is the larger
        zero = want == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("width", [3, 16, 37])
def test_special_rows(name: str, width: int) -> None:
    rng = np.random.default_rng(7)
    rows = rng.integers(-3, 4, (9, width)).astype(np.float32)  # with ties
    rows[1, -1], rows[2, 0], rows[3, 1] = np.nan, np.inf, -np.inf
    rows[4] = -np.inf
    rows[5] = np.nan
    rows[6, 0], rows[6, 1] = np.inf, np.nan
    rows[7] = -np.inf
    rows[7, 2] = 3
    rows[8, 0], rows[8, 2] = np.inf, -np.inf
    given, sizes = {"x": rows, "y": rows[0]}, {"a": 9, "b": width}
    if name in SUMS - {"softmax"}:  # the bound of a sum is of no use where a term is infinite
        got = special().run(name, given, sizes)[0]
        np.testing.assert_array_equal(got, special().cases[name].want(given, sizes)[0])
    else:
        special().check(name, given, sizes)


def test_casts_between_all_types() -> None:
    cases = {}
    for a in DTYPES:
        for b in DTYPES:
            with graph("casts") as g:
                g.output("y", ops.cast(g.input("x", a, "a"), dtype=b))
            cases[f"{a}_{b}"] = Case(g.build())
    compiled = Compiled(cases)
    values = np.array([0, 1, 2.75, -2.75, 100.5, -0.25, 1e9, 2**31 - 200, 16777217, -1])
    for name, case in cases.items():
        x = values.astype(case.graph.inputs[0].value.type.dtype.value)
        compiled.check(name, {"x": x}, {"a": len(x)})
    x = np.array([np.nan, np.inf, -0.0, 1e-45], np.float32)
    compiled.check(f"{DType.float32}_{DType.bool_}", {"x": x}, {"a": len(x)})


def test_indices_out_of_range_read_the_nearest_row() -> None:
    sizes = {"a": 2, "b": 3}
    table = np.arange(150, dtype=np.float32).reshape(2, 75)
    ids = np.array([[-1, 0, 2], [2**31 - 1, 1, -(2**31)]], np.int32)
    (got,) = large().run("embedding", {"i": ids, "x": table}, sizes)
    np.testing.assert_array_equal(got, table[np.clip(ids, 0, 1)])


def test_what_has_no_kernel_is_an_error() -> None:
    with graph("half") as g:
        ops.add(g.input("x", "f16", "a"), g.input("y", "f16", "a"))
        ops.linear(g.input("z", "f32", "a", 3), g.input("w", "f32", 3, 4))
    with pytest.raises(TfgraphError, match="add of f16 has no compiled kernel"):
        cpu_kernel(g.nodes[0])
    with pytest.raises(TfgraphError, match="linear has no generic kernel"):
        cuda_kernel(g.nodes[1])
