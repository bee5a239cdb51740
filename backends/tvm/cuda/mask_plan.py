"""All masks and biases of one attention together: their arguments, and their joint answers.

May import: tvm, kernel, mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import Kernel, both, either
from tfgraph.backends.tvm.cuda.mask import Bias, Expr, Mask, Operands, Pair, Parameter, Rows, Tile


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
        names = [o for term in self.terms for o in term.offsets if isinstance(o, str)]
        return tuple(dict.fromkeys(names))


class BoundPlan:
    """A plan whose arguments are declared in a kernel: the answers of all its terms together."""

    def __init__(self, kernel: Kernel, plan: MaskPlan, sizes: Mapping[str, Any]) -> None:
        """Declare the arguments; `sizes` has batch, heads, queries and keys."""
        self._keys = sizes["keys"]
        arrays = []
        for number, parameter in enumerate(plan.parameters):
            shape = [sizes[s] if isinstance(s, str) else s for s in parameter.shape]
            arrays.append(kernel.buffer(f"{parameter.name}{number}", shape, parameter.dtype))
        scalars = {name: kernel.scalar(name) for name in plan.scalars}
        bound: list[tuple[Any, Operands]] = []
        for term in plan.terms:
            count = len(term.parameters)
            bound.append((term, Operands(arrays[:count], scalars)))
            arrays = arrays[count:]
        self._biases = [(term, own) for term, own in bound if isinstance(term, Bias)]
        masks = [(term, own) for term, own in bound if isinstance(term, Mask)]
        self._masks = masks
        self._by_key = [(mask, own) for mask, own in masks if mask.key_only]
        self._by_pair = [(mask, own) for mask, own in masks if not mask.key_only]

    @property
    def selects_pairs(self) -> bool:
        """Whether any mask may hide a key from one query and show it to another."""
        return bool(self._by_pair)

    @property
    def reads_pairs(self) -> bool:
        """Whether `pair_allowed` or `biased` look at the pair."""
        return bool(self._by_pair or self._biases)

    def key_range(self, rows: Rows) -> tuple[Expr, Expr]:
        """No row sees a key outside first .. end - 1; end may be less than first."""
        first: Expr = tirx.const(0, "int64")
        end: Expr = self._keys
        for mask, own in self._masks:
            low, high = mask.first_key(rows, own), mask.end_key(rows, own)
            first = first if low is None else tirx.max(first, low)
            end = end if high is None else tirx.min(end, high)
        return first, end

    def key_allowed(self, pair: Pair) -> Expr:
        """Whether the key-only masks allow the key."""
        return both(pair.inside, *(mask.allowed(pair, own) for mask, own in self._by_key))

    def cuts(self, tile: Tile) -> Expr:
        """Whether single pairs of the tile may be masked; for plans that select pairs."""
        return either(*(mask.cuts(tile, own) for mask, own in self._by_pair))

    def pair_allowed(self, pair: Pair) -> list[Expr]:
        """The conditions that the other masks put on the pair."""
        return [mask.allowed(pair, own) for mask, own in self._by_pair]

    def biased(self, score: Expr, pair: Pair) -> Expr:
        """The score with all biases added."""
        for bias, own in self._biases:
            score = score + bias.value(pair, own)
        return score
