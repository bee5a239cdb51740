"""What Python and NumPy offer but a value of a graph cannot do: it has no numbers yet.

Without these, `if x:` would be true of every value, and NumPy would say that it does not know the
type. May import: define, place, errors.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NoReturn

from tfgraph.errors import TfgraphError
from tfgraph.ops.define import REGISTRY
from tfgraph.ops.place import user_location

# NumPy's names where ours differ.
_OURS = {
    "absolute": "abs",
    "concatenate": "concat",
    "divide": "div",
    "multiply": "mul",
    "negative": "neg",
    "power": "pow",
    "subtract": "sub",
}
# The operators of a NumPy scalar or array on the left arrive as functions.
_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "power": "__rpow__",
    "less": "__gt__",
    "greater": "__lt__",
}


class Refuse:
    """Errors that say what to write instead."""

    def __bool__(self) -> NoReturn:
        raise _error(
            "a value of a graph is neither true nor false: it has no numbers yet",
            "tfgraph.ops.where(condition, yes, no) chooses for each element",
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Refuse):
            return self is other
        if isinstance(other, int | float | Fraction) or hasattr(other, "__array__"):
            raise _error("== is not an op: values of a graph are compared by identity", _EQUAL)
        return NotImplemented

    __hash__ = object.__hash__

    def __le__(self, other: object) -> NoReturn:
        raise _error("<= is not an op", "logical_or(less(a, b), equal(a, b)), of tfgraph.ops")

    def __ge__(self, other: object) -> NoReturn:
        raise _error(">= is not an op", "logical_or(less(b, a), equal(a, b)), of tfgraph.ops")

    def __getitem__(self, index: object) -> NoReturn:
        raise _error(
            "a value of a graph has no []",
            "tfgraph.ops.slice_(x, axis=0, start=0, stop=1) or tfgraph.ops.take(x, indices)",
        )

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise _error(
            "a value of a graph is no array: it has no numbers yet",
            "compile the graph and run it: tfgraph.compile(g.build())(x=array)",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: object) -> Any:
        """A NumPy function: an operator with a number on the left, or refused."""
        name = _REFLECTED.get(ufunc.__name__)
        if name and method == "__call__" and len(inputs) == 2 and inputs[1] is self:
            return getattr(self, name)(inputs[0])
        raise _numpy(ufunc.__name__)

    def __array_function__(self, function: Any, *_: object) -> NoReturn:
        raise _numpy(function.__name__)


_EQUAL = "tfgraph.ops.equal(a, b) compares each element"


def _numpy(name: str) -> TfgraphError:
    found = REGISTRY.get(_OURS.get(name, name))
    hint = "use the ops of tfgraph.ops, or run the graph first"
    if name == "equal":
        hint = _EQUAL
    elif found is not None:
        hint = f"tfgraph.ops.{found.body.__name__} is its op"
    return _error(f"numpy.{name} cannot compute with a value of a graph: it has no numbers", hint)


def _error(message: str, hint: str) -> TfgraphError:
    return TfgraphError(message, user_location(), hint)
