"""What the cache gives is what would be made: for these bytes, and no others."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.artifacts import contents
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import cache as caching
from tfgraph.api import VerificationFailed
from tfgraph.api.remembered import remembered
from tfgraph.api.verify import Verification
from tfgraph.api.verifying import Verifying
from tfgraph.backends import Target
from tfgraph.backends.tvm import build
from tfgraph.backends.tvm.cpu.backend import CpuBackend
from tfgraph.cache import Cache, default_cache, default_folder, refusal, using
from tfgraph.ir import Graph
from tfgraph.passes import proof
from tfgraph.text import parse_graph
from tfgraph.weights import Seeded

LAYER = """
  %a{i} = attention(%x{i}, %x{i}, %x{i}, causal()) {{heads=2, kv_heads=2, scale=1/2}}
  %s{i} = add(%x{i}, %a{i})
  %x{j} = layer_norm(%s{i}, %scale, %bias)
"""


def model(layers: int, std: str = "1") -> Graph:
    lines = "".join(LAYER.format(i=i, j=i + 1) for i in range(layers))
    return parse_graph(
        "graph stack(%x0: f32[b,n,8]) {\n  symbol b: 1..2, example 1\n  symbol n: 1..9, example 3\n"
        f"{lines}  return %x{layers}\n}}\nweights {{\n  %scale : f32[8] = normal({std})\n"
        f"  %bias : f32[8] = normal({std})\n}}\n"
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A folder with a filled cache, and the artifact that filled it, with its hash."""
    folder = tmp_path_factory.mktemp("cache")
    artifact = folder / "first.tfgraph"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_kept", {})  # which would not go to the cache
        report = tfgraph.build(model(1), "cpu", artifact, cache=Cache(folder / "cache"))
    assert not report.verification.remembered
    return folder / "cache", artifact, report.sha256


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own, which remembers no kernel."""
    monkeypatch.setattr(build, "_kept", {})


def found(folder: Path, graph: Graph, output: Path, **options: object) -> tuple[Cache, str, bool]:
    cache = Cache(folder)
    report = tfgraph.build(graph, "cpu", output, cache=cache, **options)  # type: ignore[arg-type]
    assert report.verification.ok
    return cache, report.sha256, report.verification.remembered


def kernels(artifact: Path) -> int:
    """The object files but the last, which holds what the virtual machine runs."""
    return len(list((artifact / "kernels").glob("*.o"))) - 1


def test_the_same_model_gives_the_same_bytes_and_runs_nothing_again(
    compiled: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, artifact, sha256 = compiled
    monkeypatch.delattr(Verifying, "_run")
    cache, again, remembered = found(folder, model(1), tmp_path / "again.tfgraph")
    assert again == sha256
    assert remembered
    assert cache.found["kernels"] == kernels(artifact)
    assert cache.found["verifications"] == 1
    for name in json.loads((artifact / "manifest.json").read_text())["files"]:
        assert (tmp_path / "again.tfgraph" / name).read_bytes() == (artifact / name).read_bytes()


def test_other_weights_or_layers_take_the_kernels_and_are_verified(
    compiled: tuple[Path, Path, str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    given = {name: rng.normal(size=8).astype(np.float32) for name in ("scale", "bias")}
    for i, (graph, options) in enumerate(((model(1), {"weights": given}), (model(2), {}))):
        cache, sha256, remembered = found(compiled[0], graph, tmp_path / f"{i}", **options)
        assert sha256 != compiled[2]
        assert not remembered
        assert cache.found["kernels"] == kernels(compiled[1])
    x = np.ones((1, 3, 8), np.float32)
    expected = tfgraph.compile(model(2), "numpy")(x0=x)["x2"]
    assert_close(tfgraph.load(tmp_path / "1")(x0=x)["x2"], expected, length=8)


def test_a_kernel_that_another_model_has_too_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, with no cache on disk; and its bytes are those that it has alone."""
    text = "graph g(%x: f32[n,8]) {{\n  symbol n: 1..9, example 3\n  %y = softmax(%x)\n{}\n}}\n"
    first = parse_graph(text.format("  return %y"))
    second = parse_graph(text.format("  %z = tanh(%y)\n  %w = sqrt(%z)\n  return %w"))
    compile_one, made = build.Program._compiled, list[str]()

    def compiled(self: build.Program, name: str, function: object) -> bytes:
        made.append(name)
        return compile_one(self, name, function)

    monkeypatch.setattr(build.Program, "_compiled", compiled)
    for i, graph in enumerate((first, second, first)):
        tfgraph.build(graph, "cpu", tmp_path / f"{i}", check=False, prove=False)
    assert made.count("softmax") == made.count("sqrt") == 1
    build._kept.clear()
    made.clear()
    tfgraph.build(second, "cpu", tmp_path / "alone", check=False, prove=False)
    assert "softmax" in made
    assert contents(tmp_path / "alone") == contents(tmp_path / "1")
    assert contents(tmp_path / "0") == contents(tmp_path / "2")


def test_a_kernel_is_that_of_its_machine() -> None:
    graph = parse_graph("graph g(%x: f32[8]) {\n  %y = tanh(%x)\n  return %y\n}\n")

    def objects(mcpu: str) -> dict[str, bytes]:
        made = CpuBackend().build(graph, {}, Target("cpu", mcpu=mcpu)).make_files()
        return {name: data for name, data in made.items() if name.endswith(".o")}

    found = [objects(mcpu) for mcpu in ("x86-64-v3", "x86-64-v4")]
    build._kept.clear()
    assert found[1] == objects("x86-64-v4") != found[0]


def test_no_more_kernels_are_kept_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_MOST_KEPT", 2)
    for op in ("tanh", "sqrt", "exp", "log"):
        text = f"graph g(%x: f32[8]) {{\n  %y = {op}(%x)\n  return %y\n}}\n"
        CpuBackend().build(parse_graph(text), {}, Target("cpu")).make_files()
        assert 1 <= len(build._kept) <= 2


def test_a_failure_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = Verifying._run  # pyright: ignore[reportPrivateUsage]

    def wrong(verifying: Verifying, folder: Path) -> Verification:
        outcome = verified(verifying, folder)
        bad = [replace(d, ok=False) for d in outcome.outputs]
        return replace(outcome, ok=False, outputs=tuple(bad))

    monkeypatch.setattr(Verifying, "_run", wrong)
    for _ in range(2):
        with pytest.raises(VerificationFailed):
            tfgraph.build(model(1), "cpu", tmp_path / "x", cache=Cache(tmp_path / "cache"))
    assert not (tmp_path / "cache" / "verifications").exists()


SUM = "graph g(%x: f32[4], %y: f32[4]) {{\n{}  return %z\n}}\n"


def test_a_proof_is_of_these_two_graphs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = parse_graph(SUM.format("  %s = add(%x, %y)\n  %z = mul(%s, %s)\n"))
    parts = "  %s = add(%x, %y)\n  %a = mul(%s, %x)\n  %b = mul(%s, %y)\n"
    turned = parse_graph(SUM.format(parts + "  %z = add(%a, %b)\n"))
    wrong = parse_graph(SUM.format(parts + "  %z = add(%a, %a)\n"))
    with using(Cache(tmp_path)):
        found = proof.prove_graphs("this", before, turned)
        assert found.kind == proof.FIELD_TESTED
        for _ in range(2):
            for first, second in ((before, wrong), (wrong, turned)):
                with pytest.raises(proof.Refuted):
                    proof.prove_graphs("this", first, second)
        monkeypatch.delattr(proof, "_drawn")
        assert proof.prove_graphs("this", before, turned) == found


def test_a_verification_is_against_these_weights_on_this_device_alone(tmp_path: Path) -> None:
    """Whatever the artifact holds: it was packed by code that may be wrong."""
    graph = model(1)
    ones = {name: np.ones(8, np.float32) for name in ("scale", "bias")}
    weights = [
        Seeded(graph.params),
        Seeded(graph.params, 1),
        ones,
        {**ones, "bias": np.zeros(8, np.float32)},
        {"scale": ones["scale"], "shift": ones["bias"]},
        {**ones, "bias": np.ones((2, 4), np.float32)},
        {**ones, "bias": ones["bias"].view(np.int32)},
    ]
    (tmp_path / "manifest.json").write_text("{}")
    with using(Cache(tmp_path / "cache")):
        for again in (False, True):
            for given in weights:
                found = remembered(tmp_path, given, lambda: Verification("numpy", True, None))
                assert (found.ok, found.remembered) == (True, again)
        for again in (False, True):
            for device in ("A GPU, sm_80, CUDA (13, 0)", "A GPU, sm_80, CUDA (13, 1)"):
                verified = Verification("numpy", True, None)
                found = remembered(tmp_path, ones, lambda made=verified: made, device)
                assert found.remembered == again
        (tmp_path / "manifest.json").write_text("{} ")
        assert not remembered(tmp_path, ones, lambda: Verification("numpy", True, None)).remembered


@pytest.mark.parametrize(
    "module", ["tfgraph.cache", "tfgraph.passes.fuse_attention", "tfgraph.backends.tvm.cpu.gemm"]
)
def test_another_source_makes_another_hash(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any part of tfgraph: what a pass or a backend did before it was changed is not found."""
    before, spec = caching.fingerprint(), importlib.util.find_spec(module)
    assert spec is not None
    changed, read = Path(str(spec.origin)).resolve(), Path.read_bytes

    def edited(path: Path) -> bytes:
        return read(path) + (b"#" if path.resolve() == changed else b"")

    monkeypatch.setattr(Path, "read_bytes", edited)
    caching.fingerprint.cache_clear()
    try:
        assert caching.fingerprint() != before
    finally:
        caching.fingerprint.cache_clear()


def test_a_damaged_entry_is_dropped_and_made_anew(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("kind", b"data", "key")
    assert cache.get("kind", "key") == b"data"
    assert cache.get("kind", "k", "ey") is None
    (path,) = (tmp_path / "kind").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get("kind", "key") is None
    assert not path.exists()


def test_the_oldest_go_when_it_is_full(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=300)
    for i in range(3):
        cache.put("kind", bytes(100), str(i))  # 132 bytes each
        os.utime(cache._path("kind", [str(i)]), (i, i))
        if i == 1:
            assert cache.get("kind", "0") is not None  # used, and so younger than the other
    assert [cache.get("kind", str(i)) is not None for i in range(3)] == [True, False, True]
    assert cache.size() == (2, 264)


def test_processes_that_write_the_same_entry_leave_it_whole(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tfgraph.cache import Cache\n"
        "for i in range(50): Cache(Path(sys.argv[1])).put('kind', bytes([i % 2]) * 100000, 'key')\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen(command) for _ in range(2)]
    cache, seen = Cache(tmp_path), 0
    while any(w.poll() is None for w in writers):
        seen += cache.get("kind", "key") is not None
    assert [w.wait() for w in writers] == [0, 0]
    assert seen
    assert [p.suffix for p in (tmp_path / "kind").iterdir()] == [""]


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(caching.VARIABLE, str(tmp_path / "c"))
    cache = default_cache()
    assert cache is not None
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    cache.put("kernels", b"", "key")
    assert refusal(cache.folder) is None
    for place in (cache.folder / "kernels", cache.folder):
        place.chmod(0o777)
        assert refusal(cache.folder) == f"others may write to {cache.folder}"
        assert default_cache() is None
        place.chmod(0o700)


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caching.VARIABLE, "")
    assert default_folder() is None
    monkeypatch.delenv(caching.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_folder() == Path("/x/tfgraph")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/h")
    assert default_folder() == Path("/h/.cache/tfgraph")
