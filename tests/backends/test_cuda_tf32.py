"""`--tf32`: products of float32 on tensor cores, and the bounds that count their roundings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cuda_artifacts import on_gpu
from helpers.tolerance import UNIT

import tfgraph as tg
from tfgraph import ops
from tfgraph.backends.base import Target, input_ports
from tfgraph.backends.tvm.cuda import backend
from tfgraph.backends.tvm.cuda.backend import CudaBackend
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph
from tfgraph.rounding import end_to_end, isolated_bounds
from tfgraph.runtime.examples import example
from tfgraph.weights import Seeded

PLAIN, WITH = (Target("cuda", arch="sm_80", tf32=tf32) for tf32 in (False, True))


def products(dtype: str = "f32") -> Graph:
    """Two linears, and a product of what they give."""
    with ops.graph("products") as g:
        x = g.input("x", dtype, g.symbol("batch", 1, 4, 2), g.symbol("n", 1, 40, 9), 24)
        a, b = (ops.linear(x, g.param(name, dtype, 24, 40)) for name in "ab")
        g.output("y", ops.matmul(a, ops.transpose(b, perm=(0, 2, 1))))
    return g.build()


def test_artifacts_differ_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "find_toolkit", lambda: None)
    sources, manifests = [], []
    for target in (PLAIN, WITH):
        folder = tmp_path / str(target.tf32)
        tg.build(products(), target, folder, check=False, prove=False)
        sources.append((folder / "kernels" / "kernels.cu").read_text())
        manifests.append(json.loads((folder / "manifest.json").read_text()))
    assert ["mma_tf32(" in source for source in sources] == [False, True]
    assert [manifest["cuda"].get("tf32") for manifest in manifests] == [None, True]


def test_what_it_is_not_for() -> None:
    with pytest.raises(TfgraphError, match="tf32 is for target cuda, not cpu"):
        Target("cpu", tf32=True)
    for target, graph, message in (
        (WITH, products("f16"), "tf32 is for models in float32, and this is in float16"),
        (Target("cuda", arch="sm_75", tf32=True), products(), "tf32 needs sm_80 or newer"),
    ):
        with pytest.raises(TfgraphError, match=message):
            CudaBackend().build(graph, Seeded(graph.params), target)


def in_tf32(x: Any) -> Any:
    """Rounded to eleven significant bits, ties away from zero: cvt.rna of the PTX ISA."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def one_linear(depth: int, columns: int) -> Graph:
    with ops.graph("one") as g:
        x = g.input("x", "f32", 8, depth)
        g.output("y", ops.linear(x, g.param("w", "f32", depth, columns)))
    return g.build()


def test_the_bound_of_a_kernel_is_that_of_the_worst_factors() -> None:
    """A number in the middle between two of tf32 is off by nearly 2^-11 of itself."""
    graph, worst = one_linear(64, 5), np.float32(1 + 2.0**-11)
    x, w = np.full((8, 64), worst), np.full((64, 5), worst)
    error = float(np.max(np.abs(in_tf32(x).astype(np.float64) @ in_tf32(w) - np.float64(x) @ w)))
    (bound,) = {float(b) for b in isolated_bounds(graph, {"w": w}, {"x": x}, {}, WITH)["y"].flat}
    assert error <= bound < 1.1 * error
    plain = isolated_bounds(graph, {"w": w}, {"x": x}, {}, PLAIN)["y"]
    assert plain.max() < error / 50


def test_the_bound_of_a_graph_is_near_what_is_seen() -> None:
    graph, draw = one_linear(256, 64), np.random.default_rng(3)
    x, w = (draw.standard_normal(shape).astype(np.float32) for shape in ((8, 256), (256, 64)))
    error = np.abs(in_tf32(x).astype(np.float64) @ in_tf32(w) - np.float64(x) @ w).max()
    (output,) = graph.outputs
    bound = end_to_end(graph, {"w": w}, {"x": x}, {}, WITH)[output.value.name]
    assert error < bound < 30 * error
    assert error > 100 * UNIT["float32"] * np.abs(np.float64(x) @ w).max()


VERIFIED = """
import sys
import tfgraph
from tfgraph.backends.base import Target
from tfgraph.model import Model
from tfgraph.weights import Seeded
sys.path.insert(0, sys.argv[2])
from test_cuda_tf32 import WITH, products
report = tfgraph.build(products(), WITH, sys.argv[1], prove=False)
assert report.verification.ok, report.verification
compared = tfgraph.compare(products(), backends=("numpy", "cuda"), artifact=sys.argv[1])
assert compared.ok, compared
graph = products()
model = Model(graph, Seeded(graph.params), "products", tf32=True)
by_file = tfgraph.compare(model, backends=("numpy", "cuda"))
assert by_file.outputs == compared.outputs, by_file
print(report.verification.outputs[0].bound, compared.outputs[0].max_abs, compared.outputs[0].bound)
"""


def test_an_artifact_is_within_its_bounds(fake_cuda: Path, tmp_path: Path) -> None:
    """As it is verified, and compared: it is beyond those of float32."""
    printed = on_gpu(fake_cuda, VERIFIED, tmp_path / "made", Path(__file__).parent)
    verified, error, bound = map(float, printed.split())
    graph = products()
    feeds = {port.name: example(port, {"batch": 2, "n": 9}, 0) for port in input_ports(graph)}
    sizes, weights = {"batch": 2, "n": 9}, Seeded(graph.params)
    (output,) = graph.outputs
    limit = end_to_end(graph, weights, feeds, sizes, PLAIN)[output.value.name]
    assert 3 * limit < error < bound < 30 * error
    assert bound / 10 < verified < 10 * bound
