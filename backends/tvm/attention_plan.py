"""All masks and biases of one attention together, and their arguments in a kernel.

May import: tvm, attention_mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.attention_mask import Bias, Expr, Mask, Operands, Parameter


@dataclass(frozen=True)
class MaskPlan:
    """All `masks` must allow a pair; all `biases` are added to its score."""

    masks: tuple[Mask, ...] = ()
    biases: tuple[Bias, ...] = ()

    @property
    def terms(self) -> tuple[Mask | Bias, ...]:
        """The masks, then the biases: the order of their arguments."""
        return (*self.masks, *self.biases)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arrays of all masks, then of all biases, each in the order given."""
        return tuple(parameter for term in self.terms for parameter in term.parameters)

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the int64 arguments, each once, in order of first use."""
        return tuple(dict.fromkeys(t.offset for t in self.terms if isinstance(t.offset, str)))


class BoundPlan:
    """A plan whose arguments are declared in a kernel: each term with its operands."""

    def __init__(
        self,
        plan: MaskPlan,
        sizes: Mapping[str, Any],
        array: Callable[[str, Sequence[Any], str], Any],
        scalar: Callable[[str], Expr],
    ) -> None:
        """Declare the arguments, the arrays by `array(name, shape, dtype)`, then the scalars.

        `sizes` has batch, heads, queries and keys.
        """
        # A size of its own: Relax could not tell that a given sum is queries + keys - 1.
        sizes = {**sizes, "distances": tirx.Var("distances", "int64")}
        arrays = [
            array(p.name, [sizes[n] if isinstance(n, str) else n for n in p.shape], p.dtype)
            for p in plan.parameters
        ]
        scalars = {name: scalar(name) for name in plan.scalars}
        self.masks: list[tuple[Mask, Operands]] = []
        self.biases: list[tuple[Bias, Operands]] = []
        for term in plan.terms:
            count = len(term.parameters)
            own, arrays = arrays[:count], arrays[count:]
            operands = Operands(own, scalars, sizes["queries"])
            if isinstance(term, Mask):
                self.masks.append((term, operands))
            else:
                self.biases.append((term, operands))
