"""`tfgraph.export_onnx`: what it writes, what it refuses, and that a failure leaves nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tfgraph
from tfgraph import ops
from tfgraph.api.export import ExportFailed
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.ir import Fill
from tfgraph.onnx.export import exports, registry, to_onnx, write_model

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.ir import Graph

    NDArray = np.ndarray[Any, Any]


WIDTH = 60
"""So that a weight is no whole number of pages."""


def chain(layers: int = 6) -> Graph:
    with tfgraph.graph("chain") as g:
        x = g.input("x", "f32", "n", WIDTH)
        for i in range(layers):
            x = ops.relu(ops.linear(x, g.param(f"w{i}", "f32", WIDTH, WIDTH)))
        g.output("y", x)
    return g.build()


class Lazy(Mapping[str, Any]):
    """Weights made when they are asked for, which counts how many are alive at once."""

    def __init__(self, graph: Graph) -> None:
        self.names = [p.value.name for p in graph.params]
        self.made: list[weakref.ref[Any]] = []
        self.most = 0

    def make(self, name: str) -> NDArray:
        seed = int(name.removeprefix("w"))
        return np.random.default_rng(seed).normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32)

    def __getitem__(self, name: str) -> NDArray:
        array = self.make(name).view(_Counted)
        self.made.append(weakref.ref(array))
        self.most = max(self.most, sum(ref() is not None for ref in self.made))
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class _Counted(np.ndarray):  # a plain array takes no weak references
    pass


def test_external_data(tmp_path: Path) -> None:
    """Weights beside the file, each where a runtime can map it, and never two in memory."""
    graph = chain()
    weights = Lazy(graph)
    path = tmp_path / "chain.onnx"
    report = tfgraph.export_onnx(graph, path, weights=weights, check=False, external_bytes=10_000)
    assert weights.most == 1
    assert (report.path, report.data) == (path, tmp_path / "chain.onnx.data")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chain.onnx", "chain.onnx.data"]
    assert path.stat().st_size < 3000
    stored = onnx.load(path).graph.initializer
    for tensor in stored:
        if tensor.name in weights:
            np.testing.assert_array_equal(
                onnx.numpy_helper.to_array(tensor, str(tmp_path)), weights.make(tensor.name)
            )
    raw = onnx.load(path, load_external_data=False).graph.initializer
    offsets = [int(e.value) for t in raw for e in t.external_data if e.key == "offset"]
    assert len(offsets) == 6
    assert all(offset % 4096 == 0 for offset in offsets)
    x = np.ones((3, WIDTH), np.float32)
    (beside,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    whole = tfgraph.export_onnx(graph, path, weights=weights, check=False)
    assert whole.data is None
    (inside,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    np.testing.assert_array_equal(beside, inside)


@pytest.mark.parametrize("limit", [0, 10**9])
def test_weights_in_another_order(tmp_path: Path, limit: int) -> None:
    """Arrays that are views of others, as a checkpoint's transposed ones, are written as their
    elements stand."""
    with tfgraph.graph("views") as g:
        x = g.input("x", "f32", "n", 3)
        x = ops.linear(x, g.param("w", "f32", 3, 5), g.param("b", "f32", 5))
        g.output("y", x)
        g.output("z", ops.relu(g.param("t", "f32", 2, 3, 5)))
    weights = {
        "w": np.arange(15, dtype=np.float32).reshape(5, 3).T,
        "b": np.arange(10, dtype=np.float32)[::2],
        "t": np.arange(30, dtype=np.float32).reshape(5, 3, 2).transpose(2, 1, 0),
    }
    graph, path = g.build(), tmp_path / "a.onnx"
    assert write_model(to_onnx(graph), graph, weights, path, "a.data", limit) == (limit == 0)
    stored = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}
    for name, array in weights.items():
        found = onnx.numpy_helper.to_array(stored[name], str(tmp_path))
        np.testing.assert_array_equal(found, array)


def test_it_is_verified(tmp_path: Path) -> None:
    report = tfgraph.export_onnx(chain(2), tmp_path / "chain.onnx")
    found = report.verification
    assert found.ok
    assert (report.opset, report.operators) == (24, {"MatMul": 2, "Relu": 2})
    assert {"n": 1} in found.dims
    assert 0 < found.outputs[0].max_abs <= found.outputs[0].bound
    assert onnx.load(tmp_path / "chain.onnx").opset_import[0].version == 24


@pytest.fixture
def wrong_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of the table that writes another operator."""
    monkeypatch.setattr(registry, "_TABLE", {k: list(v) for k, v in registry._TABLE.items()})

    @exports("relu")
    def relu(to: Any, node: Any, x: str) -> Any:
        return to.node("Abs", x)


@pytest.mark.usefixtures("wrong_relu")
def test_what_fails_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "chain.onnx"
    with pytest.raises(ExportFailed, match=r"output 'y' differs from NumPy by .* bound") as raised:
        tfgraph.export_onnx(chain(1), path, external_bytes=0)
    assert raised.value.exit_code == 1
    assert raised.value.report.path is None
    assert list(path.parent.iterdir()) == []


def test_an_older_file_stays_where_a_newer_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "chain.onnx"
    tfgraph.export_onnx(chain(1), path, check=False)
    before = path.read_bytes()
    with pytest.raises(TfgraphError):
        tfgraph.export_onnx(_states(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["chain.onnx"]


def test_without_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    report = tfgraph.export_onnx(chain(1), tmp_path / "chain.onnx")
    assert report.verification.ok is None
    assert report.verification.reason == "not run: onnxruntime is not installed"
    assert report.path is not None
    assert report.path.exists()


def test_a_dtype_that_onnxruntime_does_not_take(tmp_path: Path) -> None:
    with tfgraph.graph("rare") as g:
        g.output("y", ops.relu(ops.cast(g.input("x", "f32", "n"), dtype=tfgraph.ir.dtype("bf16"))))
    report = tfgraph.export_onnx(g.build(), tmp_path / "rare.onnx")
    assert report.verification.ok is None
    assert "passes no bfloat16 ('y')" in (report.verification.reason or "")


def _states() -> Graph:
    with tfgraph.graph("step") as g:
        c = g.input("c", "f32", "batch", 16, 8, fill=Fill("state"))
        new = g.input("new", "f32", "batch", 1, 8)
        g.output("c", ops.cache_append(c, new, at=3))
    return g.build()


def _past() -> Graph:
    with tfgraph.graph("offsets") as g:
        x = g.input("x", "f32", "n")
        g.symbol("past")
        g.output("y", x + 1)
        g.output("i", ops.iota(length="past"))
        g.output("j", ops.full(shape=("past",), value=2))
        scores = ops.reshape(x, shape=(1, "n"))
        g.output("k", ops.mask(scores, tfgraph.causal("past")))
    return g.build()


def _small() -> Graph:
    with tfgraph.graph("small") as g:
        x = g.input("x", "i8", "n")
        g.output("y", ops.maximum(ops.add(x, 1), x))
        g.output("z", ops.cumsum(x, axis=0))
    return g.build()


def _same_name() -> Graph:
    with tfgraph.graph("names") as g:
        x = g.input("x", "f32", "n")
        g.output("x", x + 1)
    return g.build()


def _last_line(text: str) -> int:
    """The line here that ends a statement with that text."""
    from pathlib import Path

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def test_every_node_without_a_form_is_named(tmp_path: Path) -> None:
    """At its place, all of them at once, and what to do."""
    with pytest.raises(TfgraphError) as raised:
        tfgraph.export_onnx(_small(), tmp_path / "a.onnx", opset=13)
    errors = [raised.value, *raised.value.related]
    assert [e.message for e in errors] == [
        "%0 = add: ONNX's Add does not take i8 in opset 13",
        "%2 = cumsum: ONNX's CumSum does not take i8 in opset 13",
    ]
    assert [e.hint for e in errors] == ["opset 14 does", "cast it to another element type"]
    lines = [e.location.line for e in errors if e.location]
    assert lines == [_last_line("ops.maximum(ops.add"), _last_line("ops.cumsum(x")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_states, "step has states (%c), which a run replaces: ONNX has none"),
        (_past, "%1 = iota: no input's shape tells the size 'past'"),
        (_same_name, "output 'x' is called as an input, which ONNX does not allow"),
    ],
)
def test_what_onnx_has_not(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(TfgraphError) as raised:
        tfgraph.export_onnx(make(), tmp_path / "a.onnx")
    assert raised.value.message.startswith(message)
    if make is _past:
        found = [e.message.partition(":")[0] for e in raised.value.related]
        assert found == ["%2 = full", "%4 = mask"]
    assert raised.value.hint


@pytest.mark.parametrize("opset", [12, 29])
def test_opsets_that_are_not_written(tmp_path: Path, opset: int) -> None:
    with pytest.raises(TfgraphError, match=f"opset {opset} is not supported: expected 13 to 28"):
        tfgraph.export_onnx(chain(1), tmp_path / "a.onnx", opset=opset)


def test_places_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(TfgraphError, match="is a folder"):
        tfgraph.export_onnx(chain(1), tmp_path)
    with pytest.raises(TfgraphError, match=r"ends in \.onnx"):
        tfgraph.export_onnx(chain(1), tmp_path / "model.txt")


def test_an_op_from_outside_needs_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written as its body; one whose body takes arrays alone is named."""
    from tfgraph.ops import xp
    from tfgraph.ops.define import REGISTRY, op
    from tfgraph.ops.infer import like_first

    for name in ("outside", "opaque"):
        monkeypatch.setitem(REGISTRY, name, None)  # so that it is gone afterwards
        monkeypatch.delitem(REGISTRY, name)

    @op(infer=like_first)
    def outside(x: ops.Array, /) -> ops.Array:
        """x / (1 + |x|)."""
        return xp.div(x, xp.add(1, xp.unary("abs", x)))

    @op(infer=like_first)
    def opaque(x: ops.Array, /) -> ops.Array:
        """NumPy, which knows no values of a graph."""
        return type(x)(np.asarray(x.data))  # type: ignore[attr-defined, call-arg]

    for body, good in ((outside, True), (opaque, False)):
        with tfgraph.graph("one") as g:
            g.output("y", body(g.input("x", "f32", "n")))
        if good:
            report = tfgraph.export_onnx(g.build(), tmp_path / "a.onnx")
            assert report.operators == {"Abs": 1, "Add": 1, "Div": 1}
            assert report.verification.ok
        else:
            with pytest.raises(TfgraphError, match="opaque: ONNX has no form for it") as raised:
                tfgraph.export_onnx(g.build(), tmp_path / "b.onnx")
            assert "exports('opaque')" in (raised.value.hint or "")


def test_a_failing_runtime_is_a_failed_check(tmp_path: Path) -> None:
    from tfgraph.backends.onnxruntime import OnnxExecutable
    from tfgraph.errors import CheckFailed

    path = tmp_path / "a.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(CheckFailed, match="ONNX Runtime refuses the file"):
        OnnxExecutable(chain(1), path)
    assert not issubclass(CheckFailed, MissingTool)
