"""Rules that say where a parameter stands in a checkpoint, such as

    layers.{i}.attention.q.weight: transpose(encoder.layer.{i}.attention.self.query.weight)

May import: errors; numpy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Mapping

    NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rule:
    """Where a parameter comes from: `name` in the checkpoint, after `steps` in order."""

    name: str
    steps: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after the steps. Raises TfgraphError where a step does not fit."""
        for step, args in self.steps:
            if step == "transpose":
                shape = shape[::-1]
            elif not shape or shape[-1] % args[1] or not 0 <= args[0] < args[1]:
                raise TfgraphError(f"part {args[0]} of {args[1]} of the last axis of {list(shape)}")
            else:
                shape = (*shape[:-1], shape[-1] // args[1])
        return shape

    def apply(self, data: NDArray) -> NDArray:
        """The array after the steps, a view."""
        for step, args in self.steps:
            data = data.T if step == "transpose" else np.split(data, args[1], axis=-1)[args[0]]
        return data


def parse_rule(text: str) -> Rule:
    """Read `name`, `transpose(rule)`, or `part(rule, i, n)`: the i-th of n along the last axis."""
    text = text.strip()
    if inner := re.fullmatch(r"transpose\((.*)\)", text):
        rule = parse_rule(inner[1])
        return Rule(rule.name, (*rule.steps, ("transpose", ())))
    if inner := re.fullmatch(r"part\((.*),\s*(\d{1,9})\s*,\s*([1-9]\d{0,8})\s*\)", text):
        rule = parse_rule(inner[1])
        return Rule(rule.name, (*rule.steps, ("part", (int(inner[2]), int(inner[3])))))
    if not text or re.search(r"[()\s,]", text):
        raise TfgraphError(
            f"'{text}' is not a rule for a weight",
            hint="write the tensor's name, transpose(name), or part(name, 0, 3)",
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
