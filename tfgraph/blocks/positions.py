"""Positions inside attention: rotary tables, ALiBi slopes, the table of relative buckets.

Tables and slopes are made of constants alone, in float64, and rounded once to the model's dtype: a
compiling backend computes them when it makes an artifact. May import: basic, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log, pi
from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.basic import labelled, require_size
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Exact, Fill, as_dim, exact
from tfgraph.ir import dtype as dtype_of

if TYPE_CHECKING:
    from tfgraph.ir import DimLike, ExactLike
    from tfgraph.ops import Array, Traced


@dataclass(frozen=True)
class Rotary:
    """What turns queries and keys: cos and sin [length, size/2], or [batch, length, size/2].

    A sequence of more than `original` tokens has the tables `beyond`, where there are such.
    """

    cos: Traced
    sin: Traced
    interleaved: bool = False
    beyond: Rotary | None = None
    original: int = 0

    def rows(self, length: DimLike, offset: DimLike = 0) -> Rotary:
        """Those of positions offset to offset + length - 1, of tables with a row a position."""
        start, stop = as_dim(offset), as_dim(offset) + as_dim(length)
        rows = self.cos.shape[0]
        if rows.is_const and stop.is_const and int(stop) > int(rows):
            raise TfgraphError(f"{length} positions from {start} on, but the tables have {rows}")
        cos, sin = (ops.slice_(t, axis=0, start=start, stop=stop) for t in (self.cos, self.sin))
        if self.beyond is not None:
            last = ops.slice_(ops.iota(length=stop), axis=0, start=stop - 1, stop=stop)
            long, is_long = self.beyond.rows(length, offset), ops.less(self.original - 1, last)
            cos, sin = ops.where(is_long, long.cos, cos), ops.where(is_long, long.sin, sin)
        return Rotary(cast("Traced", cos), cast("Traced", sin), self.interleaved)

    def at(self, positions: Array) -> Rotary:
        """Those of integer positions [batch, length], of tables with a row a position: of sequences
        that are not beyond the original length."""
        cos, sin = (ops.embedding(positions, t) for t in (self.cos, self.sin))
        return Rotary(cast("Traced", cos), cast("Traced", sin), self.interleaved)

    def turn(self, x: Array, heads: int) -> Array:
        """x [batch, length, heads*d] with each head turned by the angles of its position."""
        return ops.rotary(x, self.cos, self.sin, heads=heads, interleaved=self.interleaved)


@dataclass(frozen=True)
class LinearScaling:
    """Positions in steps of 1/factor: angles of factor times the length. Chen et al. 2023."""

    factor: ExactLike

    def apply(self, frequencies: Array, base: ExactLike) -> Array:
        """The frequencies [size/2], divided by the factor."""
        return ops.mul(frequencies, Exact(1 / _rational("factor", self.factor)))


@dataclass(frozen=True)
class Llama3Scaling:
    """Frequencies that turn less than `low` times in the `original` length are divided by `factor`,
    those that turn more than `high` times stay, and between them it is linear. Llama 3.1, 2024."""

    factor: ExactLike
    original: int
    low: ExactLike = 1
    high: ExactLike = 4

    def apply(self, frequencies: Array, base: ExactLike) -> Array:
        """The frequencies [size/2] in radians a position, scaled."""
        factor, low, high = _band(self)
        turns = ops.mul(frequencies, exact(self.original / (2 * pi)))
        kept = ops.mul(ops.sub(turns, Exact(low)), Exact(1 / (high - low)))
        kept = ops.minimum(ops.maximum(kept, 0), 1)
        divided = ops.mul(ops.sub(1, kept), Exact(1 / factor))
        return ops.mul(frequencies, ops.add(kept, divided))


@dataclass(frozen=True)
class YarnScaling:
    """Frequencies that turn less than `low` times in the `original` length are divided by `factor`,
    those that turn more than `high` times stay, and between the two it is linear in the number of
    the pair; with `truncate` from a whole number to a whole number. Cosines and sines are
    multiplied by `magnitude`, by default 0.1 ln(factor) + 1. Peng et al. 2023 (YaRN)."""

    factor: ExactLike
    original: int
    low: ExactLike = 1
    high: ExactLike = 32
    truncate: bool = True
    magnitude: ExactLike | None = None

    @property
    def grown(self) -> Exact:
        """By what cosines and sines are multiplied."""
        if self.magnitude is not None:
            return exact(self.magnitude)
        return exact(max(1.0, 0.1 * log(_rational("factor", self.factor)) + 1))

    def pair(self, turns: Fraction, size: int, base: Fraction) -> float:
        """The number i of the pair, no whole one, that turns so many times in the original length:
        original base^(-2i/size) = 2 pi turns."""
        if base <= 1:
            raise TfgraphError(f"base is {base}, expected more than 1")
        return size * log(self.original / (float(turns) * 2 * pi)) / (2 * log(base))

    def apply(self, frequencies: Array, base: ExactLike) -> Array:
        """The frequencies [size/2] in radians a position, scaled."""
        factor, low, high = _band(self)
        pairs = int(frequencies.shape[0])
        first, last = (self.pair(n, 2 * pairs, _rational("base", base)) for n in (high, low))
        if self.truncate:
            first, last = floor(first), ceil(last)
        first, last = max(first, 0), min(last, 2 * pairs - 1)
        slope = exact(1 / (last - first)) if last != first else 1000
        divided = ops.minimum(
            ops.maximum(ops.mul(ops.sub(counted(pairs), exact(first)), slope), 0), 1
        )
        kept = ops.sub(1, divided)
        return ops.mul(frequencies, ops.add(kept, ops.mul(divided, Exact(1 / factor))))


@dataclass(frozen=True)
class LongScaling:
    """Frequencies [size/2] each divided by its own factor: of `short` up to the `original` length,
    of `long` beyond it. Cosines and sines are multiplied by `magnitude`. Ding et al. 2024
    (LongRoPE)."""

    short: tuple[ExactLike, ...]
    long: tuple[ExactLike, ...]
    original: int
    magnitude: ExactLike = 1

    def divided(self, frequencies: Array, factors: tuple[ExactLike, ...]) -> Array:
        """The frequencies, each divided by its factor."""
        if int(frequencies.shape[0]) != len(factors):
            raise TfgraphError(f"{len(factors)} factors for {frequencies.shape[0]} frequencies")
        inverse = [
            ops.full(shape=(1,), value=Exact(1 / _rational("factor", f)), dtype=DType.float64)
            for f in factors
        ]
        return ops.mul(frequencies, ops.concat(*inverse, axis=0))


Scaling = LinearScaling | Llama3Scaling | YarnScaling | LongScaling


def rotary_tables(
    size: int,
    *,
    positions: int,
    base: ExactLike = 10000,
    scaling: Scaling | None = None,
    interleaved: bool = False,
    dtype: str | DType = "f32",
    name: str = "positions",
) -> Rotary:
    """cos(p f_i) and sin(p f_i), f_i = base^(-2i/size), of positions p: [positions, size/2] each.

    `size` is how many elements of a head are turned, an even number. Su et al. 2021, section 3.2.2.
    """
    require_size(f"{name}: the number of positions", positions)
    require_size(f"{name}: the rotary size", size)
    if size % 2:
        raise TfgraphError(f"{name}: the rotary size is {size}, expected an even number")
    if _rational(f"{name}: base", base) < 1:
        raise TfgraphError(f"{name}: base is {base}, expected at least 1")
    exponents = ops.mul(counted(size // 2), Exact(Fraction(-2, size)))
    frequencies = ops.pow_(base, exponents)
    kind = dtype_of(dtype)
    if isinstance(scaling, LongScaling):
        require_size("original", scaling.original)
        short, long = (scaling.divided(frequencies, f) for f in (scaling.short, scaling.long))
        cos, sin = _turns(short, positions, kind, name, scaling.magnitude)
        further = _turns(long, positions, kind, f"{name}.long", scaling.magnitude)
        return Rotary(cos, sin, interleaved, Rotary(*further, interleaved), scaling.original)
    grown = scaling.grown if isinstance(scaling, YarnScaling) else 1
    if scaling is not None:
        frequencies = scaling.apply(frequencies, base)
    return Rotary(*_turns(frequencies, positions, kind, name, grown), interleaved)


def _turns(
    frequencies: Array, positions: int, dtype: DType, name: str, magnitude: ExactLike = 1
) -> tuple[Traced, Traced]:
    """cos and sin of positions times frequencies, by a magnitude: [positions, size/2] each."""
    steps = ops.reshape(counted(positions), shape=(positions, 1))
    angles = labelled(ops.mul(steps, frequencies), f"{name}.angles")
    made: list[Traced] = []
    for part, of in (("cos", ops.cos), ("sin", ops.sin)):
        y = of(angles) if exact(magnitude) == exact(1) else ops.mul(of(angles), magnitude)
        made.append(labelled(ops.cast(y, dtype=dtype), f"{name}.{part}"))
    return made[0], made[1]


def alibi_slopes(
    heads: int, *, scale: ExactLike = 1, dtype: str | DType = "f32", name: str = "positions.slopes"
) -> Traced:
    """The slope of each head, for the mask `alibi`: 2^(-8i/m) for i = 1 to m, where m is the
    largest power of two that is at most `heads`; behind them every second one of 2m heads; all of
    them times `scale`. Press et al. 2022, and their implementation."""
    require_size(f"{name}: heads", heads)
    main = 1 << (heads.bit_length() - 1)
    slopes = ops.pow_(2, ops.mul(ops.add(counted(main), 1), Exact(Fraction(-8, main))))
    if heads > main:
        odd = ops.add(ops.mul(counted(heads - main), 2), 1)
        more = ops.pow_(2, ops.mul(odd, Exact(Fraction(-4, main))))
        slopes = ops.concat(slopes, more, axis=0)
    if exact(scale) != exact(1):
        slopes = ops.mul(slopes, scale)
    return labelled(ops.cast(slopes, dtype=dtype_of(dtype)), name)


def relative_table(
    heads: int, *, buckets: int = 32, dtype: str | DType = "f32", name: str = "positions.table"
) -> Traced:
    """The parameter [buckets, heads] of the mask `relative`, which the layers of a stack share.
    Raffel et al. 2020, section 2.1."""
    require_size(f"{name}: heads", heads)
    require_size(f"{name}: buckets", buckets)
    builder = ops.current()
    return builder.param(builder.unique(name), dtype, buckets, heads, fill=Fill("normal", exact(1)))


def counted(count: int) -> Array:
    """0, 1, ..., count - 1 in float64."""
    return ops.cast(ops.iota(length=count), dtype=DType.float64)


def _band(scaling: Llama3Scaling | YarnScaling) -> tuple[Fraction, Fraction, Fraction]:
    """The factor, and between how many turns in the original length it comes in. Raises
    TfgraphError for turns that are none."""
    factor, low, high = (
        _rational(name, getattr(scaling, name)) for name in ("factor", "low", "high")
    )
    require_size("original", scaling.original)
    if not low < high:
        raise TfgraphError(f"low is {low}, expected less than high, {high}")
    return factor, low, high


def _rational(what: str, value: ExactLike) -> Fraction:
    """The number, which must be a positive rational."""
    number = exact(value)
    if number.calls or number.factor <= 0:
        raise TfgraphError(f"{what} is {number}, expected a positive rational")
    return number.factor
