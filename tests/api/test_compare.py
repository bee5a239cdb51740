"""`compare` as a function: it runs what compiles as it is, and names what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.onnx_files import node, save

import tfgraph
from tfgraph.api import compare
from tfgraph.api.blame import judge
from tfgraph.api.fuse import fuse
from tfgraph.api.import_check import check_import
from tfgraph.backends import Backend, Target, register_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.backends.tvm.cpu.backend import CpuBackend
from tfgraph.errors import TfgraphError
from tfgraph.model import load_source
from tfgraph.onnx import import_onnx
from tfgraph.passes import DEFAULT_PIPELINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Graph

ROOT = Path(__file__).parents[2]
NDArray = np.ndarray[Any, Any]


def test_inputs_left_out_follow_those_given() -> None:
    graph = load_source(str(ROOT / "examples/encoder.yaml")).graph
    report = compare(graph, ("numpy", "numpy"), {"input_ids": np.ones((3, 5), np.int64)})
    assert report.dims == {"batch": 3, "seq": 5}
    assert report.ok
    assert all(d.max_abs == 0 for d in report.outputs)


def small() -> Graph:
    with tfgraph.graph("small") as g:
        x = g.input("x", "f32", "n", 8)
        h = tfgraph.blocks.linear(x, 8, name="up")
        g.output("y", tfgraph.blocks.linear(h, 8, name="down") + 1)
    return g.build()


def test_the_artifact_is_not_tapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs first is what `compile` makes; its kernels are compiled beside it."""
    seen: list[Graph] = []
    compiled = CpuBackend.compile

    def watched(self: CpuBackend, graph: Graph, *more: Any) -> Any:
        seen.append(graph)
        return compiled(self, graph, *more)

    monkeypatch.setattr(CpuBackend, "compile", watched)
    graph = small()
    report = compare(graph, dims={"n": 3}, intermediates=False)
    assert report.ok
    assert (len(report.intermediates), report.of) == (0, 0)
    assert seen == [fuse(graph, Target("cpu"), DEFAULT_PIPELINE).compiled]
    assert compare(graph, dims={"n": 3}).of == len(seen[0].nodes)
    kernels = seen[2]
    assert len(kernels.nodes) == 1
    assert seen[1] == seen[0]


@dataclass
class Wrong:
    """The reference, of which `wrong` changes the outputs of some graphs."""

    inner: NumpyExecutable
    wrong: Callable[[Graph, dict[str, NDArray]], dict[str, NDArray]]

    def __post_init__(self) -> None:
        self.inputs, self.outputs = self.inner.inputs, self.inner.outputs
        self.symbols = self.inner.symbols

    def __call__(self, *, dims: Any = None, **inputs: Any) -> dict[str, NDArray]:
        return self.wrong(self.inner.graph, self.inner(dims=dims, **inputs))

    def close(self) -> None: ...


def wrong_backend(wrong: Callable[[Graph, dict[str, NDArray]], dict[str, NDArray]]) -> None:
    class Planted(Backend):
        name = "planted"

        def compile(self, graph: Graph, weights: Any, target: Any, functions: Any = None) -> Any:
            return Wrong(NumpyExecutable(graph, weights), wrong)

    register_backend("planted", Planted)


def test_what_stands_between_kernels_is_told_apart() -> None:
    """The whole is wrong, and no kernel is."""
    wrong_backend(lambda g, out: {k: v + (len(g.nodes) > 1) for k, v in out.items()})
    report = compare(small(), ("numpy", "planted"), dims={"n": 3})
    assert not report.ok
    first = report.first_divergence
    assert first is not None
    assert (first.kind, first.op, first.isolated) == ("between kernels", "add", None)
    assert "every kernel is right alone" in str(report)
    (judgement,) = report.judgements
    assert judgement.blamed == ("planted",)
    assert judgement.errors[0] < 1e-6 < judgement.errors[1]


def test_the_worst_element_is_not_that_of_the_largest_error() -> None:
    """A row of small numbers has small bounds: an error is far beyond them that is small."""

    def off(graph: Graph, outputs: dict[str, NDArray]) -> dict[str, NDArray]:
        found = {name: array.copy() for name, array in outputs.items()}
        for array in found.values():
            array[1, 2] += 1e-4
            array[2, 0] += 1
        return found

    wrong_backend(off)
    with tfgraph.graph("scales") as g:
        w = g.param("w", "f32", 64, 3)
        g.output("y", tfgraph.ops.linear(g.input("x", "f32", "n", 64), w))
    draw = np.random.default_rng(0)
    weights = {"w": draw.uniform(1, 2, (64, 3)).astype(np.float32)}
    x = draw.uniform(1, 2, (3, 64)).astype(np.float32) * np.float32([[1], [1e-3], [1e3]])
    report = compare(g.build(), ("numpy", "planted"), {"x": x}, weights=weights, passes="dce")
    first = report.first_divergence
    assert first is not None
    assert (first.kind, first.worst_index) == ("kernel", (1, 2))
    assert first.isolated is not None
    assert first.isolated == pytest.approx(1e-4, rel=1e-3)
    assert first.isolated_max == first.accumulated == 1
    json = first.to_json()
    assert (json["isolated"], json["isolated_max"]) == (first.isolated, first.isolated_max)
    times = f"{first.isolated / first.bound:.3g} times its bound {first.bound:.2e}"
    assert f"\n  worst element  1.00e-04 at [1, 2], {times}\n" in str(report)
    assert f"\n  largest error  {first.isolated_max:.2e}, on the reference's inputs" in str(report)
    assert f"\n  accumulated    {first.accumulated:.2e}, the largest on what" in str(report)
    assert max(len(line) for line in str(first).splitlines()[1:4]) <= 80


def test_errors_that_grow_are_told_from_a_wrong_kernel() -> None:
    """A sum of 512 terms may be off by 512 roundings, where all go one way; the reference's never
    do, and its outputs are held to that."""

    def off(y: NDArray) -> NDArray:
        return (y.astype(np.float64) * (1 + 300 * 2.0**-24)).astype(y.dtype)

    class Growing(Wrong):
        def __call__(self, *, dims: Any = None, **inputs: Any) -> dict[str, NDArray]:
            known = {**inputs, **{n: self.inner.weights[n] for n in ("up", "down")}}
            for step in self.inner.graph.nodes:
                x, w = (known[v.name] for v in step.inputs)
                known[step.output.name] = off((x.astype(np.float64) @ w).astype(np.float32))
            return {o.name: known[o.value.name] for o in self.inner.graph.outputs}

    class Planted(Backend):
        name = "growing"

        def compile(self, graph: Graph, weights: Any, target: Any, functions: Any = None) -> Any:
            return Growing(NumpyExecutable(graph, weights), lambda graph, outputs: outputs)

    register_backend("growing", Planted)
    with tfgraph.graph("long") as g:
        h = tfgraph.ops.linear(g.input("x", "f32", "n", 512), g.param("up", "f32", 512, 512))
        g.output("y", tfgraph.ops.linear(h, g.param("down", "f32", 512, 512)))
    rng = np.random.default_rng(0)
    weights = {name: rng.random((512, 512), np.float32) for name in ("up", "down")}
    x = rng.random((3, 512), np.float32)
    first = compare(
        g.build(), ("numpy", "growing"), {"x": x}, weights=weights, passes="dce"
    ).first_divergence
    assert first is not None
    assert (first.kind, first.op, first.isolated) == ("accumulated", "linear", None)
    assert "their errors grow" in first.why


def test_integers_are_right_or_wrong() -> None:
    with tfgraph.graph("whole") as g:
        g.output("y", tfgraph.ops.cast(g.input("x", "f32", 3), dtype="i64"))
    x = np.array([1.5, -2.5, 7], np.float32)
    want = np.array([1, -2, 7])
    results = [("right", want), ("off", np.array([1, -1, 7])), ("narrow", want.astype(np.int32))]
    judged = judge(g.build(), "y", {}, {}, {"x": x}, results)
    assert judged.blamed == ("off", "narrow")
    assert judged.errors == (0, 1, np.inf)
    assert judged.to_json()["errors"] == {"right": 0, "off": 1, "narrow": None}


def test_the_first_kernel_in_order_is_named() -> None:
    """Two are wrong; the error of the first reaches the second, which is worse."""
    sizes = {"up": 1e-2, "y": 1.0}

    def wrong(graph: Graph, out: dict[str, NDArray]) -> dict[str, NDArray]:
        made = {o.name: o.value.name for o in graph.outputs}
        return {k: v + np.float32(sizes.get(made[k], 0)) for k, v in out.items()}

    wrong_backend(wrong)
    first = compare(small(), ("numpy", "planted"), dims={"n": 3}).first_divergence
    assert first is not None
    assert (first.kind, first.value, first.op) == ("kernel", "up", "linear")
    assert first.reproduction is not None
    assert [n.op for n in first.reproduction.kernel.graph.nodes] == ["linear"]
    assert first.location is not None
    assert first.location.startswith(__file__)


def test_who_is_as_good_as_float32_allows_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that cancel to a millionth: what roundings do to them is known, and no bound is a share
    of the result. Beyond a bound that is too low there is float64."""
    with tfgraph.graph("cancel") as g:
        x, w = g.input("x", "f32", "n", 512), g.param("w", "f32", 512, 4, fill=tfgraph.Fill("ones"))
        g.output("y", tfgraph.ops.linear(x, w))
    rng = np.random.default_rng(0)
    half = rng.normal(0, 1e3, (7, 256))
    x_values = np.concatenate([half, -half + rng.normal(0, 1e-3, half.shape)], 1)
    x_values = rng.permuted(x_values, axis=1).astype(np.float32)
    assert all(d.ok for d in compare(g.build(), inputs={"x": x_values}).outputs)
    monkeypatch.setattr("tfgraph.rounding.statistical.factor", lambda draws: 1e-9)
    report = compare(g.build(), inputs={"x": x_values})
    assert not all(d.ok for d in report.outputs)
    assert report.ok
    assert report.first_divergence is None
    (judgement,) = report.judgements
    assert judgement.blamed == ()
    assert "none to blame" in str(report)


def test_an_artifact_runs_as_it_is(tmp_path: Path) -> None:
    graph, artifact = small(), tmp_path / "small.tfgraph"
    weights = {
        p.value.name: np.ones(tuple(map(int, p.value.type.shape)), np.float32) for p in graph.params
    }
    weights["down.weight"][0, 0] = np.nan  # which is equal to itself
    tfgraph.compile(graph, "cpu", output=artifact, weights=weights).close()
    assert compare(graph, weights=weights, artifact=artifact, dims={"n": 2}).ok
    other = {**weights, "down.weight": weights["down.weight"] * 2}
    report = compare(graph, weights=other, artifact=artifact, dims={"n": 2}, intermediates=False)
    first = report.first_divergence
    assert first is not None
    assert (first.kind, first.value, first.worst_index) == ("weight", "down.weight", (0, 1))
    assert "63 of 64 elements differ, by up to 1.00e+00" in first.why
    renamed = replace(graph, outputs=(replace(graph.outputs[0], name="z"),))
    with pytest.raises(TfgraphError, match="was compiled from another model"):
        compare(renamed, artifact=artifact, dims={"n": 2})


def test_a_weight_that_is_not_quite_the_file_s_is_named(tmp_path: Path) -> None:
    """By its last digit; a NaN in both is the same."""
    w = np.linspace(1, 2, 8, dtype=np.float32).reshape(2, 4)
    w[0, 1] = np.nan
    inputs = {"x": ("f32", ["n", 2])}
    file = save(tmp_path / "m.onnx", [node("MatMul", "x w", "y")], inputs, ["y"], {"w": w})
    graph, weights = import_onnx(file)
    changed = {"w": np.array(weights["w"])}
    given = file, "onnx-reference", graph
    feeds = {"x": np.ones((1, 2), np.float32)}
    assert check_import(*given, changed, feeds, {"n": 1}).first is None
    changed["w"][1, 2] = np.nextafter(changed["w"][1, 2], np.float32(9))
    first = check_import(*given, changed, feeds, {"n": 1}).first
    assert first is not None
    assert (first.kind, first.value, first.worst_index) == ("weight", "w", (1, 2))
