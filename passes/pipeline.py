"""Passes and pipelines: a pass is a frozen dataclass whose fields are its options; a pipeline is
data that prints as it is parsed, `fuse-attention,fuse-add-norm{keep_sum=false},dce`.

A pass takes a valid graph and returns one, alone or in `Rewrites` with what was done. The graph is
verified after each that changes it, and a failure names the pass. May import: proof, rewrite, rule,
ops, ir.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, cast

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.ir import Graph
from tfgraph.ops import verify
from tfgraph.ops.operands import shown
from tfgraph.passes.proof import Proof, prove_pass
from tfgraph.passes.rewrite import Declined, Rewrites, apply_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.passes.rule import Rule

PASSES: dict[str, type[Pass]] = {}
_OF_CLASSES = {"name", "rules", "cleanups"}
DEFAULT_PIPELINE = (
    "simplify,fold-constants,cse,"
    "fuse-attention,fuse-embedding,fuse-add-norm,fuse-linear-activation,fuse-gated-linear,"
    "merge-projections,fuse-rotary,cse,dce"
)

IMPORTED_PIPELINE = (
    "recover-constants,recover-rotary-parts,simplify,cse,recover-norms,recover-activations,"
    "recover-bools,recover-indices,recover-linear,recover-empty-rows,recover-heads,recover-masks,"
    "recover-rotary,recover-constants," + DEFAULT_PIPELINE
)
"""For what another tool wrote out in its own ops."""


@dataclass(frozen=True)
class PassReport:
    """What one pass did: how often each rule applied, and where one nearly did."""

    name: str
    applied: dict[str, int]
    declined: tuple[Declined, ...] = ()
    cleanups: frozenset[str] = frozenset()
    """The rules that only tidy up around the others."""
    proof: Proof | None = None
    """How sure it is that the pass kept what the graph means; None where nobody asked."""
    reads: frozenset[str] = frozenset()
    """What its rules took for something that it nearly is, see `Rule.reads`."""

    @property
    def count(self) -> int:
        """How often the rules applied that the pass is for."""
        return sum(n for rule, n in self.applied.items() if rule not in self.cleanups)

    def to_json(self) -> dict[str, object]:
        """The object in `compile --json`."""
        return {
            "name": self.name,
            "applied": dict(self.applied),
            "declined": [
                {"rule": d.rule, "at": d.at, "reason": d.reason, "location": _place(d)}
                for d in self.declined
            ],
            "proof": None if self.proof is None else self.proof.to_json(),
        }


@dataclass(frozen=True)
class Pass(ABC):
    """Base of passes. A subclass sets `name` and implements `run`."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, graph: Graph) -> Graph | Rewrites:
        """The graph after the pass; as `Rewrites` with how often what was done, and what was not
        and why."""

    def __str__(self) -> str:
        changed = [
            f"{f.name}={_text(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + (f"{{{' '.join(changed)}}}" if changed else "")


@dataclass(frozen=True)
class RulePass(Pass):
    """A pass that is a list of rules; plugins add to it with `add_rule`. `cleanups` run with them,
    and reports tell them apart."""

    rules: ClassVar[list[Rule]]
    cleanups: ClassVar[list[Rule]] = []

    def run(self, graph: Graph) -> Rewrites:
        """Apply the rules until none applies."""
        return apply_rules(graph, [*self.rules, *self.cleanups])


def register_pass(cls: type[Pass]) -> type[Pass]:
    """Class decorator: make a pass known by its name. Its options have defaults: bool, int, float
    or str (a word)."""
    if cls.name in PASSES and PASSES[cls.name] is not cls:
        raise TfgraphError(f"pass '{cls.name}' is registered twice")
    said = {n for n, kind in inspect.get_annotations(cls).items() if "ClassVar" not in str(kind)}
    if missing := said - {option.name for option in fields(cls)} - _OF_CLASSES:
        raise TfgraphError(
            f"pass '{cls.name}': {', '.join(sorted(missing))} is no option",
            hint="@dataclass(frozen=True) above the class makes it one, and ClassVar a constant",
        )
    for option in fields(cls):
        if not isinstance(option.default, bool | int | float | str):
            raise TfgraphError(f"pass '{cls.name}': option '{option.name}' has no plain default")
    PASSES[cls.name] = cls
    return cls


def add_rule(pass_name: str, rule: Rule) -> None:
    """Add a rule to the pass of that name. Raises TfgraphError if the pass has no rules."""
    cls = PASSES.get(pass_name)
    if cls is None or not issubclass(cls, RulePass):
        known = [name for name, c in PASSES.items() if issubclass(c, RulePass)]
        raise TfgraphError(
            f"no pass of rules is called '{pass_name}'", hint=nearest(pass_name, known)
        )
    cls.rules.append(rule)


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """The passes of `text`, in order. Raises TfgraphError for unknown passes and options."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TfgraphError(
            f"passes: expected a text, got a {type(text).__name__}",
            hint="names with commas between them, such as passes='simplify,cse'",
        )
    return tuple(_parse_pass(part.strip()) for part in text.split(",") if part.strip())


def _parse_pass(text: str) -> Pass:
    name, _, rest = text.partition("{")
    if name not in PASSES:
        raise TfgraphError(
            f"unknown pass '{name}'",
            hint=nearest(name, PASSES) or f"passes are {', '.join(sorted(PASSES))}",
        )
    cls = PASSES[name]
    known = {f.name: f for f in fields(cls)}
    options: dict[str, object] = {}
    if rest and not rest.endswith("}"):
        raise TfgraphError(f"pass '{text}': a '}}' is missing")
    for item in rest.removesuffix("}").split():
        key, equals, value = item.partition("=")
        if key not in known or not equals:
            hint = nearest(key, known) or f"it has {', '.join(known) or 'none'}"
            raise TfgraphError(f"pass {name} has no option '{key}'", hint=hint)
        options[key] = _value(name, key, value, known[key].default)
    return cls(**options)


def _value(pass_name: str, key: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise TfgraphError(f"pass {pass_name}: {key} is true or false, got '{text}'")
        return text == "true"
    kind = "an integer" if isinstance(default, int) else "a number"
    try:
        return type(default)(text)  # type: ignore[call-arg]
    except ValueError:
        raise TfgraphError(f"pass {pass_name}: {key} is {kind}, got '{text}'") from None


def run_pipeline(
    graph: Graph,
    passes: Sequence[Pass],
    after: Callable[[Pass, Graph, Graph], None] | None = None,
    prove: bool = False,
) -> tuple[Graph, list[PassReport]]:
    """Run passes in order, verifying the graph after each that changes it.

    `after(pass, before, after)` sees each step. With `prove` each must keep what the graph means,
    see `tfgraph.passes.proof`. Raises TfgraphError that names the pass, and those that ran before
    it, when a pass leaves an invalid graph; Refuted.
    """
    reports: list[PassReport] = []
    for i, item in enumerate(passes):
        result = run_pass(item, graph)
        try:
            if result.graph is not graph:
                verify(result.graph)
        except TfgraphError as error:
            earlier = ", ".join(map(str, passes[:i])) or "none"
            raise TfgraphError(
                f"pass {item} left an invalid graph: {error.message} (passes before it: {earlier})",
                error.location,
            ) from error
        tidy = frozenset(r.name for r in (item.cleanups if isinstance(item, RulePass) else []))
        proof = prove_pass(item.name, graph, result) if prove else None
        reads = frozenset(region.reads for region in result.regions or () if region.reads)
        declined = tuple(result.declined)
        reports.append(PassReport(item.name, result.applied, declined, tidy, proof, reads))
        if after is not None:
            after(item, graph, result.graph)
        graph = result.graph
    return graph, reports


def run_pass(item: Pass, graph: Graph) -> Rewrites:
    """What one pass returns; the graph is not verified. Raises TfgraphError, at its `run`,
    unless that is a Graph or Rewrites."""
    result: Any = item.run(graph)
    if isinstance(result, Graph):
        return Rewrites(result, {} if result is graph else {"changed": 1})
    whole = isinstance(result, Rewrites)
    parts: list[Any] = [result.graph, result.applied] if whole else [result]
    pairs = zip(parts, (Graph, dict), strict=False)
    wrong = [part for part, kind in pairs if not isinstance(part, kind)]
    if not wrong:
        return cast("Rewrites", result)
    code = type(item).run.__code__
    got = "nothing" if wrong[0] is None else shown(wrong[0])
    raise TfgraphError(
        f"pass {item}: run returns {got}, "
        "expected a Graph, or Rewrites(graph, {what was done: how often})",
        Location(code.co_filename, code.co_firstlineno),
    )


def _place(declined: Declined) -> str | None:
    return str(declined.location) if declined.location else None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
