"""Rules that say where a parameter stands in a checkpoint, such as

    layers.{i}.attention.q.weight: transpose(encoder.layer.{i}.attention.self.query.weight)

May import: errors; numpy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Mapping

NDArray = np.ndarray[Any, Any]


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """What a function of rules does to an array: `numbers` are its arguments behind the rule.

    `shape` gives the shape after it, or raises ValueError that says why it does not fit.
    """

    numbers: int
    example: str
    shape: Callable[..., Shape]
    apply: Callable[..., NDArray]


def _part_shape(shape: Shape, i: int, n: int) -> Shape:
    if not shape or n < 1 or shape[-1] % n or not 0 <= i < n:
        raise ValueError(f"part {i} of {n} of the last axis of {list(shape)}")
    return (*shape[:-1], shape[-1] // n)


def _slots_shape(shape: Shape, groups: int, start: int, stop: int, of: int) -> Shape:
    if not shape or not 0 <= start < stop <= of or not groups or shape[0] % (groups * of):
        raise ValueError(
            f"slots {start} to {stop} of {of}, in {groups} groups, of the first axis of "
            f"{list(shape)}"
        )
    return (shape[0] // of * (stop - start), *shape[1:])


def _slots(data: NDArray, groups: int, start: int, stop: int, of: int) -> NDArray:
    each = data.reshape(groups, of, data.shape[0] // (groups * of), *data.shape[1:])
    return each[:, start:stop].reshape(-1, *data.shape[1:])


def _matrix_shape(shape: Shape, axes: int) -> Shape:
    if not 1 <= axes < len(shape):
        raise ValueError(f"{axes} axes made one, and the others, of {list(shape)}")
    return (prod(shape[:axes]), prod(shape[axes:]))


def _matrix(data: NDArray, axes: int) -> NDArray:
    return data.reshape(_matrix_shape(data.shape, axes))


def _part(data: NDArray, i: int, n: int) -> NDArray:
    return np.split(data, n, axis=-1)[i]


def _transpose(data: NDArray) -> NDArray:
    return data.T


def _turned(shape: Shape) -> Shape:
    return shape[::-1]


def _flat(data: NDArray) -> NDArray:
    return data.reshape(-1)


def _whole(shape: Shape) -> Shape:
    return (prod(shape),)


STEPS = {
    "transpose": Step(0, "transpose(name)", _turned, _transpose),
    "part": Step(2, "part(name, 0, 3)", _part_shape, _part),
    "slots": Step(4, "slots(name, 12, 0, 1, 3)", _slots_shape, _slots),
    "matrix": Step(1, "matrix(name, 1)", _matrix_shape, _matrix),
    "flat": Step(0, "flat(name)", _whole, _flat),
}


@dataclass(frozen=True)
class Rule:
    """Where a parameter comes from: `name` in the checkpoint, after `steps` in order."""

    name: str
    steps: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def shape(self, shape: Shape) -> Shape:
        """The shape after the steps. Raises TfgraphError where a step does not fit."""
        for step, args in self.steps:
            try:
                shape = STEPS[step].shape(shape, *args)
            except ValueError as cause:
                raise TfgraphError(str(cause)) from cause
        return shape

    def apply(self, data: NDArray) -> NDArray:
        """The array after the steps, a view where there can be one."""
        for step, args in self.steps:
            data = STEPS[step].apply(data, *args)
        return data


_CALL = re.compile(r"([a-z]+)\((.*?)((?:,\s*\d{1,9}\s*)*)\)")


def parse_rule(text: str) -> Rule:
    """Read `name`, or a function of a rule:

    transpose(rule)                       axes in the opposite order
    part(rule, i, n)                      the i-th of n parts along the last axis
    slots(rule, groups, start, stop, of)  of the first axis, in so many groups of `of` slots each,
                                          the slots from start on and before stop
    matrix(rule, n)                       the first n axes made one, and the others
    flat(rule)                            all axes made one
    """
    text = text.strip()
    call = _CALL.fullmatch(text)
    if call and call[1] in STEPS:
        numbers = tuple(int(n) for n in call[3].split(",")[1:])
        if len(numbers) == STEPS[call[1]].numbers:
            rule = parse_rule(call[2])
            return Rule(rule.name, (*rule.steps, (call[1], numbers)))
    if not text or re.search(r"[()\s,]", text):
        examples = ", ".join(step.example for step in STEPS.values())
        raise TfgraphError(
            f"'{text}' is not a rule for a weight",
            hint=f"write the tensor's name, or one of {examples}",
        )
    return Rule(text)


class Rules:
    """From a parameter's name to its rule. A pattern such as `layers.{i}.ffn.up.weight` stands for
    any part without dots where it has braces, which the rule may repeat; without a rule, a
    parameter has the same name in the checkpoint."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._exact = {k: v for k, v in rules.items() if "{" not in k}
        self._patterns = [(k, _pattern(k), v) for k, v in rules.items() if "{" in k]

    @property
    def keys(self) -> tuple[str, ...]:
        """The left sides of all rules."""
        return (*self._exact, *(key for key, _, _ in self._patterns))

    def key(self, name: str) -> str | None:
        """The left side of the rule that applies to a parameter, or None."""
        if name in self._exact:
            return name
        return next((key for key, pattern, _ in self._patterns if pattern.fullmatch(name)), None)

    def find(self, name: str) -> Rule:
        """The rule that applies to a parameter."""
        key = self.key(name)
        if key is None:
            return Rule(name)
        if key in self._exact:
            return parse_rule(self._exact[key])
        pattern, text = next((p, t) for k, p, t in self._patterns if k == key)
        match = pattern.fullmatch(name)
        for hole, value in (match.groupdict() if match else {}).items():
            text = text.replace(f"{{{hole}}}", value)
        return parse_rule(text)


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{([A-Za-z]\w*)\}", text)
    seen: set[str] = set()
    pattern = ""
    for i, part in enumerate(parts):
        hole = f"(?P={part})" if part in seen else f"(?P<{part}>[^.]+)"
        pattern += hole if i % 2 else re.escape(part)
        seen |= {part} if i % 2 else set()
    return re.compile(pattern)
