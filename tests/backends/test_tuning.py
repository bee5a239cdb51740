"""Schedules of GEMMs and of attention: they change no bit, the search goes by times alone, and
files of them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.kernels import compile_kernels

import tfgraph
from tfgraph.api.tune import tune
from tfgraph.backends.base import Target
from tfgraph.backends.tvm.attention_mask import Causal
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cpu.attention import attention
from tfgraph.backends.tvm.cpu.database import (
    SHIPPED,
    HeadShape,
    Measured,
    WeightShape,
    known_schedules,
    read_schedules,
    write_schedules,
)
from tfgraph.backends.tvm.cpu.gemm import gemm, pack_weight
from tfgraph.backends.tvm.cpu.gemm_tile import tiles_of
from tfgraph.backends.tvm.cpu.schedule import AttentionSchedule, Schedule
from tfgraph.backends.tvm.cpu.search import (
    AHEAD,
    Times,
    attention_steps,
    gain,
    gemm_steps,
    grains,
    is_faster,
    search,
)
from tfgraph.backends.tvm.cpu.works import AttentionWork, works
from tfgraph.backends.tvm.kernels import AttentionShape, LinearShape
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.text import parse_graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = cpu_machine()
AVX2 = cpu_machine("x86-64-v3")
TILES = tiles_of(HERE)
OTHER = Schedule(TILES[-1], rows=24, ahead=0)
DEFAULT = Schedule(TILES[0])

MODEL = """\
graph two(%x: f32[n,8] = normal(1)) {
  symbol n: 1..40, example 20
  %y = linear(%x, %w, %b) : f32[n,70]
  %z = linear_activation(%y, %v) {activation="relu"} : f32[n,8]
  %g = gated_linear(%z, %u, %x) : f32[n,8]
  %s = linear(%g, %t, %b) : f32[n,70]
  return s=%s
}
weights {
  %w : f32[8,70] = normal(1)
  %b : f32[70] = normal(1)
  %v : f32[70,8] = normal(1)
  %u : f32[8,8] = normal(1)
  %t : f32[8,70] = normal(1)
}
"""


@pytest.mark.parametrize(
    "machine", [HERE, pytest.param(AVX2, marks=pytest.mark.long)], ids=["here", "avx2"]
)
def test_no_schedule_changes_a_bit(machine: Any) -> None:
    """All tiles and rows a task that a search tries, distances, and what only a file can ask for;
    with blocks of k, tails of rows and columns, and an epilogue."""
    tiles = tiles_of(machine)
    tried = [*grains(machine), *(Schedule(tiles[0], ahead=ahead) for ahead in AHEAD)]
    schedules = dict.fromkeys([*tried, Schedule(tiles[1], 1, 1), Schedule(tiles[1], 7, 3)])
    k, n = 131, 70
    names = {s: f"s{i}" for i, s in enumerate(schedules)}
    shape = LinearShape(k, n, bias=True, activation="relu")
    kernels = {name: gemm(shape, schedule) for schedule, name in names.items()}
    program = compile_kernels(kernels, threads=2)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((97, k), (k, n)))
    bias = rng.standard_normal(n, dtype=np.float32)
    for m in (*range(1, 17), 97):
        found = {
            schedule: program.call(name, [x[:m], pack_weight(w, schedule.tile), bias])[0]
            for schedule, name in names.items()
        }
        for schedule, out in found.items():
            assert np.array_equal(out, found[tried[0]]), (m, schedule)


@pytest.mark.parametrize(
    "machine", [HERE, pytest.param(AVX2, marks=pytest.mark.long)], ids=["here", "avx2"]
)
@pytest.mark.parametrize("causal", [False, True], ids=["plain", "causal"])
def test_no_schedule_changes_a_bit_of_attention(machine: Any, causal: bool) -> None:
    """All that a search tries, with tails of queries, keys, columns, and NaN in hidden values."""
    vectors, shared = attention_steps(machine)
    tried = [s for v in vectors(AttentionSchedule()) for s in shared(v)]
    shape = AttentionShape(2, 1, 20, 24, 40, 20, 30, v_offset=3)
    plan = MaskPlan((Causal(),)) if causal else MaskPlan()
    names = {f"s{i}": s for i, s in enumerate(tried)}
    program = compile_kernels(
        {
            name: attention(name, shape, plan, machine, scale=0.3, schedule=schedule)
            for name, schedule in names.items()
        },
        threads=2,
    )
    rng = np.random.default_rng(0)
    for s in (2, 16, 33, 150, 700):
        q, k, v = (rng.standard_normal((3, s, n), dtype=np.float32) for n in (40, 20, 30))
        if causal:
            v[:, -1] = np.nan
        first, *others = (program.call(name, [q, k, v])[0] for name in names)
        assert np.isfinite(first[:, : s - causal]).all()
        for schedule, out in zip(tried[1:], others, strict=True):
            assert np.array_equal(out, first, equal_nan=True), (s, schedule)


def measured(seconds: Mapping[Schedule, float], asked: list[list[Schedule]]) -> Any:
    """What measures: 9 times around those of a table, for 1 row and for 16."""

    def measure(schedules: Sequence[Schedule]) -> dict[Schedule, Times]:
        asked.append(list(schedules))
        draw = random.Random(0)

        def times(schedule: Schedule, rows: int) -> list[float]:
            return [seconds.get(schedule, 1) * rows * draw.uniform(0.99, 1.01) for _ in range(9)]

        return {s: {rows: times(s, rows) for rows in (1, 16)} for s in schedules}

    return measure


@pytest.mark.parametrize("machine", [HERE, AVX2], ids=["here", "avx2"])
def test_a_search_finds_the_fastest_tile_then_the_distance(machine: Any) -> None:
    tile = grains(machine)[-1]
    best = replace(tile, ahead=128)
    default = Schedule(tiles_of(machine)[0])
    asked: list[list[Schedule]] = []
    found = search(default, gemm_steps(machine), measured({tile: 0.8, best: 0.7}, asked))
    assert found.schedule == best
    assert found.speedup == pytest.approx(1 / 0.7, rel=0.02)
    assert found.tried == len({s for schedules in asked for s in schedules})
    assert all(default in schedules for schedules in asked)
    assert asked[-1] == [default, best]


def test_a_search_keeps_the_default_where_nothing_is_faster() -> None:
    found = search(DEFAULT, gemm_steps(HERE), measured({DEFAULT: 0.999}, []))
    assert (found.schedule, found.speedup) == (DEFAULT, 1.0)


def test_a_search_asks_the_luckiest_once_more() -> None:
    """What was fast among many, and alone is no faster, was lucky."""
    lucky = grains(HERE)[-1]
    table = {lucky: 0.8}

    def measure(schedules: Sequence[Schedule]) -> Any:
        return measured(table if len(schedules) > 2 else {}, [])(schedules)

    assert search(DEFAULT, gemm_steps(HERE), measure).schedule == DEFAULT


def test_faster_is_beyond_the_noise() -> None:
    def times(one: float, many: float, noise: float = 0.01) -> Times:
        around = [1 + noise * i for i in (-2, -1, 0, 1, 2)]
        return {1: [one * f for f in around], 128: [many * f for f in around]}

    default = times(1, 10)
    assert is_faster(times(0.9, 9), default)
    assert is_faster(times(1, 9), default)
    assert not is_faster(times(1, 9, noise=0.2), default)  # quartiles overlap
    assert not is_faster(times(1.1, 7), default)  # slower for one row
    assert not is_faster(times(0.999, 9.999, noise=1e-5), default)  # gains next to nothing
    assert not is_faster(default, default)
    assert gain(times(0.5, 5), default) == pytest.approx(2)
    assert gain(times(0.5, 10), default) == pytest.approx(2**0.5)


def test_a_database_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "schedules.json"
    assert read_schedules(path, HERE) == {}
    heads = Measured(AttentionSchedule(3, 4, copied=True), 2)
    first = {
        WeightShape(8, 70): Measured(OTHER, 2),
        WeightShape(768, 3072): Measured(DEFAULT, 2),
        HeadShape(8, 70): heads,
    }
    write_schedules(path, HERE, first)
    narrow = Measured(Schedule(tiles_of(AVX2)[1]), 4)
    write_schedules(path, AVX2, {WeightShape(8, 70): narrow})
    write_schedules(path, HERE, {WeightShape(8, 70): Measured(DEFAULT, 1)})
    assert read_schedules(path, HERE) == {**first, (8, 70): Measured(DEFAULT, 1)}
    assert read_schedules(path, AVX2) == {WeightShape(8, 70): narrow}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_what_ships_is_a_database_and_the_users_comes_first(tmp_path: Path) -> None:
    cpus = json.loads(SHIPPED.read_text())
    assert cpus
    for mcpu in cpus:
        machine = cpu_machine(mcpu)
        shipped = known_schedules(machine)
        assert len(shipped) == len(cpus[mcpu])
        shape, own = WeightShape(768, 768), tmp_path / f"{mcpu}.json"
        other = Schedule(tiles_of(machine)[0], 24, 0)
        write_schedules(own, machine, {shape: Measured(other, 2)})
        assert known_schedules(machine, own) == {**shipped, shape: other}
    assert known_schedules(AVX2, tmp_path / "none.json") == {}


GOOD = {"columns": 48, "rows": 16, "ahead": 32, "threads": 2}
HEADS = {"vectors": 2, "together": 8, "copied": 1, "threads": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("[" * 100_000, "recursion"),
        ("[]", "expected an object"),
        (json.dumps({"x86-64-v4": {"8 x 8": GOOD | {"columns": 5}}}), "8 x 48 and 6 x 64"),
        ('{"znver4": 3}', "expected an object, got 3"),
        (json.dumps({"znver4": {"8 by 8": GOOD}}), "'768 x 3072'.*, got '8 by 8'"),
        (json.dumps({"znver4": {"8 x 8": 3}}), "expected an object, got 3"),
        (json.dumps({"znver4": {"8 x 8": {"rows": 3}}}), "expected columns, rows, ahead, threads"),
        (json.dumps({"znver4": {"8 x 8": GOOD | {"columns": 0}}}), "columns: expected 1 to"),
        (json.dumps({"znver4": {"8 x 8": GOOD | {"rows": 0}}}), "rows: expected 1 to"),
        (json.dumps({"znver4": {"8 x 8": GOOD | {"ahead": 1.5}}}), "ahead: expected 0 to"),
        (json.dumps({"other": {"8 x 8": GOOD | {"threads": True}}}), "threads: expected 1 to"),
        (json.dumps({"znver4": {"attention 8 x 8": GOOD}}), "expected vectors, together, copied"),
        (json.dumps({"znver4": {"attention 8 x 8": HEADS | {"vectors": 4}}}), "vectors: expected"),
        (json.dumps({"znver4": {"attention 8 x 8": HEADS | {"copied": True}}}), "copied: expected"),
        (json.dumps({"znver4": {"attention  8 x 8": HEADS}}), "'attention 64 x 64', got"),
    ],
)
def test_a_file_that_is_no_database_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "schedules.json"
    path.write_text(text)
    with pytest.raises(TfgraphError, match=f"no database of schedules: .*{message}"):
        read_schedules(path, cpu_machine("x86-64-v4"))
    assert path.read_text() == text


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(TfgraphError, match="cannot be read"):
        read_schedules(tmp_path, HERE)
    (tmp_path / "file").write_text("")
    with pytest.raises(TfgraphError, match=r"cannot be (read|written)"):
        write_schedules(tmp_path / "file" / "schedules.json", HERE, {})


def test_the_gemms_of_a_model() -> None:
    """One for each shape of a weight, the longest first, at the example and at given rows."""
    graph = parse_graph(MODEL)
    first, second, third = works([graph, graph])
    assert first.shape == LinearShape(8, 70, bias=True)
    assert second.shape == LinearShape(70, 8, activation="relu")
    assert third.shape == LinearShape(8, 8, gate=True)
    assert [work.weights for work in (first, second, third)] == [2, 1, 1]  # functions share them
    assert {work.rows for work in (first, second, third)} == {(1, 16, 20, 128)}
    assert [w.flops for w in (first, second, third)] == [
        2 * 2 * 2 * 20 * 560,
        2 * 2 * 20 * 560,
        5120,
    ]
    assert [str(w) for w in (first, second, third)] == ["8 x 70", "70 x 8 relu", "8 x 8 gate"]


ATTENTION = """\
graph heads(%x: f32[b,n,48] = normal(1), %y: f32[b,m,16] = normal(1)) {
  symbol b: 1..8, example 2
  symbol n: 1..40, example 20
  symbol m: 1..4096, example 64
  %q = slice(%x) {axis=2, start=0, stop=16} : f32[b,n,16]
  %k = slice(%x) {axis=2, start=16, stop=32} : f32[b,n,16]
  %v = slice(%x) {axis=2, start=32, stop=48} : f32[b,n,16]
  %a = attention(%q, %k, %v, causal()) {heads=2, kv_heads=2, scale=1}
  %c = attention(%a, %y, %y) {heads=2, kv_heads=2, scale=1}
  %d = attention(%c, %y, %y) {heads=4, kv_heads=4, scale=1}
  return d=%d
}
"""


def test_the_attention_of_a_model() -> None:
    """One for each width of heads, at the example and at the longest sizes up to a limit; windows
    as they are read, and a causal mask."""
    wide, narrow = works([parse_graph(ATTENTION)])
    assert isinstance(wide, AttentionWork)
    assert isinstance(narrow, AttentionWork)
    assert wide.shape == AttentionShape(2, 2, 8, 8, 48, 48, 48, 0, 16, 32)
    assert (wide.causal, wide.keys) == (True, {20: 20, 40: 40})
    assert wide.flops == 2 * 2 * (20 * 20 + 20 * 64) * 2 * 16
    assert (narrow.causal, narrow.keys) == (False, {20: 64, 40: 1024})
    assert [str(wide), str(narrow)] == ["attention 8 x 8 causal", "attention 4 x 4"]
    assert wide.weight_bytes == narrow.weight_bytes == 0


def test_attention_by_another_schedule(tmp_path: Path) -> None:
    other = AttentionSchedule(1, 4, copied=True)
    own, graph = tmp_path / "own.json", parse_graph(ATTENTION)
    write_schedules(own, HERE, {HeadShape(8, 8): Measured(other, 2)})
    tfgraph.build(graph, Target("cpu", schedules=own), tmp_path / "tuned", prove=False)
    manifest = json.loads((tmp_path / "tuned" / "manifest.json").read_text())
    assert set(manifest["schedules"].values()) == {str(other), str(AttentionSchedule())}


def test_an_artifact_by_another_schedule(tmp_path: Path) -> None:
    """It computes the same bits, says by which schedules, and is the same for the same file."""
    own = tmp_path / "own.json"
    write_schedules(own, HERE, {WeightShape(8, 70): Measured(OTHER, 2)})
    graph = parse_graph(MODEL)
    x = np.random.default_rng(0).standard_normal((20, 8), dtype=np.float32)
    sha256: list[str] = []
    results: list[Any] = []
    for name, path in (("plain", None), ("tuned", own), ("again", own)):
        target, place = Target("cpu", schedules=path), tmp_path / f"{name}.tfgraph"
        sha256.append(tfgraph.build(graph, target, place, prove=False).sha256)
        with tfgraph.load(place) as model:
            results.append(model(x=x)["s"])
        manifest = json.loads((place / "manifest.json").read_text())
        mine = str(DEFAULT if path is None else OTHER)
        assert manifest["schedules"] == {"linear": mine} | dict.fromkeys(
            ["gated_linear", "linear_relu"], str(DEFAULT)
        )
        assert mine in (place / "kernels" / "linear.py").read_text()
    assert sha256[0] != sha256[1] == sha256[2]
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (Target("cuda", arch="sm_90", schedules=Path("f")), TfgraphError, "'cuda' cannot be tuned"),
        (Target("numpy", schedules=Path("f")), TfgraphError, "'numpy' has no kernels to tune"),
        (Target("cpu"), TfgraphError, "needs a file"),
        (Target("cpu", mcpu="haswell", schedules=Path("f")), MissingTool, "not 'haswell'"),
    ],
)
def test_what_cannot_be_tuned(target: Target, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tune(parse_graph(MODEL), target)
    assert not Path("f").exists()
