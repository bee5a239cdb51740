"""What the annotations of an op's parameters say, and how an attribute is read by its own.

They may be strings or classes, with the names of modules or without: `Array | ExactLike`, `float`,
`Sequence[DimLike] | None`. A graph keeps the number of a `float` exact, as that of an `ExactLike`;
the body of the op gets the first as a number of Python. May import: ir.
"""

from __future__ import annotations

import functools
import inspect
import re
from fractions import Fraction
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin

from tfgraph.ir import Dim, DimLike, DType, Exact, ExactLike, as_dim, dtype, exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfgraph.ir import Attr

R = TypeVar("R")

ATTRIBUTES = ("bool", "int", "float", "str", "DType", "DimLike", "ExactLike")
OPERANDS = ("Array", "ExactLike", "Mask")
NUMBERS = int | float | Fraction | Exact
_UNIONS = {"ExactLike": get_args(ExactLike), "DimLike": get_args(DimLike)}
_SEQUENCE = re.compile(r"(?:Sequence|tuple|list)\[(.*?)(?:, ?\.\.\.)?\]")


def spelled(annotation: Any) -> str:
    """The annotation as text without modules: `ExactLike | None`; "" where there is none."""
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        plain = re.sub(r"[A-Za-z_][\w.]*\.(?=[A-Za-z_])", "", annotation.strip("'\" "))
        return re.sub(r"Optional\[(.*)\]", r"\1 | None", plain)
    if annotation in (None, NoneType):
        return "None"
    origin, parts = get_origin(annotation), list(get_args(annotation))
    if origin in (Union, UnionType):
        names: list[str] = []
        for name, members in _UNIONS.items():
            if all(member in parts for member in members):
                names.append(name)
                parts = [part for part in parts if part not in members]
        return " | ".join([*names, *map(spelled, parts)])
    if origin is not None:
        inner = ", ".join("..." if part is ... else spelled(part) for part in parts)
        return f"{origin.__name__}[{inner}]"
    return str(getattr(annotation, "__name__", annotation))


@functools.cache
def alternatives(annotation: str) -> tuple[str, ...]:
    """`Sequence[int | str] | None` -> `Sequence[int | str]` and `None`."""
    return tuple(part.strip() for part in re.split(r"\|(?![^\[]*\])", annotation))


@functools.cache
def _item(annotation: str) -> str | None:
    """`Sequence[int | str] | None` -> `int | str`; None where no alternative is a sequence."""
    found = (_SEQUENCE.fullmatch(part) for part in alternatives(annotation))
    return next((match[1] for match in found if match), None)


def is_known(annotation: str, names: Iterable[str]) -> bool:
    """Whether all alternatives are of these names, None, or for attributes sequences of them."""
    for part in alternatives(annotation):
        inner = _SEQUENCE.fullmatch(part)
        if inner is None or names is OPERANDS:
            if part not in (*names, "None"):
                return False
        elif not is_known(inner[1], names):
            return False
    return True


def normal(value: Any, annotation: str) -> Attr:
    """An attribute's value in normal form. Raises TypeError where the annotation does not allow it,
    and ValueError or TfgraphError where it is no size, dtype or finite number."""
    kinds = alternatives(annotation)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # NumPy's numbers
    if value is None and "None" in kinds:
        return None
    inner = _item(annotation)
    if inner is not None and isinstance(value, list | tuple):
        return tuple(normal(item, inner) for item in cast("list[Any]", value))
    if isinstance(value, bool):  # before int, of which it is one
        if "bool" in kinds:
            return value
    elif "DimLike" in kinds and isinstance(value, int | str | Dim):
        return as_dim(value)
    elif ("ExactLike" in kinds or "float" in kinds) and isinstance(value, NUMBERS):
        return exact(value)
    elif "DType" in kinds and isinstance(value, str | DType):
        return dtype(value)
    elif ("int" in kinds and isinstance(value, int)) or ("str" in kinds and isinstance(value, str)):
        return value
    shown = re.sub(r"\b(ExactLike|float)\b", "a number", annotation)
    raise TypeError(f"expected {shown}, got {value!r}")


def with_floats(function: Callable[..., R], annotations: dict[str, str]) -> Callable[..., R]:
    """The function called with numbers of Python for the attributes annotated `float`; itself where
    there are none."""
    floats = [name for name, text in annotations.items() if re.search(r"\bfloat\b", text)]
    if not floats:
        return function

    @functools.wraps(function)
    def call(*operands: Any, **attrs: Any) -> R:
        return function(*operands, **attrs | {n: _floats(attrs[n]) for n in floats if n in attrs})

    return call


def _floats(attr: Any) -> Any:
    if isinstance(attr, tuple):
        return tuple(_floats(item) for item in cast("tuple[Any, ...]", attr))
    return float(attr) if isinstance(attr, Exact) else attr
