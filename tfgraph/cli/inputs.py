"""Inputs of a call: from .npy files, else made by each input's generator, of sizes that agree.

Imports numpy and tfgraph.runtime, and nothing that is not needed to run an artifact.
"""

from __future__ import annotations

import json
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.errors import TfgraphError, nearest
from tfgraph.runtime.memory import available_memory, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from tfgraph.runtime.sizes import Port, SymbolRange

    NDArray = np.ndarray[Any, np.dtype[Any]]


# What NumPy says of mapping a file, and what that means to who gave it.
_UNREADABLE = {
    "Python objects": "it holds Python objects, expected numbers",
    "mmap length": "it is cut short",
}


def parse_dims(texts: Sequence[str] | None, symbols: Mapping[str, SymbolRange]) -> dict[str, int]:
    """`--dim NAME=SIZE` as sizes by symbol."""
    sizes: dict[str, int] = {}
    for text in texts or ():
        name, equals, number = text.partition("=")
        if not equals or not number.strip().isdecimal():
            raise TfgraphError(f"--dim {text}: expected NAME=SIZE, such as seq=128")
        if name not in symbols:
            raise TfgraphError(
                f"--dim {text}: the model has no symbol '{name}'", hint=_known(name, list(symbols))
            )
        if name in sizes:
            raise TfgraphError(f"--dim {text}: '{name}' is given twice")
        sizes[name] = int(number)
    return sizes


def read_inputs(
    texts: Sequence[str] | None, ports: Sequence[Port], taken: Collection[str] = ()
) -> dict[str, NDArray]:
    """`--input NAME=FILE.npy` as arrays by name, of the ports' dtypes and ranks; those `taken` come
    from `--text`."""
    expected = {port.name: port for port in ports}
    arrays: dict[str, NDArray] = {}
    for text in texts or ():
        name, equals, file = text.partition("=")
        if not equals or not file:
            raise TfgraphError(f"--input {text}: expected NAME=FILE.npy")
        if name not in expected:
            raise TfgraphError(
                f"the model has no input '{name}'", hint=_known(name, list(expected))
            )
        if name in arrays:
            raise TfgraphError(f"--input {text}: '{name}' is given twice")
        if name in taken:
            raise TfgraphError(f"--input {text}: '{name}' is made of --text")
        arrays[name] = _checked(expected[name], read_array(f"--input {name}", Path(file)))
    return arrays


def read_inputs_file(path: Path | None, ports: Sequence[Port]) -> dict[str, NDArray]:
    """`--inputs FILE` as arrays by name: those of an .npz archive, or of a JSON object of nested
    lists, which become the ports' dtypes. Raises TfgraphError for what is no input."""
    if path is None:
        return {}
    expected = {port.name: port for port in ports}
    try:
        given = _read_npz(path) if path.suffix == ".npz" else _read_json(path, expected)
    except OSError as cause:
        raise TfgraphError(f"--inputs {path}: {cause.strerror or cause}") from cause
    for name in given:
        if name not in expected:
            raise TfgraphError(
                f"--inputs {path}: the model has no input '{name}'",
                hint=_known(name, list(expected)),
            )
    return {name: _checked(expected[name], array) for name, array in given.items()}


def _read_npz(path: Path) -> dict[str, NDArray]:
    """The arrays of an archive, which may be packed a thousandfold: first what they take."""
    with _numpy_reads(f"--inputs {path}: it"):
        with zipfile.ZipFile(path) as archive:
            need, free = sum(entry.file_size for entry in archive.infolist()), available_memory()
        if need > free:
            raise TfgraphError(f"--inputs {path}: it holds {shown(need)}; {shown(free)} are free")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


@contextmanager
def _numpy_reads(what: str) -> Generator[None]:
    """Whatever NumPy, zipfile and zlib raise in the block means that `what` cannot be read: damaged
    bytes lead them to a dozen exceptions."""
    try:
        with np.errstate(over="ignore"):  # of sizes in a header
            yield
    except (OSError, TfgraphError):
        raise
    except Exception as cause:
        reason = next((words for part, words in _UNREADABLE.items() if part in str(cause)), cause)
        raise TfgraphError(f"{what} cannot be read: {reason}") from cause


def _read_json(path: Path, ports: Mapping[str, Port]) -> dict[str, NDArray]:
    try:
        given: Any = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as cause:
        raise TfgraphError(
            f"--inputs {path}: it is not JSON: {cause}", hint="an .npz archive ends in .npz"
        ) from cause
    if not isinstance(given, dict):
        raise TfgraphError(f"--inputs {path}: expected an object of lists by input name")
    found: dict[str, NDArray] = {}
    for name, lists in cast("dict[str, Any]", given).items():
        wanted = np.dtype(ports[name].dtype) if name in ports else None
        try:
            plain = np.asarray(lists)
            if plain.dtype.kind not in "biuf":
                raise ValueError("expected numbers")
            found[name] = plain if wanted is None else plain.astype(wanted, casting="same_kind")
        except (ValueError, TypeError, OverflowError, MemoryError) as cause:
            what = f"{name} is not an array of {wanted}" if wanted else name
            raise TfgraphError(f"--inputs {path}: {what}: {cause}") from cause
    return found


def read_edits(texts: Sequence[str] | None) -> dict[str, Any]:
    """`--intervene NAME=VALUE` as edits by name, of numbers and of the arrays of files."""
    edits: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise TfgraphError(
                f"--intervene {text}: expected NAME=VALUE",
                hint="such as layers.3.heads.5=0, or layers.1.ffn.w1[17]=row.npy",
            )
        if name in edits:
            raise TfgraphError(f"--intervene {text}: '{name}' is given twice")
        if Path(value).suffix == ".npy":
            edits[name] = read_array(f"--intervene {name}", Path(value))
            continue
        try:
            edits[name] = float(value)
        except ValueError:
            raise TfgraphError(
                f"--intervene {text}: '{value}' is not a number, nor a .npy file"
            ) from None
    return edits


def read_array(what: str, path: Path) -> NDArray:
    """The array of a file, given as `what`. It is mapped first: a header that promises more than
    the file holds is refused before memory is taken."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
        if start[:2] == b"PK":
            raise TfgraphError(
                f"{what}: {path} is an .npz archive, expected one .npy array",
                hint="save one of its arrays with numpy.save",
            )
        if start != b"\x93NUMPY":
            raise TfgraphError(f"{what}: {path} is not a .npy file")
        with _numpy_reads(f"{what}: {path}"):
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError as cause:
        raise TfgraphError(f"{what}: {path}: {cause.strerror or cause}") from cause


def _checked(port: Port, array: NDArray) -> NDArray:
    if str(array.dtype) != port.dtype:  # another byte order shows as '>f4'
        raise TfgraphError(
            f"input '{port.name}' is {array.dtype}, expected {port.dtype}",
            hint=f"convert it with .astype('{port.dtype}')",
        )
    return array


def _known(name: str, names: list[str]) -> str:
    return nearest(name, names) or f"it has {', '.join(names) or 'none'}"
