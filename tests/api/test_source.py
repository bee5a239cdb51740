"""What `compile`, `build` and `compare` take: a graph, a model, a path; and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfgraph
from tfgraph.backends.base import Target
from tfgraph.errors import MissingTool, TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable

YAML = """\
kind: encoder
width: 8
heads: 2
layers: 1
ffn: 16
seed: 7
target: numpy
"""


def twice() -> tfgraph.Graph:
    """2 x, and a weight."""
    with tfgraph.graph("twice") as g:
        g.output("y", g.input("x", "f32", "n", 3) * 2 + g.param("w", "f32", 3))
    return g.build()


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.yaml"
    path.write_text(YAML)
    return path


def test_a_path_is_the_model_that_it_holds(model_file: Path) -> None:
    loaded = tfgraph.load_source(str(model_file))
    runs = [tfgraph.compile(source, "numpy") for source in (model_file, str(model_file), loaded)]
    runs.append(tfgraph.compile(loaded.graph, "numpy", weights=loaded.weights))
    inputs = runs[0].example()
    first, *others = (run(**inputs) for run in runs)
    for other in others:
        for name, array in first.items():
            np.testing.assert_array_equal(array, other[name])


def test_weights_stand_in_for_the_models_own(model_file: Path) -> None:
    loaded = tfgraph.load_source(str(model_file))
    zeros = {name: np.zeros_like(array) for name, array in loaded.load().items()}
    run = tfgraph.compile(model_file, weights=zeros)
    assert all(not y.any() for y in run(**run.example()).values())


def test_the_target_is_the_models_own_unless_given(model_file: Path) -> None:
    assert repr(tfgraph.compile(model_file)).startswith("<model for numpy")
    with tfgraph.compile(model_file, "cpu") as run:
        assert repr(run).startswith("<model for cpu")
    with tfgraph.compile(twice()) as run:
        assert repr(run).startswith("<twice for cpu")
    model_file.write_text(YAML.replace("numpy", "cuda\narch: sm_90"))
    out = model_file.parent / "out.tfgraph"
    report = tfgraph.build(model_file, output=out)
    assert (report.target.name, report.target.arch) == ("cuda", "sm_90")


def test_what_a_model_says_of_gpus_counts_for_a_target_by_its_name(model_file: Path) -> None:
    out = model_file.parent / "out.tfgraph"
    model_file.write_text(YAML + "arch: sm_90\ntf32: true\n")
    for dtype in (None, "float16"):
        made = tfgraph.build(model_file, "cuda", out, dtype=dtype, check=False).target
        assert (made.arch, made.tf32) == ("sm_90", dtype is None)
    plain = tfgraph.build(model_file, Target("cuda", arch="sm_80"), out, check=False).target
    assert (plain.arch, plain.tf32) == ("sm_80", False)


def test_an_output_is_a_verified_artifact(tmp_path: Path) -> None:
    output = tmp_path / "twice.tfgraph"
    x = np.ones((2, 3), np.float32)
    w = np.arange(3, dtype=np.float32)
    with tfgraph.compile(twice(), output=output, weights={"w": w}) as run:
        np.testing.assert_array_equal(run(x=x)["y"], 2 * x + w)
    with tfgraph.load(str(output)) as loaded:
        assert loaded.manifest["verification"]["ok"] is True
        np.testing.assert_array_equal(loaded(x=x)["y"], 2 * x + w)


def test_an_output_that_cannot_be(tmp_path: Path) -> None:
    output = tmp_path / "twice.tfgraph"
    with pytest.raises(TfgraphError, match="target 'numpy' makes no artifact"):
        tfgraph.compile(twice(), "numpy", output=output)
    with pytest.raises(MissingTool, match="target 'cuda' cannot run here") as caught:
        tfgraph.compile(twice(), Target("cuda", arch="sm_90"), output=output)
    assert caught.value.hint == "tfgraph.build writes an artifact without running it"
    assert not list(tmp_path.iterdir())


def test_compare_takes_a_path(model_file: Path) -> None:
    report = tfgraph.compare(model_file, ("numpy", "cpu"), dims={"seq": 5})
    assert report.ok
    assert report.dims["seq"] == 5
    with pytest.raises(TfgraphError, match="dims: seq is '5', expected an integer"):
        tfgraph.compare(model_file, dims={"seq": "5"})  # type: ignore[dict-item]


@pytest.mark.parametrize("use", [tfgraph.compile, tfgraph.build, tfgraph.compare])
def test_what_is_no_source(use: Callable[..., Any], tmp_path: Path) -> None:
    def refused(source: object, message: str) -> str | None:
        with pytest.raises(TfgraphError, match=message) as caught:
            use(source)
        return caught.value.hint

    with tfgraph.graph("g") as g:
        g.output("y", g.input("x", "f32", 2))
    assert refused(g, "graph g is still being built") == "call build() for the graph"
    assert refused(3, "expected a graph, a model or the path of one, got 3") is None
    run = tfgraph.compile(g.build(), "numpy")
    assert refused(run, "g is compiled already") == "call it with its inputs"
    artifact = tfgraph.build(g.build(), "cpu", tmp_path / "g.tfgraph", check=False).artifact
    assert refused(artifact, "is an artifact, compiled already") == "tfgraph.load runs it"
    refused(tmp_path / "missing.yaml", "no such file")


@pytest.mark.parametrize("name", ["model.onx", "mode.onnx"])
def test_a_name_that_is_nearly_that_of_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(TfgraphError, match="no such file") as caught:
        tfgraph.load_source(tmp_path / name)
    assert caught.value.hint == "did you mean 'model.onnx'?"
