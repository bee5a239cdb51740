"""`tfgraph bench`: which kernels ran, the work that the graph says they do, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.api import build
from tfgraph.bench.profile import profile
from tfgraph.cost import cost
from tfgraph.text import parse_graph
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from collections.abc import Callable

DEEP = """\
graph deep(%ids: i64[n] = ids(50), %cache: f32[1,9,8] = state()) {
  symbol n: 1..9, example 3
  %e = embedding(%ids, %table) : f32[n,8]
  %a = linear(%e, %v, %b) : f32[n,8]
  %c = linear(%a, %v, %b) : f32[n,8]
  %y = linear(%c, %w) : f32[n,4]
  %z = softmax(%y) : f32[n,4]
  %r = reshape(%c) {shape=[1, n, 8]} : f32[1,n,8]
  %s = cache_append(%cache, %r) {at=9 - n} : f32[1,9,8]
  return z=%z, cache=%s
}
weights {
  %b : f32[8] = normal(1)
  %table : f32[50,8] = normal(1)
  %v : f32[8,8] = normal(1)
  %w : f32[8,4] = normal(1)
}
"""
N = 5


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "deep"
    graph = parse_graph(DEEP)
    build(graph, "cpu", folder, weights=Seeded(graph.params), check=False, prove=False)
    return folder


def test_kernels_and_their_work(tfgraph: Callable[..., Any], artifact: Path) -> None:
    found = tfgraph("bench", artifact, "--dim", f"n={N}", "--runs", "3", "--json").json
    assert (found["dims"], found["runs"], found["function"]) == ({"n": N}, 3, "main")
    kernels = {tuple(k["values"]): k for k in found["kernels"]}
    # A multiply-add is two; bytes are those of the operands and the result, four each.
    assert kernels["a", "c"]["calls"] == 2
    assert kernels["a", "c"]["flops"] == 2 * (2 * N * 8 * 8)  # of the products
    assert kernels["a", "c"]["bytes"] == 2 * 4 * (N * 8 + 8 * 8 + 8 + N * 8)
    assert kernels["y",]["flops"] == 2 * N * 8 * 4
    assert kernels["e",]["bytes"] == 8 * N + 4 * (N * 8 + N * 8)  # of the table the rows read
    assert kernels["s",]["bytes"] == 2 * 4 * N * 8  # of the cache what is appended
    whole = cost(parse_graph((artifact / "graph.tfg").read_text(), "graph.tfg"), {"n": N})
    assert sum(k["flops"] for k in found["kernels"]) == whole.total.flops
    assert sum(k["share"] for k in found["kernels"]) == pytest.approx(1)
    limits = found["limits"]
    for k in found["kernels"]:
        assert k["gflops"] == pytest.approx(k["flops"] / k["ms"] / 1e6)
        least = k["flops"] / limits["gflops"], k["bytes"] / limits["gigabytes_per_second"]
        if max(least):
            assert k["of_limit"] == pytest.approx(max(least) / k["ms"] / 1e6)
            assert k["bound"] == ("flops" if least[0] > least[1] else "bytes")
    assert found["limits"].keys() == {"gflops", "gigabytes_per_second"}
    assert min(found["limits"].values()) > 0


def test_what_it_prints(tfgraph: Callable[..., Any], artifact: Path) -> None:
    lines = tfgraph("bench", artifact, "--runs", "1", "--threads", "1").out.splitlines()
    assert lines[0] == "deep at n=3"
    assert [line.split()[0] for line in lines[1:4]] == ["run", "kernels", "limit"]
    assert lines[5].split() == ["kernel", "calls", "ms", "share", "GFLOP/s", "GB/s", "of", "limit"]
    assert any(line.split()[0].startswith("linear") for line in lines[6:])


def test_what_cannot_be_timed(tfgraph: Callable[..., Any], artifact: Path) -> None:
    result = tfgraph("bench", artifact, "--function", "step")
    assert result.code == 2
    assert "has no function 'step'" in result.err
    assert "it has main" in result.err


def test_an_artifact_of_an_earlier_version(artifact: Path) -> None:
    """Its manifest does not say what kernels do, or says it of others than those that run."""
    import tfgraph as tfg

    with tfg.load(artifact, threads=1) as model:
        launches = model.manifest["launches"]
        model.manifest = {**model.manifest, "launches": launches[:1] + launches[2:]}
        with pytest.raises(tfg.TfgraphError, match="runs other kernels than its manifest says"):
            profile(model, runs=1)
        model.manifest = {k: v for k, v in model.manifest.items() if k != "launches"}
        with pytest.raises(tfg.TfgraphError, match="an earlier version compiled it"):
            profile(model, runs=1)
    assert json.loads((artifact / "manifest.json").read_text())["launches"] == launches
