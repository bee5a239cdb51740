"""What a manifest must hold, so that all who use one may rely on it.

A manifest that holds its own hash may still say anything: it may come from a program that is wrong,
or from someone who means harm. Keys that are not listed here are left alone. May import: format,
sizes, tensors, the standard library, errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tfgraph.runtime.format import CUDA_SOURCE
from tfgraph.runtime.sizes import evaluate
from tfgraph.runtime.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    Object = Mapping[str, Any]


@dataclass(frozen=True)
class Each:
    """An object of any keys, each value of one form."""

    form: Form


Form: TypeAlias = "type | Mapping[str, Form] | list[Form] | tuple[Form, ...] | Each | None"
"""A type, an object with these keys (`key?` may be absent), a list of one form, one of several
forms, an object of any keys, or null."""

SIZE = (int, str)
RULE: Form = ([int], int, None)
PORT: Mapping[str, Form] = {
    "name": str,
    "dtype": str,
    "shape": [SIZE],
    "generator?": str,
    "limit?": (*SIZE, None),
    "least?": (*SIZE, None),
    "attention?": bool,
}
FUNCTION: Mapping[str, Form] = {
    "inputs": [PORT],
    "outputs": [PORT],
    "symbols": Each({"min": int, "max": int, "example": int}),
    "constraints": [str],
    "scalars": [str],
    "weights": [{"name": str, "dtype": str, "shape": [int]}],
    "memory?": SIZE,
    "storages?": [SIZE],
    "launches?": [{"kernel": str, "into?": [int], "value?": str, "flops?": SIZE, "bytes?": SIZE}],
}
MANIFEST: Mapping[str, Form] = {
    **FUNCTION,
    "name": str,
    "target": str,
    "arch?": (str, None),
    "cpu?": {"mcpu": str, "features": [str]},
    "cuda?": {
        "kernels": int,
        "launches": int,
        "tf32?": bool,
        "images?": [{"file": str, "kind": str, "arch": str, "cuda": str}],
        "usage?": Each(Each(Each(int))),
    },
    "files": Each(str),
    "functions?": Each(FUNCTION),
    "generation?": (
        {"start?": RULE, "stop?": [int], "suppress?": [int], "suppress_first?": [int]},
        None,
    ),
    "no_generation?": (str, None),
    "verification?": {
        "ok": (bool, None),
        "reason": (str, None),
        "against": (str, None),
        "dims": [Each(int)],
    },
    "tools": Each(str),
    "command": ([str], None),
}


def problem(manifest: Object) -> str | None:
    """What is wrong with a manifest, if anything is."""
    return next(_problems(manifest), None)


def _problems(manifest: Object) -> Iterator[str]:
    misfit = _misfit(manifest, MANIFEST, "")
    if misfit is not None:
        yield misfit
        return
    for name in manifest["files"]:
        if not _is_inside(name):
            yield f'"files" lists {name!r}, which is not in the folder'
    target = manifest["target"]
    if target in ("cpu", "cuda") and target not in manifest:
        yield f"{target}: missing"
    if target == "cuda" and CUDA_SOURCE not in manifest["files"]:
        yield f'"files" lists no {CUDA_SOURCE}'
    for image in manifest.get("cuda", {}).get("images", ()):
        if image["file"] not in manifest["files"]:
            yield f'"files" lists no {image["file"]!r}, which is an image'
        if not re.fullmatch(r"sm_\d{2,3}", image["arch"]):
            yield f"cuda.images: {image['arch']!r} is no architecture"
        if not re.fullmatch(r"\d{1,3}\.\d{1,3}", image["cuda"]):
            yield f"cuda.images: {image['cuda']!r} is no version of CUDA"
    yield from _of_function(manifest, "")
    for name, function in manifest.get("functions", {}).items():
        yield from _of_function(function, f"functions.{name}.")


def _of_function(entry: Object, where: str) -> Iterator[str]:
    """Sizes can be calculated, and are those of arrays."""
    sizes: dict[str, int] = {}
    for name, s in entry["symbols"].items():
        if not 1 <= s["min"] <= s["example"] <= s["max"]:
            yield f"{where}symbols.{name}: no range with an example in it"
        sizes[name] = s["example"]
    ports = [(f"{where}{key}", port) for key in ("inputs", "outputs") for port in entry[key]]
    for key, port in ports:
        if port["dtype"] not in {*DTYPES.values(), "bfloat16"}:
            yield f"{key}: {port['name']!r} is {port['dtype']!r}, which is no type of arrays"
        for dim in port["shape"]:
            if (_value(dim, sizes) or 0) < 1:
                yield f"{key}: {port['name']!r} has {dim!r}, which is no size"
        for bound in (port.get("limit"), port.get("least")):
            if bound is not None and _value(bound, sizes) is None:
                yield f"{key}: {port['name']!r} has {bound!r}, which is no bound"
    for text in entry["constraints"]:
        sides = text.split("<=" if "<=" in text else "==")
        if len(sides) != 2 or any(_value(side.strip(), sizes) is None for side in sides):
            yield f"{where}constraints: {text!r} is none"
    if _value(entry.get("memory", 0), sizes) is None:
        yield f"{where}memory: {entry['memory']!r} is no size"
    storages = entry.get("storages", ())
    for dim in storages:
        if _value(dim, sizes) is None:
            yield f"{where}storages: {dim!r} is no size"
    for launch in entry.get("launches", ()):
        if any(not 0 <= i < len(storages) for i in launch.get("into", ())):
            yield f"{where}launches: {launch['kernel']!r} writes into no storage"
        if any(_value(launch.get(key, 0), sizes) is None for key in ("flops", "bytes")):
            yield f"{where}launches: {launch['kernel']!r} does no amount of work"
    for name in entry["scalars"]:
        if name not in sizes:
            yield f"{where}scalars: {name!r} is no symbol"


def _value(dim: int | str, sizes: Mapping[str, int]) -> int | None:
    """A dimension at the example sizes; None for what is none."""
    try:
        return evaluate(dim, sizes)
    except (LookupError, ValueError, TypeError, ArithmeticError, SyntaxError):
        return None
    except (RecursionError, MemoryError):  # of Python's parser, for what is nested too deeply
        return None


def _misfit(value: Any, form: Form, where: str) -> str | None:
    """The first place at which a value is not of its form."""
    wrong = f"{where or 'it'}: expected {_words(form)}"
    if isinstance(form, tuple):
        return None if any(_misfit(value, one, where) is None for one in form) else wrong
    if form is None:
        return None if value is None else wrong
    if isinstance(form, type):
        return None if type(value) is form else wrong  # true is no integer
    if isinstance(form, list):
        if not isinstance(value, list):
            return wrong
        items = enumerate(cast("list[Any]", value))
        return _first(_misfit(item, form[0], f"{where}[{i}]") for i, item in items)
    if not isinstance(value, dict):
        return wrong
    given, before = cast("dict[str, Any]", value), f"{where}." if where else ""
    if isinstance(form, Each):
        return _first(_misfit(item, form.form, before + key) for key, item in given.items())
    for key, inner in form.items():
        name = key.removesuffix("?")
        if name not in given:
            if key == name:
                return f"{before}{name}: missing"
            continue
        found = _misfit(given[name], inner, before + name)
        if found is not None:
            return found
    return None


def _first(found: Iterator[str | None]) -> str | None:
    return next((one for one in found if one is not None), None)


def _words(form: Form) -> str:
    if isinstance(form, tuple):
        return " or ".join(map(_words, form))
    if isinstance(form, list):
        return "a list"
    if form is None:
        return "null"
    if isinstance(form, type):
        return {str: "a text", int: "an integer", bool: "true or false"}[form]
    return "an object"


def _is_inside(name: str) -> bool:
    """Whether it is the path of a file that can't lead out of the folder where it starts."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name
