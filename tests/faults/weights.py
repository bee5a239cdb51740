"""Faults of weight loading: an array is not the one that the model has under that name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from faults.fault import Fault
from faults.models import LAYERS, MODELS, SIZES, compiled, model, onnx_file

import tfgraph
from tfgraph.backends.tvm.lower import Lowering
from tfgraph.backends.tvm.weights import weight_array
from tfgraph.onnx import importer
from tfgraph.runtime import model as runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tfgraph.api.comparison import Divergence

NDArray = np.ndarray[Any, Any]
_SQUARE = "layers.{}.attention.{}.weight"


def _permuted(array: NDArray) -> NDArray:
    return np.ascontiguousarray(np.roll(array, 1, axis=0))


def _transposed(array: NDArray) -> NDArray:
    return np.ascontiguousarray(array.T)


_CHANGES: dict[str, Callable[[NDArray], NDArray]] = {
    "transposed": _transposed,
    "its rows permuted": _permuted,
}


def weight_fault(rng: np.random.Generator) -> Fault:
    """A weight, what is there instead, and where it goes wrong, drawn."""
    draws = (_while_packing, _while_loading, _of_another_layer, _in_an_onnx_file, _another_artifact)
    return draws[rng.integers(len(draws))](rng)


def _draw(rng: np.random.Generator) -> str:
    return _SQUARE.format(rng.integers(LAYERS), "qkv"[rng.integers(3)])


def _named(first: Divergence, *names: str) -> bool:
    return first.kind == "weight" and any(name in first.value.split("+") for name in names)


def _while_packing(rng: np.random.Generator) -> Fault:
    """The backend reads a weight wrongly when it writes the artifact."""
    name, victim = MODELS[rng.integers(len(MODELS))], _draw(rng)
    what, change = list(_CHANGES.items())[rng.integers(len(_CHANGES))]

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        def wrong(low: Lowering, value: Any) -> NDArray:
            arrays = dict(low.module.arrays)
            arrays[victim] = change(arrays[victim])
            return weight_array(low.graph, arrays, value)

        patch.setattr(Lowering, "array", wrong)
        return tfgraph.compare(model(name), dims=SIZES).first_divergence

    title = f"{victim} {what} while {name} is packed"
    return Fault("weights", title, find, lambda first: _named(first, victim))


def _of_another_layer(rng: np.random.Generator) -> Fault:
    """The backend packs the weight of another layer."""
    name, victim = MODELS[rng.integers(len(MODELS))], _draw(rng)
    layer, last = int(victim.split(".")[1]), victim.split(".", 2)[2]
    instead = f"layers.{(layer + 1) % LAYERS}.{last}"

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        def wrong(low: Lowering, value: Any) -> NDArray:
            arrays = dict(low.module.arrays)
            return weight_array(low.graph, arrays | {victim: arrays[instead]}, value)

        patch.setattr(Lowering, "array", wrong)
        return tfgraph.compare(model(name), dims=SIZES).first_divergence

    return Fault(
        "weights", f"{instead} for {victim} of {name}", find, lambda first: _named(first, victim)
    )


def _while_loading(rng: np.random.Generator) -> Fault:
    """The runtime exchanges two arrays of the artifact."""
    name = MODELS[rng.integers(len(MODELS))]
    kind = ("ffn.up.bias", "attention.out.bias", "attention_norm.scale")[rng.integers(3)]
    a, b = rng.choice(LAYERS, 2, replace=False)
    pair = f"layers.{a}.{kind}", f"layers.{b}.{kind}"

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        read = runtime.map_tensors

        def wrong(path: Path) -> dict[str, NDArray]:
            found = read(path)
            if set(pair) <= set(found):
                found[pair[0]], found[pair[1]] = found[pair[1]], found[pair[0]]
            return found

        patch.setattr(runtime, "map_tensors", wrong)
        return tfgraph.compare(model(name), dims=SIZES).first_divergence

    title = f"{pair[0]} and {pair[1]} of {name} exchanged while it is loaded"
    return Fault("weights", title, find, lambda first: _named(first, *pair))


def _in_an_onnx_file(rng: np.random.Generator) -> Fault:
    """The importer reads an initialiser wrongly."""
    victim = _draw(rng)
    what, change = list(_CHANGES.items())[rng.integers(len(_CHANGES))]
    witness = ("onnxruntime", "onnx-reference")[rng.integers(2)]

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        read = importer.Importer._param

        def wrong(self: Any, x: Any) -> Any:
            if x.name == victim:
                array = change(x.read())
                x = type(x)(x.name, x.dtype, array.shape, lambda: array)
            return read(self, x)

        patch.setattr(importer.Importer, "_param", wrong)
        return tfgraph.compare(onnx_file(), (witness, "numpy"), dims=SIZES).first_divergence

    title = f"initialiser {victim} {what}, with {witness}"
    return Fault("weights", title, find, lambda first: _named(first, victim))


def _another_artifact(rng: np.random.Generator) -> Fault:
    """An artifact that was compiled with other numbers in one weight."""
    name, victim = MODELS[rng.integers(len(MODELS))], _draw(rng)
    assert victim in {p.value.name for p in compiled(name).params}

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        own = model(name).load()
        own[victim] = _permuted(own[victim])
        with tempfile.TemporaryDirectory(prefix="tfgraph-faults-") as folder:
            artifact = Path(folder) / "other.tfgraph"
            tfgraph.compile(model(name), "cpu", output=artifact, weights=own).close()
            found = tfgraph.compare(model(name), dims=SIZES, artifact=artifact)
        return found.first_divergence

    title = f"an artifact of {name} with another {victim}"
    return Fault("weights", title, find, lambda first: _named(first, victim))
