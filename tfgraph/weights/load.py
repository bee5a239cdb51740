"""A graph's parameters from a checkpoint, checked.

May import: checkpoint, rules, seeded, ops, ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.weights.rounded import rounded
from tfgraph.weights.rules import Rules
from tfgraph.weights.seeded import seeded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfgraph.ir import Param, TensorType
    from tfgraph.weights.checkpoint import Checkpoint
    from tfgraph.weights.rules import Rule

    NDArray = np.ndarray[Any, Any]


_COMPUTED = ("sinusoidal", "sinusoidal_halves")
"""How parameters are filled that need no file."""


class Weights(Mapping[str, "NDArray"]):
    """A graph's parameters from a checkpoint, by parameter name, in the graph's dtypes.

    Opening checks names, shapes and dtypes of all, and reads no tensor. float16 and bfloat16
    widen exactly to a float32 parameter; narrowing rounds once, and a value that would become
    infinite is an error. Sines of positions that the file has not got are computed. Raises one
    TfgraphError with every problem.
    """

    def __init__(
        self,
        params: Iterable[Param],
        checkpoint: Checkpoint,
        rules: Mapping[str, str] | None = None,
        ignore: Sequence[str] = (),
        places: Mapping[str | None, Location] | None = None,
    ) -> None:
        """`ignore` lists patterns (`*` is any text) of tensors that may be left unused; `places`
        says where in a user's file a rule stands, by its key, and with None all of this."""
        self.checkpoint = checkpoint
        self._rules: dict[str, tuple[Rule, TensorType]] = {}
        self._computed: dict[str, Param] = {}
        places = places or {}
        general = places.get(None, Location(str(checkpoint.path)))
        finder = Rules(rules or {})
        errors: list[TfgraphError] = []
        applied: set[str | None] = set()
        for param in params:
            name = param.value.name
            key = finder.key(name)
            applied.add(key)
            if key is None and name not in checkpoint.stored and param.fill.kind in _COMPUTED:
                self._computed[name] = param
                continue
            try:
                rule = finder.find(name)
                self._rules[name] = (rule, param.value.type)
                self._check(name, rule, param.value.type)
            except TfgraphError as error:
                errors.append(TfgraphError(error.message, places.get(key, general), error.hint))
        if not errors:
            errors += self._unused(ignore, general)
        for key in finder.keys:
            if key not in applied:
                message = f"the rule '{key}' fits no parameter"
                place = places.get(key, general)
                errors.append(TfgraphError(message, place, nearest(key, self._rules)))
        if errors:
            first, *rest = errors[:20]
            raise TfgraphError(first.message, first.location, first.hint, rest)

    @property
    def widened(self) -> tuple[tuple[str, ...], int, int]:
        """The dtypes in the file from which parameters widen, with the bytes of these parameters
        there and here; none, 0 and 0 where there are none."""
        found: set[str] = set()
        before = after = 0
        for rule, want in self._rules.values():
            stored = self.checkpoint.stored[rule.name].dtype
            if stored.bits < want.dtype.bits:
                count = prod(map(int, want.shape))
                found.add(stored.value)
                before, after = (
                    before + count * stored.bits // 8,
                    after + count * want.dtype.bits // 8,
                )
        return tuple(sorted(found)), before, after

    def source(self, name: str) -> str:
        """The name in the checkpoint of the tensor that a parameter comes from; its own name where
        it is computed."""
        return name if name in self._computed else self._rules[name][0].name

    def _check(self, name: str, rule: Rule, want: TensorType) -> None:
        stored = self.checkpoint.stored.get(rule.name)
        file = self.checkpoint.path.name
        asked = "" if rule.name == name else f", which the parameter '{name}' comes from"
        if stored is None:
            raise TfgraphError(
                f"{file} has no tensor '{rule.name}'{asked}",
                hint=nearest(rule.name, self.checkpoint.stored),
            )
        shape, expected = rule.shape(stored.shape), tuple(map(int, want.shape))
        if shape != expected:
            after = " after its rule" if rule.steps else ""
            raise TfgraphError(
                f"{file}: '{rule.name}' is {list(shape)}{after}, expected {list(expected)}{asked}",
                hint="transpose(...) in the rule turns it round"
                if shape == expected[::-1]
                else None,
            )
        if stored.dtype != want.dtype and not (stored.dtype.is_float and want.dtype.is_float):
            raise TfgraphError(
                f"{file}: '{rule.name}' is {stored.dtype}, expected {want.dtype}{asked}"
            )

    def _unused(self, ignore: Sequence[str], place: Location) -> list[TfgraphError]:
        used = {rule.name for rule, _ in self._rules.values()}
        left = [
            name
            for name in self.checkpoint.stored
            if name not in used and not any(fnmatchcase(name, pattern) for pattern in ignore)
        ]
        if not left:
            return []
        shown = ", ".join(f"'{n}'" for n in left[:5]) + (", ..." if len(left) > 5 else "")
        verb = "is a tensor" if len(left) == 1 else f"are {len(left)} tensors"
        return [
            TfgraphError(
                f"{self.checkpoint.path.name}: {shown} {verb} that no parameter uses",
                place,
                "list patterns of such names under weights: ignore",
            )
        ]

    def __getitem__(self, name: str) -> NDArray:
        if name in self._computed:
            return seeded(self._computed[name])
        rule, want = self._rules[name]
        data = rule.apply(self.checkpoint[rule.name])
        return rounded(data, want.dtype, f"'{rule.name}'", Location(str(self.checkpoint.path)))

    def __iter__(self) -> Iterator[str]:
        return iter((*self._rules, *self._computed))

    def __len__(self) -> int:
        return len(self._rules) + len(self._computed)
