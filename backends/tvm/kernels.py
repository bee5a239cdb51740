"""What a target's kernels offer to the emitters: the same operations, however they are made.

May import: attention_mask, attention_plan, generic, ir.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfgraph.backends.tvm.attention_mask import Mask
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.generic import NOTHING, Inner
from tfgraph.ir import Node

NDArray = np.ndarray[Any, Any]
PrimFunc = Any


@dataclass(frozen=True)
class AttentionShape:
    """The static sizes of an attention kernel.

    `heads` query heads of `width` numbers, of which each run of heads / kv_heads shares a key and
    value head; values have `value_width` numbers. `q_pitch`, `k_pitch` and `v_pitch` are the
    widths of the arrays that hold them, the offsets where in a row they start: so the three may be
    windows of one array. All are of `dtype`, as is the result.
    """

    heads: int
    kv_heads: int
    width: int
    value_width: int
    q_pitch: int
    k_pitch: int
    v_pitch: int
    q_offset: int = 0
    k_offset: int = 0
    v_offset: int = 0
    dtype: str = "float32"


@dataclass(frozen=True)
class LinearShape:
    """What a GEMM computes: activation(x w + bias) * gate, those parts that are asked for.

    The weight is [k, n]; the gate has the shape of the result. All are of `dtype`.
    """

    k: int
    n: int
    bias: bool = False
    activation: str | None = None
    gate: bool = False
    dtype: str = "float32"


@dataclass(frozen=True)
class NormShape:
    """What a norm kernel computes on rows of `width` numbers; None: known when it runs.

    x = a, plus a row `shift` if asked, plus b if `add`. `kind` "layer": (x - mean(x)) /
    sqrt(var(x) + eps), Ba et al. (arXiv 1607.06450); "rms": x / sqrt(mean(x^2) + eps), Zhang &
    Sennrich (arXiv 1910.07467). Then times a row `scale` and plus a row `bias`, if present. With
    `keep_sum` x is the first result. All arrays are of `dtype`.
    """

    kind: str
    width: int | None
    eps: float
    add: bool = False
    shift: bool = False
    scale: bool = True
    bias: bool = True
    keep_sum: bool = False
    dtype: str = "float32"


@dataclass(frozen=True)
class Columns:
    """Where rows are: columns `offset` .. `offset + width - 1` of an array of `pitch` columns."""

    width: int
    pitch: int
    offset: int


@dataclass(frozen=True)
class TurnShape:
    """How queries and keys are turned, as in `rotary`: 2 `half` numbers of each head, in pairs.
    With `by_entry` each entry of the batch has angles of its own."""

    queries: Columns
    heads: int
    kv_heads: int
    half: int
    interleaved: bool
    by_entry: bool


@dataclass(frozen=True)
class AppendShape:
    """What a kernel puts into caches: the new rows of each. With a `turn` those of the first are
    turned before, and the kernel turns queries besides. All arrays are of `dtype`."""

    rows: tuple[Columns, ...]
    turn: TurnShape | None = None
    dtype: str = "float32"


class Kernels(ABC):
    """The kernels of one target, of the float types that `base.FLOATS` has for it. Shapes are
    numbers and names of symbols; equal names are equal."""

    target: str

    @abstractmethod
    def generic(self, node: Node, inner: Inner = NOTHING) -> PrimFunc:
        """An op that has no kernel of its own, and the nodes that this computes besides."""

    @abstractmethod
    def packed(self, k: int, n: int, dtype: str = "float32") -> tuple[str, tuple[int, ...]]:
        """The name and shape of the layout in which `linear` reads a weight [k, n]."""

    @abstractmethod
    def pack(self, weight: NDArray) -> NDArray:
        """A weight [k, n] in that layout."""

    @abstractmethod
    def linear(self, name: str, shape: LinearShape) -> PrimFunc:
        """x (m, k), the packed weight, bias (n,), gate (m, n), those that are asked for, then the
        result (m, n)."""

    @abstractmethod
    def matmul(
        self,
        a: Sequence[int | str],
        b: Sequence[int | str],
        *,
        skip_zeros: bool,
        dtype: str = "float32",
    ) -> PrimFunc:
        """The product of two activations of these shapes and that type: a, b, the result. With
        `skip_zeros` a 0 in `a` takes nothing from what it meets in `b`, be that NaN or infinite."""

    @abstractmethod
    def norm(self, name: str, shape: NormShape) -> PrimFunc:
        """A norm of rows: a, b (m, width), scale, bias, shift (width,), those that are asked for,
        then the results."""

    @abstractmethod
    def softmax(self, width: int | None, dtype: str = "float32") -> PrimFunc:
        """A softmax of rows (m, width): x, the result. None: a symbolic width."""

    @abstractmethod
    def attention(
        self, shape: AttentionShape, plan: MaskPlan, scale: float, softcap: float | None
    ) -> PrimFunc:
        """Attention: q (batch, s, q_pitch), k (batch, t, k_pitch), v (batch, t, v_pitch), the
        arrays of the plan, its scalars, the result (batch, s, heads * value_width)."""

    @abstractmethod
    def append(self, name: str, shape: AppendShape) -> PrimFunc:
        """Rows at .. at + seq - 1 of each cache (batch, capacity, width) become columns of what is
        added: the caches, what is added to each (batch, seq, pitch); with a turn the array of the
        queries (batch, seq, pitch), cos and sin (seq, half), or (batch, seq, half) by entry; at, an
        int64; with a turn the result, turned queries (batch, seq, width)."""

    @abstractmethod
    def key_mask(self, low: Any, keep: Any) -> tuple[Mask, list[Any]]:
        """A mask of real keys [batch, t]: its term in the plan, and the arrays of that."""
