"""config.json with the place of each key, and its values in the model file's terms.

May import: architecture, errors.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tfgraph.errors import Location, TfgraphError, nearest

if TYPE_CHECKING:
    from tfgraph.hf.architecture import Key

MAX_BYTES = 4_000_000
# All names by which transformers knows the activations that tfgraph has (its activations.py).
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


@dataclass(frozen=True)
class Config:
    """The object in a config.json."""

    path: Path
    text: str
    data: dict[str, Any]

    def place(self, key: str) -> Location:
        """Where the value of a key stands; the file, if it has no such key."""
        match = re.search(rf"{re.escape(json.dumps(key))}\s*:\s*", self.text)
        if match is None:
            return Location(str(self.path))
        before = self.text[: match.end()]
        return Location(str(self.path), before.count("\n") + 1, match.end() - before.rfind("\n"))

    def error(self, key: str, message: str, hint: str | None = None) -> TfgraphError:
        """An error about a key."""
        return TfgraphError(f"{key}: {message}", self.place(key), hint)

    def need(self, key: str, supported: tuple[Any, ...]) -> None:
        """Raise unless a key, where there is one, has one of these values."""
        value = self.data.get(key, supported[0])
        if value not in supported or isinstance(value, bool) != isinstance(supported[0], bool):
            expected = json.dumps(supported[0])
            raise self.error(key, f"{_shown(value)} is not supported, expected {expected}")

    def read(self, key: Key) -> int | float | str:
        """The value of a key in the model file's terms. Raises TfgraphError at its place."""
        value: Any = self.data.get(key.theirs, key.default)
        if value is None:
            raise TfgraphError(f"{key.theirs} is missing", Location(str(self.path)))
        if key.kind == "activation":
            if not isinstance(value, str) or value not in ACTIVATIONS:
                known = nearest(str(value), ACTIVATIONS) or f"known: {', '.join(ACTIVATIONS)}"
                raise self.error(key.theirs, f"unknown activation {_shown(value)}", known)
            return ACTIVATIONS[value]
        if key.kind == "number":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value):
                raise self.error(key.theirs, f"expected a number, got {_shown(value)}")
            return cast("int | float", value)
        least = 0 if key.kind == "id" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(
                key.theirs, f"expected an integer from {least} on, got {_shown(value)}"
            )
        return value

    def labels(self) -> int:
        """The number of classes of a classifier."""
        names = self.data.get("id2label")
        if isinstance(names, dict) and names:
            return len(cast("dict[str, Any]", names))
        number: Any = self.data.get("num_labels", 2)
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise self.error("num_labels", f"expected an integer from 1 on, got {_shown(number)}")
        return number


def read_config(folder: Path, name: str = "config.json") -> Config:
    """Read a folder's config.json, or another such file. Raises TfgraphError for one that is
    missing or not an object."""
    path = folder / name
    where = Location(str(path))
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TfgraphError(f"{name} has more than {MAX_BYTES} bytes", where)
        text = path.read_text("utf-8")
        data: Any = json.loads(text)
    except FileNotFoundError as cause:
        raise TfgraphError(
            f"{folder} has no {name}",
            hint="expected a folder that transformers saved: config.json and model.safetensors",
        ) from cause
    except OSError as cause:
        raise TfgraphError(f"cannot read {name}: {cause.strerror}", where) from cause
    except json.JSONDecodeError as cause:
        place = Location(str(path), cause.lineno, cause.colno)
        raise TfgraphError(f"not JSON: {cause.msg}", place) from cause
    except (ValueError, RecursionError) as cause:  # not UTF-8, an absurd number, too deep
        raise TfgraphError(f"not JSON: {cause}", where) from cause
    if not isinstance(data, dict):
        raise TfgraphError(f"{name} is not an object", where)
    return Config(path, text, cast("dict[str, Any]", data))


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
