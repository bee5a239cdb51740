"""An artifact with several functions: one program, each weight once, states written in place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.generating import compiled, model
from helpers.tolerance import assert_close

import tfgraph
from tfgraph.api.verify import together, verify
from tfgraph.backends.base import Target
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import TfgraphError
from tfgraph.runtime.arrays import aligned_empty
from tfgraph.runtime.tensors import map_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.runtime.runnable import Runnable

Array = np.ndarray[Any, Any]
NAME = "learned"
LENGTH = 2 * (6 * 24 + 9)  # roundings in a row: products of 24 and 96 in each of two layers, 9 keys


def test_the_folder_holds_each_weight_once(tmp_path: Path) -> None:
    folder = tfgraph.build(model(NAME), "cpu", tmp_path / "m.tfgraph", check=False).artifact
    assert folder is not None
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {"graph.tfg", "graph.step.tfg", "kernels/main.py", "kernels/step.py"} <= set(
        manifest["files"]
    )
    step = manifest["functions"]["step"]
    plan = {"memory", "storages", "launches"}
    assert {"inputs", "outputs", "symbols", "constraints", "scalars", "weights"} | plan == set(step)
    tensors = map_tensors(folder / "weights.safetensors")
    assert set(tensors) == {w["name"] for w in (*manifest["weights"], *step["weights"])}
    # The tokens' table too, which the embedding and the tied head read.
    count = sum(array.size for array in tensors.values())
    plain = sum(
        int(np.prod([int(d) for d in p.value.type.shape])) for p in model(NAME).graph.params
    )
    padding = sum(a.size for n, a in tensors.items() if "packed" in n) // 2
    assert count <= plain + padding
    with tfgraph.load(folder) as run:
        assert set(run.functions) == {"step"}
        assert "step" not in {port.name for port in run.inputs}


def arguments(step: Runnable, order: Any = "C") -> dict[str, Any]:
    """Inputs of a step with all states filled, at end 5 of capacity 9."""
    given: dict[str, Any] = {"input_ids": np.array([[3, 1], [4, 1]]), "first": np.array([0, 2])}
    rng = np.random.default_rng(0)
    for port in step.inputs:
        if port.is_state:
            shape = (2, 9, int(port.shape[2]))
            given[port.name] = np.array(rng.standard_normal(shape, np.float32), order=order)
    return given


def test_the_caller_s_arrays_become_what_the_reference_says() -> None:
    step, made = compiled(NAME).functions["step"], model(NAME)
    want = NumpyExecutable(made.functions["step"], made.weights)(dims={"end": 5}, **arguments(step))
    for order in "CF":
        given = arguments(step, order)
        got = step(dims={"end": 5}, **given)
        for name, array in given.items():
            if array.ndim == 3:
                assert got[name] is array
                assert_close(array, want[name], length=LENGTH, name=name)
                old = arguments(step)[name]
                assert (array[:, :3] == old[:, :3]).all()
                assert (array[:, 5:] == old[:, 5:]).all()
        assert_close(got["logits"], want["logits"], length=LENGTH)


def test_aligned_states_are_not_copied() -> None:
    step = compiled(NAME).functions["step"]
    given = arguments(step)
    place = aligned_empty((2, 9, 12), np.float32)
    place[...] = given["layers.0.k"]
    before = place.copy()
    step(dims={"end": 5}, **{**given, "layers.0.k": place})
    changed = (place != before).any(axis=(0, 2))
    assert changed.tolist() == [False] * 3 + [True] * 2 + [False] * 4


def test_a_state_that_cannot_be_written_is_refused_before_anything_runs() -> None:
    step = compiled(NAME).functions["step"]
    given = arguments(step)
    given["layers.1.v"].flags.writeable = False
    before = {name: array.copy() for name, array in given.items()}
    with pytest.raises(TfgraphError, match=r"state 'layers\.1\.v' is read-only"):
        step(dims={"end": 5}, **given)
    assert all((given[name] == before[name]).all() for name in given)


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize(
    ("shared", "message"),
    [
        ("another", r"state 'layers\.0\.k' shares memory with state 'layers\.1\.v'"),
        ("window", r"state 'layers\.1\.v' shares memory with input 'first'"),
        ("itself", r"state 'layers\.1\.v' has elements that share memory"),
        ("read-only", r"state 'layers\.1\.v' is read-only"),
    ],
)
def test_a_state_shares_memory_with_nothing(target: str, shared: str, message: str) -> None:
    step = compiled(NAME, target).functions["step"]
    given = arguments(step)
    good = step(dims={"end": 5}, **{name: array.copy() for name, array in given.items()})
    place = given["layers.1.v"]
    if shared == "another":
        given["layers.1.v"] = given["layers.0.k"]
    elif shared == "window":
        memory = np.zeros(place.size + 4, np.float32)
        given["layers.1.v"] = memory[: place.size].reshape(place.shape)
        given["first"] = memory[place.size - 2 : place.size + 2].view(np.int64)
    elif shared == "itself":
        strides = (0, *place.strides[1:])
        given["layers.1.v"] = np.lib.stride_tricks.as_strided(place, place.shape, strides)
    else:
        place.flags.writeable = False
    with pytest.raises(TfgraphError, match=message):
        step(dims={"end": 5}, **given)
    # Side by side in one array is no sharing.
    memory = np.stack([arguments(step)["layers.0.k"], arguments(step)["layers.1.v"]])
    apart = {**arguments(step), "layers.0.k": memory[0], "layers.1.v": memory[1]}
    assert (step(dims={"end": 5}, **apart)["logits"] == good["logits"]).all()


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"end": 1}, "seq <= end does not hold"),
        ({"end": 10}, "end <= capacity does not hold"),
        ({"end": 151}, "end is 151 in dims, expected 1 to 150"),
    ],
)
def test_sizes_that_would_write_elsewhere_are_refused(dims: dict[str, int], message: str) -> None:
    step = compiled(NAME).functions["step"]
    with pytest.raises(TfgraphError) as error:
        step(dims=dims, **arguments(step))
    assert error.value.message.startswith(message)


def test_closing_the_model_closes_its_functions(tmp_path: Path) -> None:
    run = tfgraph.compile(model(NAME))
    state = run.new_state()
    state.feed(np.array([[1]]))
    run.close()
    with pytest.raises(TfgraphError, match="is closed"):
        state.feed(np.array([[1]]))


def test_a_function_that_differs_fails_the_verification() -> None:
    made = model(NAME)
    graph = made.functions["step"]
    good = verify(NumpyExecutable(graph, made.weights), graph, made.weights, Target("numpy"))
    scaled = {name: array * 1.001 for name, array in made.load().items()}
    bad = verify(NumpyExecutable(graph, scaled), graph, made.weights, Target("numpy"))
    assert (good.ok, bad.ok) == (True, False)
    found = together({"main": good, "step": bad})
    assert found.ok is False
    worst, at = found.worst
    assert worst.name.startswith("step: ")
    assert found.dims[at] == bad.dims[at - len(good.dims)]
    assert "output 'step: " in found.failure
    unknown = replace(good, ok=None, reason="NaN")
    assert together({"main": good, "step": unknown}).ok is None
    assert together({"main": good, "step": unknown}).reason == "step: NaN"
    assert together({"main": unknown, "step": bad}).ok is False
