"""`tfgraph fuzz`: backends of a plugin that are a little wrong are found, a right one is not."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfgraph.cli import main
from tfgraph.fuzz.swarm import FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLUGIN = '''
import os
import signal
from dataclasses import replace

import numpy as np

from tfgraph.backends import Backend, register_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ir import as_dim
from tfgraph.ir.mask import All, Causal


class Right(Backend):
    name = "right"

    def compile(self, graph, weights, target):
        return NumpyExecutable(graph, weights)


class Changed(NumpyExecutable):
    """The reference with its outputs changed."""

    def __call__(self, *, dims=None, **inputs):
        found = super().__call__(dims=dims, **inputs)
        return {name: self.change(name, x) for name, x in found.items()}


class Tanh(Backend):
    """tanh is off by a thousandth."""

    name = "tanh"

    def compile(self, graph, weights, target):
        run = Changed(graph, weights)
        made = {n.output.name for n in graph.nodes if "tanh" in (n.op, n.attrs.get("activation"))}
        wrong = {o.name for o in graph.outputs if o.value.name in made}
        run.change = lambda name, x: x + x.dtype.type(1e-3) if name in wrong else x
        return run


class Edge(Backend):
    """A causal mask shows one key too many."""

    name = "edge"

    def compile(self, graph, weights, target):
        def moved(mask):
            if isinstance(mask, All):
                return All(tuple(map(moved, mask.parts)))
            if isinstance(mask, Causal):
                return Causal((as_dim(0) if mask.offset is None else mask.offset) + 1)
            return mask

        nodes = [replace(n, operands=tuple(map(moved, n.operands))) for n in graph.nodes]
        return NumpyExecutable(replace(graph, nodes=tuple(nodes)), weights)


class NoNaN(Backend):
    """What is not a number becomes 0."""

    name = "nonan"

    def compile(self, graph, weights, target):
        run = Changed(graph, weights)
        run.change = lambda name, x: np.where(x != x, np.zeros_like(x), x)
        return run


class Mortal(Backend):
    """Its code crashes the process at a graph."""

    name = "mortal"

    def compile(self, graph, weights, target):
        if any(value.name.startswith("s26.") for value in graph.values()):
            os.kill(os.getpid(), signal.SIGSEGV)
        return NumpyExecutable(graph, weights)


for backend in (Right, Tanh, Edge, NoNaN, Mortal):
    register_backend(backend.name, backend)
'''


@pytest.fixture
def fuzz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Runs the verb with the plugin; its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tfgraph.fuzz.work._SHRINK_SECONDS", 600)  # as long as it takes
    (tmp_path / "wrong.py").write_text(PLUGIN)

    def call(line: str) -> Any:
        capsys.readouterr()
        alone = [] if "--jobs" in line else ["--jobs", "1"]
        code = main(["fuzz", "--plugin", "wrong.py", *alone, *shlex.split(line)])
        return (code, *capsys.readouterr())

    return call


@pytest.mark.parametrize(
    ("backend", "op", "seed"), [("tanh", "tanh", 1103), ("edge", "mask", 1103), ("nonan", "", 75)]
)
def test_a_wrong_backend_is_found_shrunk_and_replayed(
    fuzz: Callable[..., Any], capsys: pytest.CaptureFixture[str], backend: str, op: str, seed: int
) -> None:
    code, out, _ = fuzz(
        f"--backends numpy,{backend} --seed {seed} --graphs 400 --failures 1 --json"
    )
    found = json.loads(out)
    assert code == 1
    first = found["failures"][0]
    assert first["backend"] == backend
    assert op in first["graph"] or "attention" in first["graph"]
    assert first["graph"].count(" = ") <= 4  # an op or two, and their inputs
    assert 0 <= first["seed"] - found["seed"] < found["graphs"] <= 400
    for command in (first["replay"], first["compare"]):
        assert main(shlex.split(command)[1:]) == 1, command
        assert backend in capsys.readouterr().out
    right = first["replay"].replace("--replay", "--backends numpy,right --replay")
    assert main(shlex.split(right)[1:]) == 0
    assert "right is right" in capsys.readouterr().out


def test_a_right_backend_is_not_blamed(fuzz: Callable[..., Any]) -> None:
    code, out, err = fuzz("--backends numpy,right --seed 7 --graphs 12")
    assert (code, err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines()[:-1])
    assert lines["backends"] == "numpy, right"
    assert lines["dtypes"] == "float32, float16, bfloat16, float64"
    assert lines["seeds"] == "7 to 18"
    assert out.endswith("no difference\n")
    code, out, _ = fuzz("--backends right --seed 7 --graphs 5 --json")
    found = json.loads(out)
    assert (code, found["graphs"], found["failures"]) == (0, 5, [])
    assert sum(found["by_op"].values()) > 5


def test_processes_share_the_graphs(fuzz: Callable[..., Any]) -> None:
    line = "--backends right --seed 22 --graphs 6 --json"
    one, two = (json.loads(fuzz(f"{line} --jobs {jobs}")[1]) for jobs in (1, 2))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
    code, _, err = fuzz("--backends mortal --seed 22 --graphs 6 --jobs 2")
    assert code == 1
    assert "the process that ran the seeds 25 to 27 ended by SIGSEGV" in err
    assert "--jobs 1 --seed 25 --graphs 3 runs them again" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--backends numpy", "there is nothing to compare with the reference"),
        ("--backends numpy,nmpy", "unknown target 'nmpy'"),
        ("--replay nowhere", "nowhere/failure.json: No such file or directory"),
        ("--seconds x", "--seconds': should be a valid number"),
    ],
)
def test_mistakes_are_told(fuzz: Callable[..., Any], line: str, message: str) -> None:
    code, out, err = fuzz(line)
    assert (code, out) == (2, "")
    assert message in err


def test_neighbours_are_a_family_and_families_differ() -> None:
    from tfgraph.fuzz import random_case

    def ops(seeds: range) -> set[str]:
        cases = [random_case(seed, kind="schemas") for seed in seeds]
        return {node.op for case in cases for node in case.graph.nodes}

    first, second = ops(range(FAMILY)), ops(range(FAMILY, 2 * FAMILY))
    assert first - second
    assert second - first
    every = ops(range(0, 40 * FAMILY, 3))
    assert len(every) > 35, sorted(every)


def test_hard_inputs_are_drawn() -> None:
    """Zeros, denormals, the ends of the dtype, NaN where masks hide it and elsewhere, one-hot V."""
    from tfgraph.fuzz import random_case
    from tfgraph.fuzz.batch import points
    from tfgraph.fuzz.inputs import FILLS

    cases = [random_case(seed, kind="blocks") for seed in range(1200)]
    kinds = {kind for case in cases for kind, _ in case.fills.values()}
    assert set(FILLS) | {"hidden", "lengths", "prefix", "segments", "bools", "ids"} <= kinds
    sizes = {n for seed in range(50) for point in points(seed) for n in point.values()}
    assert {1, 2, 3, 7, 61, 64, 65} <= sizes
    arrays = [a for case in cases[:200] for a in case.feeds(points(0)[3]).values()]
    floats = [a for a in arrays if a.dtype == np.float32 and a.size > 20]
    tiny = np.finfo(np.float32).tiny
    assert any(np.isnan(a).any() for a in floats)
    assert any((abs(a) > 0).any() and (abs(a) < tiny).all() for a in floats)
