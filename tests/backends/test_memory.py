"""What cannot fit into memory is refused at its place, before anything is taken."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from helpers.small_graphs import CHAIN

import tfgraph
from tfgraph.api.verify import BYTE_BUDGET, plan
from tfgraph.backends.base import Target
from tfgraph.backends.memory import peak, reference_steps
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import TfgraphError
from tfgraph.ir import as_dim
from tfgraph.model import read_model
from tfgraph.runtime import memory
from tfgraph.runtime.examples import complete, example
from tfgraph.runtime.memory import available_memory, refuse_absurd, shown
from tfgraph.runtime.sizes import Port
from tfgraph.runtime.sizes import evaluate as evaluate_dim
from tfgraph.text import parse_graph
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfgraph.backends.base import Executable
    from tfgraph.ir import Graph


@pytest.fixture
def no_memory() -> Iterator[None]:
    """Fails a test that takes more than 30 MB in Python or NumPy."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30e6


def run(executable: Executable) -> None:
    """At the example sizes, as the command line does."""
    inputs, sizes = complete(executable.inputs, executable.symbols, [], {}, {}, 0)
    executable(dims=sizes, **inputs)


LARGE = {
    "square": "inputs: {x: 'f32[n,n]'}\nsymbols: {n: {max: 1000000, example: 1000000}}\n"
    "nodes:\n  y: relu(x)\n",
    "input": "inputs: {x: 'f32[6000000,60000]'}\nnodes:\n  y: relu(x)\n",
    "broadcast": "inputs: {x: 'f32[8]'}\nnodes:\n"
    "  b: broadcast_to(x) {shape=[1000000,1000000,8]}\n  y: relu(b)\n",
    "outer": "inputs: {x: 'f32[n,1]'}\nsymbols: {n: {max: 1000000, example: 1000000}}\nnodes:\n"
    "  t: transpose(x) {perm=[1,0]}\n  b: mul(x, t)\n  y: sum(b) {axis=-1}\n",
    "full": "inputs: {x: 'f32[8]'}\nnodes:\n"
    "  b: full() {value=2, shape=[1000000,1000000,8], dtype=f32}\n  y: add(x, b)\n",
}


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize(
    ("name", "message", "line"),
    [
        ("square", "input 'x' needs 14.6 TiB at n=1000000; ", None),
        ("input", "input 'x' needs 5.24 TiB; ", None),
        ("broadcast", "%b = broadcast_to needs 87.3 TiB; ", 3),
        ("outer", "%b = mul needs 10.9 TiB at n=1000000; ", 5),
        ("full", "%b = full needs 87.3 TiB; ", 3),
    ],
)
@pytest.mark.usefixtures("no_memory")
def test_absurd_sizes(
    tmp_path: Path, target: str, name: str, message: str, line: int | None
) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"{LARGE[name]}outputs: {{y: y}}\n")
    model = read_model(path)
    with pytest.raises(TfgraphError) as caught:
        run(tfgraph.compile(model.graph, target))
    error = caught.value
    assert "are free" in error.message
    if target == "numpy":
        assert error.message.startswith(message)
        assert (error.location.line if error.location else None) == line
    hint = "take smaller sizes: --dim n=SIZE, or a smaller example of n"
    assert error.hint == (hint if " n=" in message else "the model itself fixes this size")


def test_a_compiled_constant_is_refused_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_text(f"{LARGE['full']}outputs: {{y: y}}\n")
    with pytest.raises(TfgraphError, match=r"^.*full\.yaml:3:6: %b = full needs 58\.2 TiB"):
        tfgraph.build(read_model(path).graph, Target("cpu"), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["full.yaml"]


def test_an_artifact_refuses_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its inputs fit, what it computes from them does not."""
    graph = parse_graph(
        "graph g(%x: f32[n,1]) { symbol n: 1..100000, example 10\n"
        "%0 = transpose(%x) {perm=[1,0]}\n%1 = mul(%x, %0)\n%2 = sum(%1) {axis=1} return y=%2 }"
    )
    with tfgraph.load(
        tfgraph.build(graph, Target("cpu"), tmp_path / "g.tfgraph", check=False).artifact
    ) as model:
        x = np.ones((10_000, 1), np.float32)
        assert evaluate_dim(model.manifest["memory"], {"n": 10_000}) >= 400e6
        monkeypatch.setattr(memory, "available_memory", lambda: 300 << 20)
        with pytest.raises(TfgraphError, match=r"g needs 382 MiB at n=10000; 300 MiB are free"):
            model(x=x)
        assert model(x=x[:10])["y"].shape == (10,)


def test_seeded_parameters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph("graph g(%x: f32[1,64]) { %0 = linear(%x, %w) return y=%0 }\n"
                        "weights { %w: f32[64,1000000] = normal(1) }")  # fmt: skip
    monkeypatch.setattr(memory, "available_memory", lambda: 200 << 20)
    with pytest.raises(TfgraphError, match=r"parameter 'w' needs 244 MiB; 200 MiB are free"):
        Seeded(graph.params)["w"]


def test_what_is_live_by_hand() -> None:
    """a is an output and stays; b dies with c, c with d, d with e."""
    n = as_dim("n")
    live = [16 * n, 32 * n, (16 + 16 + 400) * n, (16 + 800) * n, (16 + 400 + 4) * n]
    wide = [64, 64, 32 + 800, 1600, 808]  # operands and results once more, in float64
    expected = [a + b * n for a, b in zip(live, wide, strict=True)]
    weights = [0, 0, 8 * 400, 8 * 100, 0]
    found = [step.taken for step in reference_steps(parse_graph(CHAIN))]
    assert found == [e + w for e, w in zip(expected, weights, strict=True)]


def test_no_peak_is_hidden_by_another() -> None:
    """Which is larger depends on the sizes."""
    graph = parse_graph(
        "graph g(%x: f32[n,1], %y: f32[m,1]) { %0 = transpose(%x) {perm=[1,0]}\n"
        "%1 = mul(%x, %0)\n%2 = sum(%1) {axis=1}\n%3 = transpose(%y) {perm=[1,0]}\n"
        "%4 = mul(%y, %3)\n%5 = sum(%4) {axis=1} return %2, %5 }"
    )
    steps = reference_steps(graph)
    found = peak(steps)
    for sizes in ({"n": 1, "m": 90}, {"n": 90, "m": 1}, {"n": 50, "m": 51}):
        assert found.evaluate(sizes) == max(step.taken.evaluate(sizes) for step in steps)
        assert evaluate_dim(str(found), sizes) == found.evaluate(sizes)


def attention() -> Graph:
    text = "graph g(%x: f32[1,seq,64]) { symbol seq: 1..60000, example 16\n"
    text += "%0 = attention(%x, %x, %x) {heads=4, kv_heads=4, scale=0.25} return y=%0 }"
    return parse_graph(text)


def test_composite_ops_count_as_what_they_do() -> None:
    """The scores of the attention, 4 seq^2, are no value of the graph."""
    taken = peak(reference_steps(attention())).evaluate({"seq": 60_000})
    assert taken > 4 * 60_000**2 * 4


def test_the_estimate_of_the_reference_is_near_what_it_takes() -> None:
    reference = NumpyExecutable(attention(), {})
    x = np.zeros((1, 800, 64), np.float32)
    reference(x=x)
    tracemalloc.start()
    reference(x=x)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    estimate = peak(reference_steps(attention())).evaluate({"seq": 800})
    assert 0.4 < most / estimate < 2.5


def test_verification_stays_within_its_bytes() -> None:
    """Elementwise work on [n, n] is cheap, so memory limits it; at its minimum any graph runs."""
    square = "graph g(%x: f32[n,n]) { symbol n: LOW..1000000, example 1000000\n"
    square += "%0 = relu(%x) return y=%0 }"
    points = plan(parse_graph(square.replace("LOW", "1")))
    assert max(p["n"] for p in points) > 1000
    assert all(p["n"] ** 2 * (8 + 4 + 16) <= BYTE_BUDGET + 28 for p in points)
    assert plan(parse_graph(square.replace("LOW", "50000")))[0] == {"n": 50_000}


# What is free


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MIB = 1 << 20
MEMINFO = "MemTotal:       2048000 kB\nMemFree:  5 kB\nMemAvailable:   1024000 kB\n"


def test_the_free_memory_of_the_machine(tmp_path: Path) -> None:
    assert available_memory(tree(tmp_path, proc__meminfo=MEMINFO)) == 1024000 * 1024
    assert 0 < available_memory(tmp_path / "nothing") < 1 << 50
    assert 0 < available_memory() < 1 << 50


def test_the_limit_of_a_control_group(tmp_path: Path) -> None:
    """Version 2: the tightest of the group and those around it; what is cached can be freed."""
    root = tree(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="0::/outer/inner\n",
        **{
            "sys__fs__cgroup__outer__inner__memory.max": "max\n",
            "sys__fs__cgroup__outer__inner__memory.current": "5\n",
            "sys__fs__cgroup__outer__memory.max": f"{100 * MIB}\n",
            "sys__fs__cgroup__outer__memory.current": f"{60 * MIB}\n",
            "sys__fs__cgroup__outer__memory.stat": f"anon 1\ninactive_file {20 * MIB}\n",
        },
    )
    assert available_memory(root) == 60 * MIB


def test_the_limit_of_an_older_control_group(tmp_path: Path) -> None:
    base = "sys__fs__cgroup__memory"
    root = tree(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="3:cpu:/\n4:memory:/elsewhere\n0::/\n",
        **{
            f"{base}__memory.limit_in_bytes": f"{100 * MIB}\n",
            f"{base}__memory.usage_in_bytes": f"{130 * MIB}\n",
            f"{base}__memory.stat": f"total_inactive_file {40 * MIB}\n",
        },
    )
    assert available_memory(root) == 10 * MIB
    (root / base.replace("__", "/") / "memory.stat").unlink()
    assert available_memory(root) == 0


def test_what_is_small_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 0)
    refuse_absurd(memory.ALWAYS_FITS, "it", {})
    with pytest.raises(TfgraphError, match="it needs 64 MiB; 0 B are free"):
        refuse_absurd(memory.ALWAYS_FITS + 1, "it", {})


def test_inputs_are_refused_with_the_sizes_that_they_have() -> None:
    port = Port("x", "float32", ("2*seq", "batch", 8))
    with pytest.raises(TfgraphError) as caught:
        example(port, {"batch": 10**6, "past": 3, "seq": 10**6})
    assert "input 'x' needs 233 TiB at batch=1000000, seq=1000000" in caught.value.message


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536 << 20, "1.5 GiB"),
        (10**400, "more than 1000 EiB"),
    ],
)
def test_sizes_as_they_are_shown(size: int, text: str) -> None:
    assert shown(size) == text
