"""Inputs of a call: from .npy files, else made by each input's generator, of sizes that agree.

Imports numpy and tfgraph.runtime, and nothing that is not needed to run an artifact.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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
        arrays[name] = _checked(expected[name], _read_array(name, Path(file)))
    return arrays


def _read_array(name: str, path: Path) -> NDArray:
    """The array of a file, which is mapped first: a header that promises more than the file holds
    is refused before memory is taken."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
        if start[:2] == b"PK":
            raise TfgraphError(
                f"--input {name}: {path} is an .npz archive, expected one .npy array",
                hint="save one of its arrays with numpy.save",
            )
        if start != b"\x93NUMPY":
            raise TfgraphError(f"--input {name}: {path} is not a .npy file")
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError as cause:
        raise TfgraphError(f"--input {name}: {path}: {cause.strerror or cause}") from cause
    except (ValueError, EOFError, SyntaxError, OverflowError) as cause:
        reason = next((words for part, words in _UNREADABLE.items() if part in str(cause)), cause)
        raise TfgraphError(f"--input {name}: {path} cannot be read: {reason}") from cause


def _checked(port: Port, array: NDArray) -> NDArray:
    if str(array.dtype) != port.dtype:  # another byte order shows as '>f4'
        raise TfgraphError(
            f"input '{port.name}' is {array.dtype}, expected {port.dtype}",
            hint=f"convert it with .astype('{port.dtype}')",
        )
    return array


def _known(name: str, names: list[str]) -> str:
    return nearest(name, names) or f"it has {', '.join(names) or 'none'}"
