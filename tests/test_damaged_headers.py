"""Damaged weights, in either reader, end in an error that names the file: never in another."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tfgraph.errors import TfgraphError
from tfgraph.runtime.tensors import map_tensors
from tfgraph.weights import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Read = Callable[[Path], Mapping[str, np.ndarray[Any, Any]]]

READERS = [Checkpoint, map_tensors]
VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 4.0, 64.5, 1 << 63, 10**30, float("nan"), float("inf"),
    "", "F32", "F64", "I8", "x", [], [0], [1, 2], [[]], {}, {"dtype": []}, [1] * 40,
]  # fmt: skip


def written(path: Path, header: Any, data: bytes = b"\0" * 48) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **changes}}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "header",
    [
        entry(dtype=[]),
        entry(dtype={}),
        entry(dtype=None),
        entry(shape=[2.0, 3.0]),
        entry(shape=[True, 6]),
        entry(shape=["2", "3"]),
        entry(shape="23"),
        entry(shape=6),
        entry(shape=[0, 1 << 63], data_offsets=[0, 0]),
        entry(shape=[1] * 65 + [6]),
        entry(data_offsets=[0.0, 24.0]),
        entry(data_offsets=[0, 24, 24]),
        entry(data_offsets=["0", "24"]),
        entry(data_offsets=[-24, 0]),
        entry(data_offsets=[24, 0]),
        entry(data_offsets={}),
        {"a": []},
        {"a": None},
        [],
        None,
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_damaged_header(tmp_path: Path, read: Read, header: Any) -> None:
    path = written(tmp_path / "w.safetensors", header)
    with pytest.raises(TfgraphError, match=r"w\.safetensors"):
        read(path)


@pytest.mark.parametrize("read", READERS)
def test_any_mutation_is_read_or_told(tmp_path: Path, read: Read) -> None:
    """Bytes of the file and values of the header replaced at random: what is read has the bytes
    that its header says, all else is a TfgraphError."""
    chance = random.Random(7)
    path = tmp_path / "w.safetensors"
    save_file({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3)}, path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    refused = 0
    for number in range(500):
        if number % 2:
            changed = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                changed[chance.randrange(8 + length)] = chance.randrange(256)
            path.write_bytes(changed[: chance.choice([None, None, chance.randrange(len(whole))])])
        else:
            written(path, mutated(header, chance), data)
        try:
            for array in read(path).values():
                array.tobytes()
        except TfgraphError:
            refused += 1
    assert refused > 250


def mutated(header: Any, chance: random.Random) -> Any:
    """The header with one value, anywhere in it, replaced, left out or doubled."""
    changed = copy.deepcopy(header)
    around, place = changed, chance.choice(sorted(changed))
    while isinstance(around[place], dict | list) and around[place] and chance.random() < 0.8:
        around = around[place]
        place = chance.choice(sorted(around) if isinstance(around, dict) else range(len(around)))
    action = chance.random()
    if action < 0.1:
        del around[place]
    elif action < 0.2:
        if isinstance(around, list):
            around.insert(place, around[place])
        else:
            around[f"{place}2"] = around[place]
    else:
        around[place] = copy.deepcopy(chance.choice(VALUES))
    return changed


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": 3}}, "'a' is in 3, expected a file in the index's folder"),
        ({"weight_map": {"a": None}}, "'a' is in None, expected"),
        ({"weight_map": {"a": ["w.safetensors"]}}, "expected a file in"),
        ({"weight_map": {"a": "../w.safetensors"}}, "'a' is in '../w.safetensors', expected"),
        ({"weight_map": {"a": "../../../etc/passwd"}}, "expected a file in the index's folder"),
        ({"weight_map": {"a": "{outside}"}}, "expected a file in the index's folder"),
        ({"weight_map": {"a": "sub/../../w.safetensors"}}, "expected a file in the index's folder"),
        ({"weight_map": {"a": ".."}}, "expected a file in the index's folder"),
        ({"weight_map": {"a": "sub"}}, "cannot read weights: Is a directory"),
        ({"weight_map": {"a": ""}}, "expected a file in the index's folder"),
        ({"weight_map": {"a": "w\0"}}, "expected a file in the index's folder"),
        ({"weight_map": 3}, "no weight_map"),
        ({"weight_map": [1]}, "no weight_map"),
        ([], "no weight_map"),
        ("[" * 100_000, "no weight_map"),
    ],
)
def test_a_damaged_index(tmp_path: Path, index: Any, message: str) -> None:
    """The shard outside is whole: only its place is wrong."""
    outside = tmp_path / "w.safetensors"
    save_file({"a": np.zeros(2, np.float32)}, outside)
    (tmp_path / "model" / "sub").mkdir(parents=True)
    path = tmp_path / "model" / "m.safetensors.index.json"
    text = index if isinstance(index, str) else json.dumps(index)
    path.write_text(text.replace("{outside}", str(outside)))
    with pytest.raises(TfgraphError, match=message) as caught:
        Checkpoint(path)
    assert caught.value.location is not None


def test_a_shard_may_be_in_a_folder_inside(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "sub" / "w.safetensors")
    path = tmp_path / "m.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": "sub/w.safetensors"}}))
    np.testing.assert_array_equal(Checkpoint(path)["a"], np.ones(2, np.float32))
