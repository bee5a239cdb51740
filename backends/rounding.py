"""How a backend's kernels round: what each declares, and error bounds are made of.

A kernel is bounded by the body of its op, primitive by primitive. What the body cannot say stands
here: in which order the kernel adds, how good its functions are, and where it takes more roundings
than the body. May import: the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""u, the largest relative error of one rounding to nearest, by dtype (IEEE 754; bfloat16 has eight
significant bits)."""

TF32 = 2.0**-11
"""The same of tf32, float32 with eleven significant bits."""

SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""The smallest positive number of a dtype: twice the error of a rounding near 0."""

LARGEST = {"float64": 2.0**1023, "float32": 2.0**127, "float16": 2.0**15, "bfloat16": 2.0**127}
"""A power of 2 near the largest number of a dtype: what is above may become infinite."""

Depth = Callable[[int], float]
"""The depth of a summation tree over so many terms: how many roundings a term passes through."""


def one_by_one(n: int) -> float:
    """The depth where terms are added one after another. No order is deeper."""
    return n


@dataclass(frozen=True)
class Accuracy:
    """The error of a function f, in units u of its dtype: relative * |f(x)| + absolute
    + argument * |x f'(x)|, the last for an argument that is itself rounded."""

    relative: float = 1.0
    absolute: float = 0.0
    argument: float = 0.0


_USUAL = {name: Accuracy(1) for name in ("sqrt", "floor")}
_UNKNOWN = Accuracy(8)  # 4 ulp: what math libraries for accelerators document at worst


@dataclass(frozen=True)
class Rounding:
    """How one kernel rounds; what is left out is the worst case of any kernel.

    `factors`: by what share of itself each factor of a `matmul` may be rounded before.
    `matmul`, `weighted_sum`: the depth of a product's sum; `along`, `across`: of a sum along the
    last axis and along another. `steps`: how many roundings a primitive stands for, 1 if it is not
    named. `flush`: results below it may become 0. `arithmetic`: the dtype in which it computes,
    where that is another than the graph's, to which it rounds once at the end.
    """

    factors: float = 0.0
    matmul: Depth = one_by_one
    weighted_sum: Depth = one_by_one
    along: Depth = one_by_one
    across: Depth = one_by_one
    functions: Mapping[str, Accuracy] = field(default_factory=dict[str, Accuracy])
    steps: Mapping[str, int] = field(default_factory=dict[str, int])
    flush: float = 0.0
    arithmetic: str | None = None

    def accuracy(self, function: str) -> Accuracy:
        """That of a function."""
        return self.functions.get(function) or _USUAL.get(function, _UNKNOWN)
