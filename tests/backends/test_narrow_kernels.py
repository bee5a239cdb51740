"""Kernels of float16 and bfloat16 for CUDA, run on the CPU, against the ops' bodies in float64:
they compute in float32 and round once, so that results are the nearest numbers but where float32
is off."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np
import pytest
from helpers.cuda_graphs import CudaGraphs
from helpers.op_samples import SAMPLES, Sample
from helpers.tolerance import UNIT, assert_within

from tfgraph import ops
from tfgraph.backends.tvm.cuda.arch import parse_arch
from tfgraph.backends.tvm.cuda.emit import emit_kernels
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType
from tfgraph.ir.mask import alibi, bias, causal, padding, relative
from tfgraph.ops import FloatArray, evaluate
from tfgraph.ops.floats import numpy_dtype
from tfgraph.rounding import isolated_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tfgraph.ir import Graph
    from tfgraph.ops import Traced

NDArray = np.ndarray[Any, Any]
NARROW = (DType.float16, DType.bfloat16)
NO_KERNEL = (DType.float64, DType.int4)


def sample(op: str, dtype: DType) -> Sample | None:
    """A random call of an op; None of one that takes no floats."""
    for seed in range(8):
        try:
            found = Sample(op, dtype, seed)
        except TfgraphError:
            continue
        values = [v.type.dtype for v in found.graph.values()]
        if dtype in values and not any(kind in NO_KERNEL for kind in values):
            return found
    return None


def cases(dtype: DType) -> dict[str, Callable[[Any], Any]]:
    """Calls at sizes above a thread's share and a tile, in each of the forms of a kernel."""

    def x(g: Any, *shape: Any, name: str = "x") -> Any:
        return g.input(name, dtype, *shape)

    def row(g: Any, name: str, size: int) -> Any:
        return g.input(name, dtype, size)

    def attended(g: Any, mask: Any = None) -> Any:
        q, k, v = (x(g, "a", "b", width, name=n) for n, width in (("q", 48), ("k", 24), ("v", 24)))
        return ops.attention(
            q, k, v, *([] if mask is None else [mask]), heads=4, kv_heads=2, scale=0.3
        )

    return {
        "layer_norm": lambda g: ops.layer_norm(
            x(g, "a", "b", 300), row(g, "s", 300), row(g, "t", 300), eps=1e-12
        ),
        "rms_norm": lambda g: ops.rms_norm(x(g, "a", "b", 1100), row(g, "s", 1100), eps=1e-6),
        "norm_of_any_width": lambda g: ops.layer_norm(x(g, "a", "b"), None, None, eps=1e-12),
        "add_layer_norm": lambda g: ops.add_layer_norm(
            x(g, "a", "b", 130), x(g, "a", "b", 130, name="y"), row(g, "s", 130), row(g, "t", 130),
            row(g, "shift", 130), eps=1e-12, keep_sum=True,
        ),
        "add_rms_norm": lambda g: ops.add_rms_norm(
            x(g, "a", "b", 64), x(g, "a", "b", 64, name="y"), row(g, "s", 64), eps=1e-5,
            keep_sum=True,
        ),
        "softmax": lambda g: ops.softmax(x(g, "a", "b", 300)),
        "softmax_of_any_width": lambda g: ops.softmax(x(g, 3, "b")),
        "softmax_of_columns": lambda g: ops.softmax(x(g, "a", 300, 3), axis=1),
        "gelu": lambda g: ops.linear_activation(
            x(g, "a", "b", 70), g.input("w", dtype, 70, 65), row(g, "t", 65), activation="gelu"
        ),
        "gated": lambda g: ops.gated_linear(
            x(g, "a", "b", 70), g.input("w", dtype, 70, 65), x(g, "a", "b", 65, name="gate")
        ),
        "matmul": lambda g: ops.matmul(x(g, "a", "b", 130), g.input("y", dtype, "a", 130, 66)),
        "attention": attended,
        "causal": lambda g: attended(g, causal()),
        "biased": lambda g: attended(
            g, padding(g.input("lengths", "i64", "a")) & bias(x(g, "b", "b", name="bias"))
        ),
        "alibi": lambda g: attended(g, alibi(row(g, "slopes", 4))),
        "relative": lambda g: attended(g, relative(g.input("table", dtype, 32, 4))),
        "gelu_alone": lambda g: ops.gelu(x(g, "a", "b", 75)),
        "sum": lambda g: ops.sum_(x(g, "a", "b", 300)),
        "cumsum": lambda g: ops.cumsum(x(g, 2, "b", 3), axis=1),
        "to_bool": lambda g: ops.cast(x(g, "a", "b"), dtype="bool"),
        "to_integer": lambda g: ops.cast(x(g, "a", "b"), dtype="i32"),
        "to_float32": lambda g: ops.cast(x(g, "a", "b"), dtype="f32"),
        "from_float32": lambda g: ops.cast(g.input("x", "f32", "a", "b"), dtype=dtype),
        "scaled": lambda g: ops.mul(x(g, "a", "b"), 0.1),
    }  # fmt: skip


def graph_of(make: Callable[[Any], Any]) -> Graph:
    with ops.graph("case") as g:
        for symbol in ("a", "b"):
            g.symbol(symbol)
        made = make(g)
        results = made if isinstance(made, tuple) else (made,)
        for i, result in enumerate(results):
            g.output(f"y{i}", cast("Traced", result))
    return g.build()


GRAPHS = {
    f"{name}_{dtype.short}": graph_of(make)
    for dtype in NARROW
    for name, make in cases(dtype).items()
}
SAMPLED = {
    f"{op}_{dtype.short}": found
    for op in SAMPLES
    for dtype in NARROW
    if (found := sample(op, dtype)) is not None
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CudaGraphs:
    graphs = {f"sample_{name}": s.graph for name, s in SAMPLED.items()}
    return CudaGraphs({**GRAPHS, **graphs}, tmp_path_factory.mktemp("narrow"))


def check(
    run: CudaGraphs, name: str, graph: Graph, given: Mapping[str, NDArray], sizes: Mapping[str, int]
) -> None:
    """Against the body in float64, rounded once: within what the kernel declares, and within a step
    of the type, and what float32 does to sums that cancel."""
    arrays = {key: FloatArray(array) for key, array in given.items()}
    steps = evaluate(graph, arrays, sizes, FloatArray(np.zeros(1, np.float32)))
    known = {
        v.name: r.data for node, made in steps for v, r in zip(node.outputs, made, strict=True)
    }
    got, bounds = run(name, dict(given), sizes), isolated_bounds(graph, {}, given, sizes, "cuda")
    size = max([1.0, *(np.abs(a.astype(np.float64)).max(initial=0) for a in given.values())])
    for output in graph.outputs:
        want, found = known[output.value.name], got[output.name]
        assert (found.dtype, found.shape) == (want.dtype, want.shape), name
        assert_within(found, want, bounds[output.name], name)
        nearest = all(node.op != "attention" for node in graph.nodes)  # it rounds weights, too
        if nearest and output.value.type.dtype in NARROW:
            with np.errstate(invalid="ignore"):
                step = np.abs(np.spacing(want).astype(np.float64))
            assert_within(found, want, step + 64 * UNIT["float32"] * size**2, name)
            same = (found == want) | (np.isnan(found) & np.isnan(want))
            same = same[np.isnan(want) | (np.abs(want) > 2.0**-6)]  # above what float32 cancels
            assert same.size < 100 or same.mean() > 0.9, f"{name}: {same.mean()} are the nearest"
        elif not output.value.type.dtype.is_float:
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", SAMPLED)
def test_random_calls_of_every_op(run: CudaGraphs, name: str) -> None:
    s = SAMPLED[name]
    given = {key: array.data for key, array in s.given.items()}
    check(run, f"sample_{name}", s.graph, given, s.sizes)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("sizes", [{"a": 1, "b": 1}, {"a": 2, "b": 67}])
def test_forms_of_kernels(run: CudaGraphs, name: str, sizes: dict[str, int]) -> None:
    graph, rng = GRAPHS[name], np.random.default_rng(3)
    given: dict[str, NDArray] = {}
    for item in graph.inputs:
        shape = [dim.evaluate(sizes) for dim in item.value.type.shape]
        kind = item.value.type.dtype
        data = rng.normal(0, 1, shape) if kind.is_float else rng.integers(0, sizes["b"] + 1, shape)
        given[item.value.name] = np.asarray(data).astype(numpy_dtype(kind))
    check(run, name, graph, given, sizes)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_norm_does_not_overflow_where_squares_do(run: CudaGraphs, dtype: Any) -> None:
    """The squares of 300 are beyond float16; an eps of 1e-12 is 0 there."""
    name = f"rms_norm_{DType(np.dtype(dtype).name).short}"
    x = np.full((1, 1, 1100), 300, dtype)
    got = run(name, {"x": x, "s": np.ones(1100, dtype)}, {"a": 1, "b": 1})["y0"]
    np.testing.assert_array_equal(got.astype(np.float64), 1)


def test_a_fully_masked_row_gives_zeros(run: CudaGraphs) -> None:
    for dtype in NARROW:
        x = np.full((2, 67, 300), -np.inf, numpy_dtype(dtype))
        x[0, 0, 7] = 3
        got = run(f"softmax_{dtype.short}", {"x": x}, {"a": 2, "b": 67})["y0"].astype(np.float64)
        assert got[0, 0, 7] == 1
        assert got.sum() == 1


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_nvcc_compiles_all_without_spills(run: CudaGraphs, tmp_path: Path, arch: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    forms = {n: f for n, f in run.functions.items() if not n.startswith("sample_")}
    functions = {n: f for n, f in forms.items() if arch != "sm_75" or "_bf16" not in n}
    source, _ = emit_kernels(functions, parse_arch(arch))
    assert ("#include <cuda_bf16.h>" in source) == (arch != "sm_75")
    assert "#include <cuda_fp16.h>" in source
    file = tmp_path / "kernels.cu"
    file.write_text(source, encoding="utf-8")
    command = [
        nvcc,
        f"-arch={arch}",
        "-cubin",
        "-Xptxas",
        "-v",
        "-o",
        str(tmp_path / "o"),
        str(file),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    spilling = [
        line
        for line in made.stderr.splitlines()
        if "spill" in line and " 0 bytes spill stores" not in line
    ]
    assert not spilling, spilling
    assert "warning" not in made.stderr
