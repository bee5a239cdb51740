"""What stands where an operand should: for the messages about it. May import: array, ir, errors."""

from __future__ import annotations

import inspect
from numbers import Number
from typing import Any

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Exact, Mask, Value
from tfgraph.ir.mask import KINDS
from tfgraph.ops.array import Array


class Refused(TfgraphError):
    """An op does not take these operands, or not with these attributes."""


def shown(given: Any) -> str:
    """What a user gave, in words."""
    if isinstance(given, Mask):
        return f"the mask {type(given).__name__.lower()}"
    if isinstance(given, Array | Value):
        return f"a tensor {given.type}"
    if isinstance(given, str):
        return f"'{given}'"
    if inspect.isroutine(given):
        return f"the function {given.__name__}"
    kind = type(given).__name__
    return f"{'an' if kind[0] in 'aeio' or kind == 'ndarray' else 'a'} {kind}"


def not_a_tensor(given: Any, what: str) -> TfgraphError:
    """The error for what is no value of the graph where one should be; it is called `what`."""
    hint = None
    if hasattr(given, "__array__") or isinstance(given, list | tuple | Number | Exact):
        hint = (
            "make it an input, given when the model runs, or a weight: g.param(...), and "
            "weights={...} when it is compiled"
        )
    return Refused(f"{what} is {shown(given)}, expected a value of the graph", hint=hint)


def require_mask(what: str, given: Any) -> None:
    """Raise TfgraphError, which calls the operand `what`, unless it is a mask."""
    if isinstance(given, Mask):
        return
    name = given.__name__ if inspect.isroutine(given) else given if isinstance(given, str) else ""
    if name in KINDS:
        hint = f"call it: {name}()" if name in ("causal", "window") else f"call it: {name}(tensor)"
    elif isinstance(given, str):
        hint = nearest(given, KINDS) or f"tfgraph has {', '.join(KINDS)}"
    else:
        hint = "causal(), or padding(t), dense(t) or bias(t) of a tensor"
    raise Refused(f"{what} is {shown(given)}, expected a mask", hint=hint)
