"""What names, sizes and constants of a graph may be: what the text can hold, so that whatever is
built can be printed and read back, and what the element types can hold.

Garbage must cost no more than its length, so sizes and constants are small; real models come
nowhere near the limits. Errors bear no place: the caller knows it. May import: dim, exact, types,
graph, errors.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isfinite, prod
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir.dim import Dim, Extremum, FloorDiv
from tfgraph.ir.exact import Exact
from tfgraph.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir.graph import Constraint, Fill, Symbol

LARGEST_SIZE = 2**40
MOST_ELEMENTS = 2**56  # kernels count bytes in 64 bits, a little more of them than there are
LONGEST_NAME = 480  # of those that users give; passes add `~number`
HIGHEST_RANK = 32
MOST_TERMS, MOST_FACTORS, MOST_ARGUMENTS, DEEPEST_DIM = 32, 16, 32, 5
MOST_EXPANDED = 1000  # terms of the product of a shape's sizes
MOST_BITS = 3000  # of a constant's numerator and denominator
# Arguments of every call of a compiled graph, beside the inputs.
NOT_INPUTS = ("dims", "out")
# The bits of a float type's significand, the leading one included, and its largest exponent.
_FLOATS = {
    DType.float64: (53, 1024),
    DType.float32: (24, 128),
    DType.float16: (11, 16),
    DType.bfloat16: (8, 128),
}
# The argument that a generator takes, and whether it may be left out.
_FILLS = {
    "normal": ("a number", True),
    "ones": ("a number", True),
    "zeros": (None, True),
    "ids": ("an integer of at least 1", False),
    "prefix": (None, True),
    "lengths": ("a size", False),
    "sinusoidal": (None, True),
    "sinusoidal_halves": (None, True),
    "state": (None, True),
}


def check_name(name: str, what: str) -> None:
    """Raise where a name is longer than the text takes; `what` it names."""
    if len(name) > LONGEST_NAME:
        raise TfgraphError(
            f"{what}: a name of {len(name)} characters, at most {LONGEST_NAME}: '{name[:40]}...'"
        )


def check_input_name(name: str) -> None:
    """Raise where an input could not be given to a call by its name."""
    check_name(name, "input")
    if name in NOT_INPUTS:
        raise TfgraphError(
            f"an input cannot be called '{name}', as an argument of every call is",
            hint="rename it",
        )


def check_symbol(symbol: Symbol) -> None:
    """Raise unless the range of a symbol holds its example, and sizes of at least 1 alone."""
    name, low, high = symbol.name, symbol.low, symbol.high
    if low < 1:
        raise TfgraphError(f"symbol {name}: the lowest size is {low}: sizes are at least 1")
    if low > high:
        raise TfgraphError(f"symbol {name}: the lowest size, {low}, is above the highest, {high}")
    if not low <= symbol.default <= high:
        raise TfgraphError(
            f"symbol {name}: the example {symbol.default} is not from {low} to {high}"
        )
    if high > LARGEST_SIZE:
        raise TfgraphError(f"symbol {name}: the highest size is above {LARGEST_SIZE}")


def check_relation(constraint: Constraint) -> None:
    """Raise unless a constraint has a relation that is checked, between legal sizes."""
    if constraint.relation not in ("==", "<="):
        raise TfgraphError(f"constraint {constraint}: the relation is not == or <=")
    check_dims((constraint.left, constraint.right))


@lru_cache(maxsize=4096)  # a deep model has few sizes, each in thousands of nodes
def check_dim(value: Dim) -> None:
    """Raise where a size has too many parts, or absurd ones."""
    if any(abs(coefficient) > LARGEST_SIZE for _, coefficient in value.terms):
        raise TfgraphError(f"a size above {LARGEST_SIZE}")
    powers = [sum(power for _, power in monomial) for monomial, _ in value.terms]
    if len(value.terms) > MOST_TERMS or max(powers, default=0) > MOST_FACTORS:
        raise TfgraphError("a size with too many terms")
    if _depth(value) > DEEPEST_DIM:
        raise TfgraphError("a size with too many divisions inside one another")
    for atom in (atom for monomial, _ in value.terms for atom, _ in monomial):
        if isinstance(atom, Extremum) and len(atom.args) > MOST_ARGUMENTS:
            raise TfgraphError(f"{atom.kind} of {len(atom.args)} sizes: at most {MOST_ARGUMENTS}")
        if not isinstance(atom, str):
            for part in atom.parts:
                check_dim(part)


def _depth(value: Dim) -> int:
    """How deep floor divisions, minima and maxima stand inside one another."""
    inner = [
        part
        for monomial, _ in value.terms
        for atom, _ in monomial
        if isinstance(atom, FloorDiv | Extremum)
        for part in atom.parts
    ]
    return 1 + max(map(_depth, inner)) if inner else 0


def check_dims(sizes: Sequence[Dim]) -> None:
    """Raise where one of the sizes is absurd, or there are too many."""
    if len(sizes) > HIGHEST_RANK:
        raise TfgraphError(f"{len(sizes)} sizes: at most {HIGHEST_RANK}")
    for size in sizes:
        check_dim(size)
    if prod(max(1, len(size.terms)) for size in sizes) > MOST_EXPANDED:
        raise TfgraphError("sizes with too many terms")


def check_shape(shape: Sequence[Dim]) -> None:
    """Raise where a tensor of that shape is empty for certain, or its sizes, or how many elements
    they make, are absurd."""
    check_dims(shape)
    for size in shape:
        if size.is_const and int(size) < 1:
            shown = ",".join(map(str, shape))
            raise TfgraphError(f"a size of {size} in [{shown}]: sizes are at least 1")
    if prod(max(abs(c) for _, c in size.terms) for size in shape) > MOST_ELEMENTS:
        shown = ",".join(map(str, shape))
        raise TfgraphError(f"more than {MOST_ELEMENTS} elements: [{shown}]")


def check_constant(value: Exact) -> None:
    """Raise where a constant is beyond float64, or has too many digits."""
    bits = max(value.factor.numerator.bit_length(), value.factor.denominator.bit_length())
    try:
        fine = bits <= MOST_BITS and len(value.calls) < MOST_FACTORS and isfinite(float(value))
    except (ArithmeticError, ValueError):
        fine = False
    if not fine:
        raise TfgraphError("the number is out of the range of float64")


def check_fits(value: Exact, dtype: DType) -> None:
    """Raise unless the element type holds the constant: an integer in the range of an integer type;
    a number that a float type does not round to infinity (it may round to 0)."""
    if dtype.is_float:
        if not _is_finite(value, dtype):
            raise TfgraphError(
                f"{value} does not fit {dtype}",
                hint=f"the largest {dtype} is {largest(dtype):.8g}",
            )
        return
    if not value.is_integer:
        raise TfgraphError(
            f"{value} is not an integer, but {dtype} holds them", hint="cast(x, dtype=...)"
        )
    low, high = _range(dtype)
    if not low <= value.factor <= high:
        raise TfgraphError(f"{value} does not fit {dtype}", hint=f"{dtype} holds {low} to {high}")


def _range(dtype: DType) -> tuple[int, int]:
    """The lowest and the highest number of an integer type, or of bool."""
    if dtype == DType.bool_:
        return 0, 1
    if dtype == DType.uint8:
        return 0, 255
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def largest(dtype: DType) -> float:
    """The largest number of a float type."""
    digits, exponent = _FLOATS[dtype]
    return (2.0 - 2.0 ** (1 - digits)) * 2.0 ** (exponent - 1)


def _is_finite(value: Exact, dtype: DType) -> bool:
    """Whether the type rounds the number, to nearest, to a finite one."""
    digits, exponent = _FLOATS[dtype]
    beyond: int = 2**exponent - 2 ** (exponent - digits - 1)  # half a step above the largest
    if not value.calls:
        return abs(value.factor) < beyond
    try:
        return abs(float(value)) < beyond
    except ArithmeticError:
        return False


def is_normal(value: Exact, dtype: DType) -> bool:
    """Whether a float type holds the number as a normal one: it neither overflows nor becomes 0,
    nor loses digits."""
    _, exponent = _FLOATS[dtype]
    try:
        size = abs(value.factor) if not value.calls else abs(float(value))
    except ArithmeticError:
        return False
    return size >= Fraction(2) ** (2 - exponent) and _is_finite(value, dtype)


def rounds_to_zero(value: Exact, dtype: DType) -> bool:
    """Whether kernels of a float type, which compute in float32 at least, take the number for 0."""
    digits, exponent = max(_FLOATS[dtype], _FLOATS[DType.float32])
    size = Fraction(float(value)) if value.calls else abs(value.factor)
    return 0 < abs(size) <= Fraction(2) ** (2 - exponent - digits)  # half of the least number


def check_fill_kind(kind: str) -> None:
    """Raise for a generator that there is not."""
    if kind not in _FILLS:
        hint = nearest(kind, _FILLS) or f"one of {', '.join(_FILLS)}"
        raise TfgraphError(f"unknown generator '{kind}'", hint=hint)


def check_fill(fill: Fill) -> None:
    """Raise for a generator that there is not, or whose argument it does not take."""
    check_fill_kind(fill.kind)
    expected, optional = _FILLS[fill.kind]
    given = fill.argument
    if given is None:
        if not optional:
            raise TfgraphError(f"{fill.kind}(): expected {expected}")
        return
    if expected is None:
        raise TfgraphError(f"{fill}: {fill.kind} takes no argument")
    if isinstance(given, Exact):
        check_constant(given)
    fits = {
        "a number": isinstance(given, Exact),
        "an integer of at least 1": isinstance(given, Exact)
        and given.is_integer
        and given.factor >= 1,
        "a size": isinstance(given, Dim) and not (given.is_const and int(given) < 1),
    }
    if not fits[expected]:
        raise TfgraphError(f"{fill}: expected {expected}")
    if isinstance(given, Dim):
        check_dim(given)
