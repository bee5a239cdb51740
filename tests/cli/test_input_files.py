"""Damaged files of arrays: an error that names the file, whatever NumPy, zipfile and zlib raise."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tfgraph.cli import inputs
from tfgraph.cli.inputs import read_array, read_inputs_file
from tfgraph.errors import TfgraphError
from tfgraph.runtime.sizes import Port

if TYPE_CHECKING:
    from pathlib import Path

PORTS = [Port("x", "float32", (2, 3)), Port("ids", "int64", ("n",))]
HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"


def npy(header: str, data: bytes = b"\0" * 12) -> bytes:
    """A file of one array with this header."""
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


HEADERS = [
    HEADER.replace("'fortran", "#fortran"),  # tokenize.TokenError
    HEADER.replace("(3,)", "(-1,)"),
    HEADER.replace("(3,)", f"({2**62},)"),
    HEADER.replace("(3,)", "(True,)"),
    HEADER.replace("(3,)", "('3',)"),
    HEADER.replace("(3,)", "(" * 3000),
    HEADER.replace("(3,)", "-" * 9000 + "1"),  # RecursionError
    HEADER.replace("<f4", "|O"),
    HEADER.replace("'<f4'", "[('a', '<f4', (9999999999,))]"),
    HEADER.replace("<f4", "x"),
    "{}",
    "__import__('os')",
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda text: text[:50])
def test_headers(tmp_path: Path, header: str) -> None:
    (tmp_path / "x.npy").write_bytes(npy(header))
    with pytest.raises(TfgraphError, match=r"--input x: .*x\.npy cannot be read: "):
        read_array("--input x", tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", npy(header))
    with pytest.raises(TfgraphError, match=r"--inputs .*x\.npz: it cannot be read: "):
        read_inputs_file(tmp_path / "x.npz", PORTS)


def test_a_whole_header_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npy(HEADER))
    assert read_array("--input x", tmp_path / "x.npy").tolist() == [0, 0, 0]


def test_any_changed_byte_of_an_archive(tmp_path: Path) -> None:
    out = io.BytesIO()
    np.savez_compressed(out, x=np.ones((2, 3), np.float32), ids=np.arange(4))
    whole, path, refused, r = out.getvalue(), tmp_path / "x.npz", 0, random.Random(3)
    for _ in range(200):
        changed = bytearray(whole)
        changed[r.randrange(len(whole))] = r.randrange(256)
        path.write_bytes(changed)
        try:
            read_inputs_file(path, PORTS)
        except TfgraphError:
            refused += 1
    assert 100 < refused < 200


def test_an_archive_larger_than_memory_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(10**6, np.float32))
    assert (tmp_path / "x.npz").stat().st_size < 10_000
    monkeypatch.setattr(inputs, "available_memory", lambda: 10**6)
    with pytest.raises(TfgraphError, match=r"it holds 3\.81 MiB; 977 KiB are free"):
        read_inputs_file(tmp_path / "x.npz", PORTS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "it is not JSON: maximum recursion"),
        (json.dumps({"x": [[1], [2, 3]]}), "x is not an array of float32"),
        ('{"x": [[["1"]]]}', "expected numbers"),
        ('{"ids": [1.5]}', "ids is not an array of int64"),
        (f'{{"ids": [{10**40}]}}', "expected numbers"),
        (f'{{"ids": [{"9" * 5000}]}}', "it is not JSON: Exceeds the limit"),
        ('{"x": {"y": 1}}', "expected numbers"),
        ('{"y": [1]}', "the model has no input 'y'"),
        ("[]", "expected an object"),
    ],
)
def test_json(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(TfgraphError, match=says):
        read_inputs_file(tmp_path / "x.json", PORTS)
