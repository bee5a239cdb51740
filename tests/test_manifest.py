"""What a manifest that holds its own hash may not say: each mistake is told by its place."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from tfgraph.runtime.manifest import MANIFEST, problem

PORT = {"name": "x", "dtype": "float32", "shape": ["batch", 8], "generator": "normal(1)"}
GOOD: dict[str, Any] = {
    "format": 1,
    "name": "m",
    "target": "cpu",
    "arch": None,
    "inputs": [PORT, {**PORT, "name": "ids", "dtype": "int64", "limit": "2*batch", "least": 0}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "2*batch//2", 8]}],
    "symbols": {"batch": {"min": 1, "max": 64, "example": 2}},
    "constraints": ["batch <= 64", "2*batch == batch + batch"],
    "scalars": ["batch"],
    "weights": [{"name": "w", "dtype": "float32", "shape": [8, 8], "layout": "plain"}],
    "memory": "64*batch",
    "storages": ["8*batch", 4],
    "launches": [
        {"kernel": "copy", "into": [1]},
        {"kernel": "add", "value": "y", "flops": 8, "bytes": "batch"},
    ],
    "cpu": {"mcpu": "x86-64-v3", "features": ["avx2"]},
    "tools": {"tfgraph": "0.1.0"},
    "files": {"graph.tfg": "0", "kernels/0.o": "1"},
    "command": None,
    "functions": {},
    "verification": {"ok": None, "reason": "not run", "against": "numpy", "dims": [{"batch": 2}]},
}


CUDA: dict[str, Any] = {
    **{key: value for key, value in GOOD.items() if key != "cpu"},
    "target": "cuda",
    "arch": "sm_80",
    "cuda": {
        "kernels": 2,
        "launches": 2,
        "images": [{"file": "kernels/sm_80.ptx", "kind": "ptx", "arch": "sm_80", "cuda": "13.0"}],
        "usage": {"sm_80": {"add": {"registers": 32}}},
    },
    "files": {"graph.tfg": "0", "kernels/kernels.cu": "1", "kernels/sm_80.ptx": "2"},
}


def test_a_whole_one() -> None:
    assert problem(GOOD) is None
    least = {key: GOOD[key] for key in MANIFEST if not key.endswith("?")}
    assert problem({**least, "target": "mine"}) is None
    assert problem(CUDA) is None


def edited(path: str, value: Any, good: dict[str, Any] = GOOD) -> dict[str, Any]:
    """With another value at a path; `...` leaves the key out."""
    manifest = copy.deepcopy(good)
    around: Any = manifest
    *before, last = [int(p) if p.isdigit() else p for p in path.split(" ")]
    for part in before:
        around = around[part]
    if value is ...:
        del around[last]
    else:
        around[last] = value
    return manifest


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("name", ..., "name: missing"),
        ("name", 3, "name: expected a text"),
        ("inputs", {}, "inputs: expected a list"),
        ("inputs 0", "x", "inputs[0]: expected an object"),
        ("inputs 1 dtype", ..., "inputs[1].dtype: missing"),
        ("inputs 0 shape 1", None, "inputs[0].shape[1]: expected an integer or a text"),
        ("inputs 0 shape 1", True, "inputs[0].shape[1]: expected an integer or a text"),
        ("inputs 0 attention", 1, "inputs[0].attention: expected true or false"),
        ("inputs 0 dtype", "object", "inputs: 'x' is 'object', which is no type of arrays"),
        ("inputs 0 shape 0", "seq", "inputs: 'x' has 'seq', which is no size"),
        ("inputs 0 shape 0", -1, "inputs: 'x' has -1, which is no size"),
        ("inputs 0 shape 0", "batch // 0", "inputs: 'x' has 'batch // 0', which is no size"),
        ("inputs 0 shape 0", "batch ** 9", "inputs: 'x' has 'batch ** 9', which is no size"),
        ("inputs 0 shape 0", "open(batch)", "inputs: 'x' has 'open(batch)', which is no size"),
        ("inputs 1 limit", "seq", "inputs: 'ids' has 'seq', which is no bound"),
        ("symbols batch min", ..., "symbols.batch.min: missing"),
        ("symbols batch max", 1, "symbols.batch: no range with an example in it"),
        ("symbols batch min", 0, "symbols.batch: no range with an example in it"),
        ("constraints 0", "batch", "constraints: 'batch' is none"),
        ("constraints 0", "seq <= 2", "constraints: 'seq <= 2' is none"),
        ("scalars 0", "seq", "scalars: 'seq' is no symbol"),
        ("memory", "import os", "memory: 'import os' is no size"),
        ("launches 1 bytes", "seq", "launches: 'add' does no amount of work"),
        ("launches 0 into 0", 2, "launches: 'copy' writes into no storage"),
        ("storages 0", "seq", "storages: 'seq' is no size"),
        ("launches 0", {}, "launches[0].kernel: missing"),
        ("weights 0 shape 0", "8", "weights[0].shape[0]: expected an integer"),
        ("cpu", ..., "cpu: missing"),
        ("cpu features 0", [], "cpu.features[0]: expected a text"),
        ("files", ["graph.tfg"], "files: expected an object"),
        ("files graph.tfg", 3, "files.graph.tfg: expected a text"),
        ("files", {"../m.o": ""}, "\"files\" lists '../m.o', which is not in the folder"),
        ("files", {"/m.o": ""}, "\"files\" lists '/m.o', which is not in the folder"),
        ("files", {"a/../../m.o": ""}, "\"files\" lists 'a/../../m.o', which is not in the folder"),
        ("files", {"": ""}, "\"files\" lists '', which is not in the folder"),
        ("files", {"m.o\0": ""}, "\"files\" lists 'm.o\\x00', which is not in the folder"),
        ("functions step", {}, "functions.step.inputs: missing"),
        ("functions", None, "functions: expected an object"),
        ("generation", {"stop": 3}, "generation: expected an object or null"),
        ("command", "rm -r x", "command: expected a list or null"),
        ("verification ok", 1, "verification.ok: expected true or false or null"),
    ],
)
def test_what_is_told(path: str, value: Any, says: str) -> None:
    assert problem(edited(path, value)) == says


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("cuda", ..., "cuda: missing"),
        ("cuda launches", "2", "cuda.launches: expected an integer"),
        ("cuda usage sm_80 add registers", [], "cuda.usage.sm_80.add.registers: expected an"),
        ("cuda images 0 kind", ..., "cuda.images[0].kind: missing"),
        ("cuda images 0 file", "m.cubin", "\"files\" lists no 'm.cubin', which is an image"),
        ("cuda images 0 arch", "sm_9x", "cuda.images: 'sm_9x' is no architecture"),
        ("cuda images 0 cuda", "13", "cuda.images: '13' is no version of CUDA"),
        ("files", {"kernels/sm_80.ptx": ""}, '"files" lists no kernels/kernels.cu'),
    ],
)
def test_of_cuda(path: str, value: Any, says: str) -> None:
    assert str(problem(edited(path, value, CUDA))).startswith(says)


def test_of_a_function() -> None:
    step = {key: GOOD[key] for key in ("outputs", "symbols", "constraints", "weights")}
    step |= {"inputs": [], "scalars": ["past"]}
    assert problem({**GOOD, "functions": {"step": step}}) == (
        "functions.step.scalars: 'past' is no symbol"
    )


@pytest.mark.parametrize("text", ["(" * 100_000, "-" * 100_000, "+".join(["batch"] * 50_000)])
def test_sizes_nested_too_deeply(text: str) -> None:
    assert "which is no size" in str(problem(edited("inputs 0 shape 0", text)))


def test_any_value_in_any_place_is_taken_or_told() -> None:
    values = (None, True, -1, 0, 10**40, 0.5, "", "x", "9**9**9", "a//0", [], {}, [[]], {"x": 1})
    r = random.Random(5)
    told = 0
    for _ in range(2000):
        manifest = copy.deepcopy(GOOD)
        around: Any = manifest
        place: Any = r.choice(list(around))
        while isinstance(around[place], dict | list) and around[place] and r.random() < 0.8:
            around = around[place]
            place = r.choice(list(around) if isinstance(around, dict) else range(len(around)))
        around[place] = r.choice(values)
        told += problem(manifest) is not None
    assert 1000 < told < 2000
