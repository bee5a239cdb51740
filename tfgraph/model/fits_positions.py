"""What fits together in the positions of a model file: those of all layers, of local ones, of an
encoder that has its own. May import: schema, derived, problem, ir.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.ir import exact
from tfgraph.model.derived import (
    BUCKETS,
    DISTANCE,
    OF_POSITIONS,
    encoder_of,
    head_size_of,
    heads_of,
)
from tfgraph.model.problem import Problem

if TYPE_CHECKING:
    from tfgraph.model.schema import HighLevel, Positions


def check_positions(spec: HighLevel) -> Iterator[Problem]:
    """What does not fit together in any of a model's positions."""
    yield from _Check(spec, spec.positions, ("positions",)).run()
    if spec.encoder is not None and spec.encoder.positions is not None:
        own = encoder_of(spec)
        yield from _Check(own, own.positions, ("encoder", "positions")).run()
    local = None if spec.local is None else spec.local.positions
    if local is not None:
        yield from _Check(spec, local, ("local", "positions")).run()
        for path, kind in ((("local", "positions"), local.kind), (("local",), spec.positions.kind)):
            if kind not in ("rotary", "none"):
                yield Problem(
                    path,
                    f"local layers have their own positions only where all are rotary, not {kind}",
                    ("local", "positions"),
                )
                break


@dataclass(frozen=True)
class _Check:
    """Checks the positions at a path of the file."""

    spec: HighLevel
    positions: Positions
    path: tuple[str, ...]

    def problem(self, keys: tuple[str, ...], message: str, hint: str | None = None) -> Problem:
        """A problem at a key inside the positions, and on what it depends."""
        depends = (self.path[0], "positions", "heads", "head_size", "width", "kind", "vocabulary")
        return Problem((*self.path, *keys), message, depends, hint)

    def run(self) -> Iterator[Problem]:
        """All problems."""
        positions = self.positions
        if self.spec.vocabulary is None and positions.padding_id is not None:
            yield self.problem(("padding_id",), "needs a vocabulary")
        yield from self.keys()
        if positions.kind == "learned":
            yield from self.learned()
        if positions.kind == "rotary":
            yield from self.rotary()
        if positions.kind == "relative" or (positions.kind == "learned" and positions.buckets):
            yield from self.relative()
        if positions.kind == "disentangled":
            yield from self.disentangled()

    def keys(self) -> Iterator[Problem]:
        """Keys that are for positions of another kind."""
        positions = self.positions
        for key, kinds in OF_POSITIONS.items():
            default = type(positions).model_fields[key].get_default(call_default_factory=True)
            if positions.kind in kinds or getattr(positions, key) == default:
                continue
            hint = f"kind: {kinds[-1]}, or leave {key} out"
            names = " or ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))
            message = f"is for {names} positions"
            if positions.kind == "none" and key == "max":
                message, hint = "there are no positions", "leave max out, or kind: learned"
            yield self.problem((key,), message, hint)

    def learned(self) -> Iterator[Problem]:
        """A table needs a size, and positions count in one way."""
        positions = self.positions
        if positions.max is None:
            yield self.problem((), "learned positions need a number of rows", "max: 512")
        if positions.masked and positions.padding_id is not None:
            yield self.problem(("masked",), "positions count by padding_id already")
        padding = any(part.kind == "padding" for part in self.spec.mask or ())
        if positions.masked and not (padding and self.spec.kind != "encoder-decoder"):
            yield self.problem(
                ("masked",), "needs a padding mask, in a model of one stack", "mask: padding"
            )
        if positions.max_distance is not None and positions.buckets is None:
            yield self.problem(("max_distance",), "is for relative positions", "buckets: 32")

    def relative(self) -> Iterator[Problem]:
        """Buckets for each side, and distances beyond those that have their own."""
        buckets = self.positions.buckets or BUCKETS
        sides = 1 if self.spec.kind == "decoder" else 2
        if buckets % sides or buckets < 2 * sides:
            yield self.problem(("buckets",), "expected an even number of at least 4")
        elif (self.positions.max_distance or DISTANCE) <= buckets // 2:
            message = f"expected more than half of the {buckets} buckets"
            yield self.problem(("max_distance",), message)

    def disentangled(self) -> Iterator[Problem]:
        """Content and distance: an encoder's, with a key for each query head."""
        spec, positions = self.spec, self.positions
        if spec.kind != "encoder":
            yield self.problem((), "disentangled positions are for an encoder")
        if spec.kv_heads not in (None, heads_of(spec)):
            yield self.problem((), "disentangled positions need a key/value head for each head")
        if not positions.terms or len(set(positions.terms)) < len(positions.terms):
            yield self.problem(("terms",), "expected c2p, p2c, or both", "[c2p, p2c]")
        if positions.buckets is None:
            return
        if positions.buckets < 4 or positions.buckets % 2:
            yield self.problem(("buckets",), "expected an even number of at least 4")
        elif (positions.max_distance or DISTANCE) <= positions.buckets // 2 + 1:
            message = f"expected more than {positions.buckets // 2 + 1}, where buckets grow"
            yield self.problem(("max_distance",), message)

    def rotary(self) -> Iterator[Problem]:
        """Pairs inside a head, and what each kind of scaling needs."""
        positions = self.positions
        head = head_size_of(self.spec)
        size = positions.size or head
        keys = ("size",) if positions.size else ()
        if size > head:
            yield self.problem(keys, f"{size} is more than the head size {head}")
        elif size % 2:
            message = f"rotary positions turn pairs, and {size} is odd"
            yield self.problem(keys, message, "size: 2")
        if float(positions.base) < 1:
            yield self.problem(("base",), "expected at least 1")
        if positions.scaling is not None:
            yield from self.scaling(size // 2)

    def scaling(self, pairs: int) -> Iterator[Problem]:
        """What each kind of scaling needs."""
        given = self.positions.scaling
        assert given is not None
        needed, keys = NEEDED[given.kind], _KEYS[given.kind]
        for key, example in needed.items():
            if getattr(given, key) is None:
                what = "the original length" if key == "original" else key
                yield self.problem(("scaling",), f"{given.kind} needs {what}", f"{key}: {example}")
        for key in type(given).model_fields:
            if key not in ("kind", *keys) and key in given.model_fields_set:
                kinds = " or ".join(kind for kind, known in _KEYS.items() if key in known)
                yield self.problem(("scaling", key), f"is for {kinds}")
        high = given.high or exact(32 if given.kind == "yarn" else 4)
        if "low" in keys and given.low.factor >= high.factor:
            yield self.problem(("scaling", "low"), "expected less than high")
        if given.kind == "yarn" and self.positions.base.factor <= 1:
            yield self.problem(("base",), "expected more than 1 with yarn")
        for key in ("short", "long"):
            factors = getattr(given, key)
            if given.kind == "longrope" and factors is not None and len(factors) != pairs:
                message = f"{len(factors)} factors, expected one for each of the {pairs} pairs"
                yield self.problem(("scaling", key), message)


NEEDED: dict[str, dict[str, str]] = {
    "linear": {"factor": "4"},
    "llama3": {"factor": "8", "original": "8192"},
    "yarn": {"factor": "4", "original": "4096"},
    "longrope": {"original": "4096", "short": "[1, ...]", "long": "[1, ...]"},
}
"""What each kind of scaling needs, with an example."""
_KEYS = {
    "linear": ("factor",),
    "llama3": ("factor", "original", "low", "high"),
    "yarn": ("factor", "original", "low", "high", "truncate", "magnitude"),
    "longrope": ("original", "short", "long", "magnitude"),
}
