"""The table of ONNX operators: a function for each operator and the versions whose meaning it has.

    @translates("Relu")
    def relu(at: Site, x: Tensor, /) -> Tensor:
        return ops.relu(at.tensor(x))

Positional-only parameters are inputs, keyword-only ones attributes with defaults, as in the ops of
the IR. An attribute that a function does not name is an error where a file has it. May import:
errors.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.onnx.site import Site

log = logging.getLogger("tfgraph")


@dataclass(frozen=True)
class Translator:
    """How one operator is translated, from a version of the operator set on."""

    name: str
    since: int
    function: Callable[..., Any]
    required: int = field(init=False)
    most: int | None = field(init=False)
    attributes: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        inputs = [p for p in parameters if p.kind == p.POSITIONAL_ONLY]
        several = any(p.kind == p.VAR_POSITIONAL for p in parameters)
        object.__setattr__(self, "required", sum(p.default is p.empty for p in inputs))
        object.__setattr__(self, "most", None if several else len(inputs))
        attributes = {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}
        object.__setattr__(self, "attributes", attributes)

    def __call__(self, site: Site, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """The results. Raises TfgraphError for inputs or attributes that the operator has not."""
        if self.most is not None and any(x is not None for x in inputs[self.most :]):
            raise TfgraphError(f"{self.name} has {len(inputs)} inputs, at most {self.most}")
        given = list(inputs if self.most is None else inputs[: self.most])
        if len(given) < self.required or any(x is None for x in given[: self.required]):
            raise TfgraphError(f"{self.name}: an input is missing")
        known = {name: value for name, value in attributes.items() if name in self.attributes}
        for name in attributes.keys() - known.keys():
            if site.has_attribute(name):
                raise TfgraphError(f"{self.name}: the attribute '{name}' is not supported")
            log.warning("%s: ONNX has no attribute '%s': ignored", site, name)
        return self.function(site, *given, **known)


_TABLE: dict[str, list[Translator]] = {}


def translates(*names: str, since: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for operators, from version `since` of the operator set up to the next
    version that has another. Operators of another domain are called `domain.Name`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            entries = _TABLE.setdefault(name, [])
            if any(entry.since == since for entry in entries):
                raise TfgraphError(f"ONNX's {name} of version {since} is registered twice")
            entries.append(Translator(name, since, function))
            entries.sort(key=lambda entry: entry.since)
        return function

    return register


def find_translator(name: str, opset: int) -> Translator | None:
    """The entry for an operator in a version of the operator set; None if there is none."""
    fitting = [entry for entry in _TABLE.get(name, ()) if entry.since <= opset]
    return fitting[-1] if fitting else None


def operators() -> tuple[str, ...]:
    """The names of all operators that are translated."""
    return tuple(sorted(_TABLE))
