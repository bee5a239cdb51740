"""A graph under construction, and the pool of values from which operands are drawn.

Graphs are well-conditioned by construction: the fuzzer looks for kernels that are wrong, and where
a float type itself cannot give the answer, nothing can be told. Each value has an upper bound of
its size, as a power of ten. May import: ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.fuzz.inputs import FILLS
from tfgraph.ir import DType, Fill, exact
from tfgraph.ops import graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.fuzz.swarm import Swarm
    from tfgraph.ir import DimLike, Value
    from tfgraph.ops import Array, Builder, Traced

NORMAL = 1.3
"""The size of values that a norm or a linear of normed values leaves."""

_FILLS = ("normal", "zeros", "constant", "offset", "large", "small", "whole")
_WEIGHTS = np.array([6, 1, 1, 2, 1, 1, 1]) / 13


@dataclass(frozen=True)
class Entry:
    """A value in the pool: its size as a power of ten; whether every backend has the same bits, and
    whether it is known to be finite."""

    x: Traced
    size: float
    same: bool
    finite: bool = True


@dataclass
class Draft:
    """The graph so far. `dtype` is the one of its floats; `odd` are values that may hold NaN."""

    rng: np.random.Generator
    swarm: Swarm
    dtype: DType = DType.float32
    builder: Builder = field(default_factory=lambda: graph("fuzz"))
    pool: list[Entry] = field(default_factory=list[Entry])
    fills: dict[str, tuple[str, Any]] = field(default_factory=dict[str, tuple[str, Any]])
    odd: set[Value] = field(default_factory=set["Value"])
    weights: list[Value] = field(default_factory=list["Value"])

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return bool(self.rng.random() < probability)

    def pick(self, *choices: Any) -> Any:
        """One of the choices, each as often."""
        return choices[int(self.rng.integers(len(choices)))]

    def width(self, *others: int) -> int:
        """The family's width, or as often one of the others; now and then an odd one."""
        return int(
            self.pick(self.swarm.width, *others) if self.chance(0.95) else self.pick(1, 3, 33)
        )

    def heads(self, *allowed: tuple[int, int]) -> tuple[int, int]:
        """One of the family's numbers of heads, of queries and of keys; of those allowed, if any
        are named."""
        fit = [pair for pair in self.swarm.heads if not allowed or pair in allowed]
        heads, kv_heads = self.pick(*(fit or allowed))
        return int(heads), int(kv_heads)

    def floats(self, *shape: DimLike, kind: str | None = None, argument: Any = None) -> Entry:
        """A new input of floats in the pool, filled in any ordinary way or as `kind` says."""
        chosen = str(self.rng.choice(_FILLS, p=_WEIGHTS)) if kind is None else kind
        return self.input(self.dtype, *shape, kind=chosen, argument=argument)

    def input(self, dtype: str | DType, *shape: DimLike, kind: str, argument: Any = None) -> Entry:
        """A new input in the pool."""
        name = f"x{len(self.fills)}"
        x = self.builder.input(name, dtype, *shape)
        self.fills[name] = kind, argument
        # Whether NaN is more or less than something is nobody's business.
        if kind in ("special", "edges"):
            self.odd.add(x.value)
        return self.add(x, FILLS.get(kind, 2.0), same=kind != "special")

    def param(self, *shape: int, kind: str = "normal", std: float = 0.5) -> Entry:
        """A new weight in the pool."""
        fill = Fill(kind, exact(std) if kind == "normal" else None)
        x = self.builder.param(f"w{len(self.weights)}", self.dtype, *shape, fill=fill)
        self.weights.append(x.value)
        return self.add(x, 0.5, same=True)

    def add(self, x: Array, size: float, same: bool = False) -> Entry:
        """Put a value into the pool."""
        value = cast("Traced", x)
        for node in self.builder.nodes:
            if self.odd.intersection(node.inputs):
                self.odd.update(node.outputs)
        entry = Entry(value, size, same, value.value not in self.odd)
        self.pool.append(entry)
        return entry

    def draw(self, wanted: Callable[[Entry], bool] = lambda entry: True) -> Entry | None:
        """A value of the pool, rather a recent one; None if none is wanted."""
        found = [entry for entry in self.pool if wanted(entry)]
        if not found:
            return None
        return found[-1 - int(len(found) * self.rng.random() ** 2)]

    def size_of(self, x: Traced) -> float:
        """The size of a value, 0.7 (a normal one's) for a value that a block made."""
        return next((e.size for e in self.pool if e.x.value == x.value), 0.7)
