"""config.json with the place of each key, and its values in the model file's terms.

May import: runtime.files, errors.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.runtime.files import read_text

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
class Key:
    """A key of config.json and the key of the model file that it becomes, dots for nesting.

    `theirs` may be several spellings, "rope_parameters.rope_theta|rope_theta", of which the first
    that has a value counts. Without a `default`, config.json must have it, unless it is `optional`
    and then left out; with both, it is left out where config.json says null.

    The kinds: a size from 1 on, an id from 0 on, a number, a flag (true or false), an activation by
    its name, a distance (how many tokens a window holds, the query's own among them).
    """

    theirs: str
    ours: str
    default: int | float | str | bool | None = None
    kind: Literal["size", "id", "number", "activation", "flag", "distance"] = "size"
    optional: bool = False


@dataclass(frozen=True)
class Config:
    """The object in a config.json."""

    path: Path
    text: str
    data: dict[str, Any]

    def place(self, key: str) -> Location:
        """Where the value of a key (the last of a path) stands; the file, if it has no such key."""
        key = key.rpartition(".")[2]
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
        if not any(
            value == s and isinstance(value, bool) == isinstance(s, bool) for s in supported
        ):
            expected = json.dumps(supported[0])
            raise self.error(key, f"{_shown(value)} is not supported, expected {expected}")

    def get(self, path: str, default: Any = None) -> Any:
        """The value at a path with dots, or the first of several with `|` between them that is
        there and not null."""
        for spelling in path.split("|"):
            value: Any = self.data
            for part in spelling.split("."):
                inner = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
                value = inner.get(part)
            if value is not None:
                return value
        return default

    def spelling(self, path: str) -> str:
        """Which of several spellings the file has."""
        return next((s for s in path.split("|") if self.get(s) is not None), path.split("|")[0])

    def read(self, key: Key) -> int | float | str | bool | None:
        """The value of a key in the model file's terms; None for one that is optional and absent.
        Raises TfgraphError at its place."""
        name = self.spelling(key.theirs)
        null = key.optional and name in self.data
        value: Any = self.get(key.theirs, None if null else key.default)
        if value is None and not key.optional:
            raise TfgraphError(f"{name} is missing", Location(str(self.path)))
        return None if value is None else self.checked(name, value, key.kind)

    def checked(self, name: str, value: Any, kind: str) -> int | float | str | bool:
        """A value of that kind in the model file's terms."""
        if kind == "activation":
            if not isinstance(value, str) or value not in ACTIVATIONS:
                known = nearest(str(value), ACTIVATIONS) or f"known: {', '.join(ACTIVATIONS)}"
                raise self.error(name, f"unknown activation {_shown(value)}", known)
            return ACTIVATIONS[value]
        if kind == "flag":
            if not isinstance(value, bool):
                raise self.error(name, f"expected true or false, got {_shown(value)}")
            return value
        if kind == "number":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value):
                raise self.error(name, f"expected a number, got {_shown(value)}")
            found = cast("int | float", value)
            return int(found) if isinstance(found, float) and found.is_integer() else found
        least = 0 if kind == "id" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(name, f"expected an integer from {least} on, got {_shown(value)}")
        return value - 1 if kind == "distance" else value

    def number(self, path: str, default: float | None = None, kind: str = "number") -> Any:
        """The checked value at a path, for what is derived from several keys."""
        return self.read(Key(path, "", default, cast("Any", kind)))

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
        text = read_text(path, MAX_BYTES)
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
