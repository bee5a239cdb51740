"""What a schema does not say of an op, and a well-conditioned graph needs: how large its result is.

May import: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Guard = Callable[..., float | None]


def same_size(*sizes: float) -> float | None:
    """The size of a result that is no larger than the operands."""
    return max(sizes)


def _at_most(limit: float, result: float | None = None) -> Guard:
    def guard(*sizes: float) -> float | None:
        return (max(sizes) if result is None else result) if max(sizes) <= limit else None

    return guard


def _sum(more: float) -> Guard:
    """Sizes that add up, as those of a product's factors do."""
    return lambda *sizes: sum(sizes) + more


def _largest(more: float) -> Guard:
    """A little more than the largest operand."""
    return lambda *sizes: max(sizes) + more


def _never(*sizes: float) -> float | None:
    return None


GUARDS: dict[str, Guard] = {
    "add": _largest(0.3),
    "sub": _largest(0.3),
    "mul": lambda *sizes: sum(max(x, 0.0) for x in sizes) + 0.5,
    "div": _never,  # by what may be near 0; the blocks divide by what is not
    "pow": _never,
    "exp": _at_most(0.7, 2.2),
    "log": _never,
    "sqrt": _never,
    "sin": _at_most(2.0, 0.0),
    "cos": _at_most(2.0, 0.0),
    "tanh": _at_most(2.0, 0.0),
    "erf": _at_most(2.0, 0.0),
    "sigmoid": _at_most(2.0, 0.0),
    "relu2": lambda *sizes: 2 * max(sizes[0], 0.0),
    "gelu_tanh": _at_most(3.0),
    "sum": _largest(2.0),
    "cumsum": _largest(2.0),
    "matmul": _sum(2.0),
    "weighted_sum": _sum(2.0),
    "linear": lambda *sizes: sum(sizes[:2]) + 1.5,
    "linear_activation": lambda *sizes: sum(sizes[:2]) + 1.5 if sum(sizes[:2]) <= 1.4 else None,
    "gated_linear": lambda *sizes: sum(sizes[:2]) + 1.5 + max(sizes[2], 0.0),
    "softmax": _at_most(1.4, 0.0),
    "layer_norm": _at_most(6.0, 1.2),
    "rms_norm": _at_most(6.0, 1.2),
    "add_layer_norm": _largest(1.2),
    "add_rms_norm": _largest(1.2),
    "attention": _never,  # blocks draw it, and ids that fit their table
    "embedding": _never,
    "embedding_sum": _never,
    "iota": lambda *sizes: 3.0,
    "cast": _at_most(1.9),
}
"""The size of a result, as a power of ten, from those of the operands; None where the op would be
ill-conditioned, or is left to the blocks. Other ops are of the size of their operands."""

JUMPS = {"less", "equal", "floor", "topk", "empty", "cast"}
"""Ops that read only values that every backend has with the same bits: a rounding error would
turn one answer into another."""

SAME_BITS = {
    *("reshape", "transpose", "broadcast_to", "concat", "slice", "take", "take_at", "embedding"),
    *("where", "neg", "abs", "maximum", "minimum", "relu", "max", "floor", "cast", "iota"),
    *("full", "topk", "constant"),
}
"""Ops whose results have the same bits on every backend, if their operands do."""
