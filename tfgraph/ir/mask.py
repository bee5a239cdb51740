"""Masks and biases as values: what a mask is, not yet what it does (that is `ops.masking`).

A mask is a frozen dataclass with structure. Its tensors are operands of the op that applies it.
True means *may attend*. `a & b` allows what both allow; biases join the same way and are added.
May import: dim, errors.

    causal()                      query i sees keys j <= i
    causal(past)                  query i stands at position past + i
    window(left=128)              keys at most 128 before, any after unless right says so
    padding(t)                    t: i64[batch] lengths, or bool/int[batch, keys], nonzero is real
    prefix(lengths)               keys j < lengths[b] are seen by all queries, the rest causally
    segments(ids)                 only keys of the same segment
    dense(t)                      any bool tensor that broadcasts to [batch, heads, query, key]
    bias(t)                       a tensor added to the scores
    alibi(slopes)                 slopes[head] * (j - position of the query), added to the scores
    relative(table)               a learned number for each head and bucket of distances, added
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NoReturn

from tfgraph.errors import TfgraphError
from tfgraph.ir.dim import Dim, as_dim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.ir.dim import DimLike

SENTINEL = -1e4
"""Constants up to this one, added to a score, hide it: e^-10000 is 0 in every float type."""
FARTHEST_BUCKET = 128
"""From this distance on T5 tells no distances apart, where nothing else is said."""

# A mask's tensors are IR values in a graph, traced values in the DSL, arrays in an evaluator.
Tensor = Any


@dataclass(frozen=True)
class Mask:
    """Base of all masks and biases; `&` joins them."""

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TfgraphError(
                f"{self} & a {type(other).__name__}: both must be masks",
                hint="dense(t) makes a mask of a bool tensor",
            )
        return All(self.parts + other.parts)

    def __or__(self, other: object) -> Mask:
        raise TfgraphError(f"{self} | ...: masks only intersect, with &", hint=_ONLY_AND)

    def __bool__(self) -> NoReturn:
        raise TfgraphError(f"{self} and ...: masks intersect with &", hint=_ONLY_AND)

    def __invert__(self) -> Mask:
        raise TfgraphError(f"~{self}: masks only intersect, with &", hint=_ONLY_AND)

    @property
    def parts(self) -> tuple[Mask, ...]:
        """The masks and biases that are applied together, in order."""
        return (self,)

    def tensors(self) -> Iterator[Tensor]:
        """The operands, in the order of the text."""
        for item in fields(self):
            if item.metadata.get("tensor"):
                yield getattr(self, item.name)

    def map(self, f: Callable[[Tensor], Tensor], dims: Callable[[Dim], Dim] = lambda d: d) -> Mask:
        """The same structure with `f` of each tensor and `dims` of each dimension."""
        changes: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.metadata.get("tensor"):
                changes[item.name] = f(value)
            elif isinstance(value, Dim):
                changes[item.name] = dims(value)
        return replace(self, **changes)

    def dims(self) -> Iterator[Dim]:
        """The dimensions among the fields."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Dim):
                yield value

    def __str__(self) -> str:
        return render_mask(self, str)


_ONLY_AND = "dense(t) takes any bool tensor, such as one made with tfgraph.ops.logical_or"


def _tensor() -> Any:
    return field(metadata={"tensor": True})


@dataclass(frozen=True)
class Causal(Mask):
    """Query i, at position offset + i, sees keys j <= offset + i. `offset` None: lengths agree."""

    offset: Dim | None = None


@dataclass(frozen=True)
class Window(Mask):
    """Keys from `left` before to `right` after the query's position; None is unbounded."""

    left: Dim | None = None
    right: Dim | None = None
    offset: Dim | None = None


@dataclass(frozen=True)
class Padding(Mask):
    """Keys that are real: lengths [batch] (j < length), or a keep mask [batch, keys]."""

    keep: Tensor = _tensor()


@dataclass(frozen=True)
class Prefix(Mask):
    """Keys j < length[batch] are seen by every query, later keys causally."""

    length: Tensor = _tensor()
    offset: Dim | None = None


@dataclass(frozen=True)
class Segments(Mask):
    """Queries see keys of the same segment: ids [batch, query] and [batch, key]."""

    query: Tensor = _tensor()
    key: Tensor = _tensor()


@dataclass(frozen=True)
class Dense(Mask):
    """Any bool tensor that broadcasts to the scores."""

    allowed: Tensor = _tensor()


@dataclass(frozen=True)
class Bias(Mask):
    """A tensor that broadcasts to the scores and is added to them."""

    values: Tensor = _tensor()


@dataclass(frozen=True)
class Alibi(Mask):
    """Adds slopes[head] * (key position - query position): a penalty for keys before the query, as
    in the causal models of Press et al. 2022. Later keys, unless a mask hides them, gain."""

    slopes: Tensor = _tensor()
    offset: Dim | None = None


@dataclass(frozen=True)
class Relative(Mask):
    """Adds table[bucket(key position - query position), head]; see `bucket_bounds` for buckets.
    Raffel et al. 2020 (T5), with no limit to one direction unless `bidirectional` is false."""

    table: Tensor = _tensor()
    max_distance: Dim = field(default=as_dim(FARTHEST_BUCKET))
    bidirectional: bool = True
    offset: Dim | None = None


def bucket_bounds(buckets: int, max_distance: int) -> list[int]:
    """The least distance of each bucket but the first, for distances on one side.

    Half of the buckets hold one distance each; the others grow by a constant factor up to
    `max_distance`, beyond which all is in the last: bucket e + k starts at the least n with
    (n / e)^g >= (max_distance / e)^k, where e = buckets // 2 and g = buckets - e.
    """
    exact, grown = buckets // 2, buckets - buckets // 2
    bounds = list(range(1, exact + 1))
    for k in range(1, grown):
        goal = max_distance**k * exact ** (grown - k)
        bounds.append(bisect_left(range(max_distance), goal, key=lambda n: n**grown))
    return bounds


@dataclass(frozen=True)
class All(Mask):
    """The intersection of masks; biases among them add up."""

    items: tuple[Mask, ...]

    @property
    def parts(self) -> tuple[Mask, ...]:
        """The members, flat."""
        return self.items

    def tensors(self) -> Iterator[Tensor]:
        """The operands of the members, in order."""
        for item in self.items:
            yield from item.tensors()

    def map(self, f: Callable[[Tensor], Tensor], dims: Callable[[Dim], Dim] = lambda d: d) -> Mask:
        """`map` of each member."""
        return All(tuple(item.map(f, dims) for item in self.items))

    def dims(self) -> Iterator[Dim]:
        """The dimensions of the members."""
        for item in self.items:
            yield from item.dims()


KINDS: dict[str, type[Mask]] = {
    "causal": Causal,
    "window": Window,
    "padding": Padding,
    "prefix": Prefix,
    "segments": Segments,
    "dense": Dense,
    "bias": Bias,
    "alibi": Alibi,
    "relative": Relative,
}
_NAMES = {cls: name for name, cls in KINDS.items()}


def causal(offset: DimLike | None = None) -> Mask:
    """Query i sees keys j <= offset + i."""
    return Causal(_dim(offset, "causal: offset"))


def window(
    left: DimLike | None = None, right: DimLike | None = None, offset: DimLike | None = None
) -> Mask:
    """Keys within `left` before and `right` after the query, itself included."""
    return Window(
        _dim(left, "window: left"), _dim(right, "window: right"), _dim(offset, "window: offset")
    )


def padding(keep: Tensor) -> Mask:
    """Keys that are real; `keep` is lengths [batch] or a 0/1 mask [batch, keys]."""
    return Padding(keep)


def prefix(length: Tensor, offset: DimLike | None = None) -> Mask:
    """A prefix of length[batch] keys seen by all, the rest causally."""
    return Prefix(length, _dim(offset, "prefix: offset"))


def segments(query: Tensor, key: Tensor | None = None) -> Mask:
    """Only keys whose segment id equals the query's; `key` is `query` unless given."""
    return Segments(query, query if key is None else key)


def dense(allowed: Tensor) -> Mask:
    """A bool tensor; True may attend."""
    return Dense(allowed)


def bias(values: Tensor) -> Mask:
    """A tensor added to the scores."""
    return Bias(values)


def alibi(slopes: Tensor, offset: DimLike | None = None) -> Mask:
    """slopes[head] * (key position - query position), added: for causal models, see `Alibi`."""
    return Alibi(slopes, _dim(offset, "alibi: offset"))


def relative(
    table: Tensor,
    max_distance: DimLike = FARTHEST_BUCKET,
    *,
    bidirectional: bool = True,
    offset: DimLike | None = None,
) -> Mask:
    """A learned number for each head and bucket of distances; table [buckets, heads].

    Where not `bidirectional`, keys after the query share the bucket of distance 0, and all buckets
    serve keys before it; else half of the buckets serve each side.
    """
    distance = _dim(max_distance, "relative: max_distance")
    assert distance is not None
    return Relative(table, distance, bidirectional, _dim(offset, "relative: offset"))


def render_mask(mask: Mask, show: Callable[[Tensor], str]) -> str:
    """The mask as the textual IR writes it, `show` printing a tensor."""
    if isinstance(mask, All):
        return " & ".join(render_mask(item, show) for item in mask.items)
    shown: list[str] = []
    for item in fields(mask):
        value = getattr(mask, item.name)
        if item.metadata.get("tensor"):
            shown.append(show(value))
        elif value != item.default:
            shown.append(f"{item.name}={str(value).lower() if value is False else value}")
    return f"{_NAMES[type(mask)]}({', '.join(shown)})"


def _dim(value: DimLike | None, what: str) -> Dim | None:
    """The dimension; errors name the mask and its argument."""
    try:
        return None if value is None else as_dim(value)
    except TfgraphError as error:
        raise TfgraphError(f"{what}: {error.message}", hint=error.hint) from error
