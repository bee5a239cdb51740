"""What Python and NumPy offer but a value of a graph cannot do: it has no numbers yet.

Without these, `if x:` would be true of every value, and NumPy would say that it does not know the
type. May import: define, operands, place, errors.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NoReturn

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ops.define import REGISTRY
from tfgraph.ops.operands import not_a_tensor
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


# What else NumPy and PyTorch call what an op does.
_METHODS = {
    "T": "transpose",
    "mT": "transpose",
    "permute": "transpose",
    "view": "reshape",
    "astype": "cast",
    "to": "cast",
    "expand": "broadcast_to",
}


class Misuse(TfgraphError):
    """A value of a graph is used as what it is not: a mistake in the code that does so."""


class NoAttribute(Misuse, AttributeError):
    """A value of a graph has no such attribute: to Python, which may only ask, too."""


class Refuse:
    """Errors that say what to write instead."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        found = REGISTRY.get(_METHODS.get(name, _OURS.get(name, name)))
        if name == "ndim":
            hint: str | None = "len(x.shape)"
        elif found is not None:
            hint = f"tfgraph.ops.{found.body.__name__} is its op"
        else:
            hint = nearest(name, (*REGISTRY, "shape", "dtype", "type"))
        raise NoAttribute(f"a value of a graph has no attribute '{name}'", user_location(), hint)

    def __iter__(self) -> NoReturn:
        raise _error("a value of a graph cannot be iterated over", _PARTS)

    def __len__(self) -> NoReturn:
        raise _error("a value of a graph has no len()", "x.shape holds its sizes")

    def __float__(self) -> NoReturn:
        raise _error("a value of a graph is no number: it has no numbers yet", _RUN)

    __int__ = __complex__ = __index__ = __float__

    def __floordiv__(self, other: object) -> NoReturn:
        raise _error("// is not an op", "tfgraph.ops.floor(a / b), of floats")

    __rfloordiv__ = __floordiv__

    def __mod__(self, other: object) -> NoReturn:
        raise _error("% is not an op", "a - b * tfgraph.ops.floor(a / b), of floats")

    __rmod__ = __mod__

    def __and__(self, other: object) -> NoReturn:
        raise _error("& is not an op", "tfgraph.ops.logical_and(a, b), of bools; & joins masks")

    __rand__ = __and__

    def __or__(self, other: object) -> NoReturn:
        raise _error("| is not an op", "tfgraph.ops.logical_or(a, b), of bools")

    __ror__ = __or__

    def __xor__(self, other: object) -> NoReturn:
        raise _error("^ is not an op", "a ** b is a power")

    __rxor__ = __xor__

    def __pos__(self) -> NoReturn:
        raise _error("+x is not an op", "x is the same")

    def __invert__(self) -> NoReturn:
        raise _error("~ is not an op", "tfgraph.ops.logical_not(x), of a bool")

    def __lshift__(self, other: object) -> NoReturn:
        raise _error("<< and >> are not ops", "multiply by a power of two")

    __rshift__ = __rlshift__ = __rrshift__ = __lshift__

    def __divmod__(self, other: object) -> NoReturn:
        raise _error("divmod is not an op", "tfgraph.ops.floor(a / b), of floats")

    __rdivmod__ = __divmod__

    def __rmatmul__(self, other: object) -> NoReturn:
        found = not_a_tensor(other, "matmul: an operand")
        raise Misuse(found.message, user_location(), found.hint)

    def __round__(self, *_: object) -> NoReturn:
        raise _error("round is not an op", "tfgraph.ops.floor(x + 0.5)")

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise _error("a value of a graph cannot be changed", "tfgraph.ops.where or concat make one")

    def __contains__(self, item: object) -> NoReturn:
        raise _error("in asks for numbers, which a value of a graph does not have yet", _RUN)

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
        raise _error("a value of a graph has no []", _PARTS)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise _error(
            "a value of a graph is no array: it has no numbers yet",
            _RUN,
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: object) -> Any:
        """A NumPy function: an operator with a number on the left, or refused."""
        name = _REFLECTED.get(ufunc.__name__)
        if name and method == "__call__" and len(inputs) == 2 and inputs[1] is self:
            return getattr(self, name)(inputs[0])
        raise _numpy(ufunc.__name__)

    def __array_function__(self, function: Any, *_: object) -> NoReturn:
        raise _numpy(function.__name__)


_PARTS = "tfgraph.ops.slice_(x, axis=0, start=0, stop=1) or tfgraph.ops.take(x, indices)"
_RUN = "compile the graph and run it: tfgraph.compile(g.build())(x=array)"
_EQUAL = "tfgraph.ops.equal(a, b) compares each element"


def _numpy(name: str) -> TfgraphError:
    found = REGISTRY.get(_OURS.get(name, name))
    hint = "use the ops of tfgraph.ops, or run the graph first"
    if name == "equal":
        hint = _EQUAL
    elif found is not None:
        hint = f"tfgraph.ops.{found.body.__name__} is its op"
    return _error(f"numpy.{name} cannot compute with a value of a graph: it has no numbers", hint)


def _error(message: str, hint: str) -> Misuse:
    return Misuse(message, user_location(), hint)
