"""Pipelines: text and back, options, mistakes in them, and what runs when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph, Value, tensor
from tfgraph.passes import (
    DEFAULT_PIPELINE,
    Pass,
    PassReport,
    Rewrites,
    Rule,
    RulePass,
    add_rule,
    call,
    parse_pipeline,
    register_pass,
    rule,
    run_pipeline,
    var,
)


@dataclass(frozen=True)
class Tuned(Pass):
    """A pass with an option of each kind."""

    name = "tuned"
    keep: bool = True
    depth: int = 3
    rate: float = 0.5
    word: str = "plain"

    def run(self, graph: Graph) -> Rewrites:
        return Rewrites(graph)


class Broken(Pass):
    """Gives every result another type."""

    name = "broken"

    def run(self, graph: Graph) -> Rewrites:
        node = graph.nodes[-1]
        wrong = replace(node, outputs=(Value(node.output.name, tensor("f32", 5)),))
        outputs = tuple(replace(o, value=wrong.output) for o in graph.outputs)
        return Rewrites(replace(graph, nodes=(*graph.nodes[:-1], wrong), outputs=outputs))


@pytest.fixture(autouse=True)
def _registered() -> None:
    register_pass(Tuned)
    register_pass(Broken)


def small() -> Graph:
    with ops.graph("g") as g:
        x = g.input("x", "f32", 4)
        ops.sqrt(x)
        g.output("y", ops.exp(x * 1))
    return g.build()


def show(passes: tuple[Pass, ...]) -> str:
    return ",".join(map(str, passes))


@pytest.mark.parametrize(
    "text",
    [
        DEFAULT_PIPELINE,
        "",
        "dce",
        "tuned",
        "tuned{keep=false},dce,tuned{depth=-1 rate=2e-05 word=Odd}",
    ],
)
def test_what_is_parsed_prints_as_it_was(text: str) -> None:
    assert show(parse_pipeline(text)) == text


def test_printing_leaves_defaults_and_spaces_out() -> None:
    passes = parse_pipeline(" dce , tuned{ depth=3  rate=0.5 keep=true word=x },, ")
    assert show(passes) == "dce,tuned{word=x}"
    assert parse_pipeline(show(passes)) == passes


def test_options() -> None:
    assert parse_pipeline("tuned{keep=false depth=-7 rate=1 word=true}") == (
        Tuned(keep=False, depth=-7, rate=1.0, word="true"),
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("fuse-atention", "unknown pass 'fuse-atention'", "did you mean 'fuse-attention'?"),
        ("cse,DCE", "unknown pass 'DCE'", None),
        ("simplify}", "unknown pass 'simplify}'", "did you mean 'simplify'?"),
        ("tuned{dept=3}", "pass tuned has no option 'dept'", "did you mean 'depth'?"),
        ("dce{x=1}", "pass dce has no option 'x'", "it has none"),
        ("tuned{q=3}", "pass tuned has no option 'q'", "it has keep, depth, rate, word"),
        ("tuned{depth}", "pass tuned has no option 'depth'", "did you mean 'depth'?"),
        ("tuned{depth=3", "pass 'tuned{depth=3': a '}' is missing", None),
        ("tuned{keep=1}", "pass tuned: keep is true or false, got '1'", None),
        ("tuned{depth=2.5}", "pass tuned: depth is an integer, got '2.5'", None),
        ("tuned{depth=--5}", "pass tuned: depth is an integer, got '--5'", None),
        ("tuned{depth=²}", "pass tuned: depth is an integer, got '²'", None),
        ("tuned{rate=fast}", "pass tuned: rate is a number, got 'fast'", None),
    ],
)
def test_mistakes(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(TfgraphError) as caught:
        parse_pipeline(text)
    assert caught.value.message == message
    if hint is not None:
        assert caught.value.hint == hint


def test_an_unknown_pass_that_is_like_none_lists_them() -> None:
    with pytest.raises(TfgraphError) as caught:
        parse_pipeline("xyz")
    assert caught.value.hint == (
        "passes are broken, cse, dce, fold-constants, fuse-add-norm, fuse-attention, "
        "fuse-embedding, fuse-gated-linear, fuse-linear-activation, fuse-rotary, "
        "merge-projections, recover-activations, recover-bools, recover-constants, "
        "recover-empty-rows, recover-heads, recover-indices, recover-linear, recover-masks, "
        "recover-norms, recover-rotary, recover-rotary-parts, simplify, tuned"
    )


def test_a_pass_that_breaks_the_graph_is_named_with_those_before_it() -> None:
    with pytest.raises(TfgraphError) as caught:
        run_pipeline(small(), parse_pipeline("tuned{depth=4},dce,broken,cse"))
    assert caught.value.message == (
        "pass broken left an invalid graph: %2 = exp: the result is f32[4], not f32[5] "
        "(passes before it: tuned{depth=4}, dce)"
    )
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    with pytest.raises(TfgraphError, match=r"\(passes before it: none\)"):
        run_pipeline(small(), parse_pipeline("broken"))


def test_each_step_is_shown_and_reported() -> None:
    steps: list[tuple[str, int, int]] = []

    def after(item: Pass, before: Graph, now: Graph) -> None:
        steps.append((str(item), len(before.nodes), len(now.nodes)))

    graph, reports = run_pipeline(small(), parse_pipeline("dce,simplify,dce"), after)
    assert steps == [("dce", 3, 2), ("simplify", 2, 1), ("dce", 1, 1)]
    assert [n.op for n in graph.nodes] == ["exp"]
    assert reports == [
        PassReport("dce", {"removed": 1}),
        PassReport("simplify", {"drop-one": 1}),
        PassReport("dce", {}),
    ]


def test_the_report_as_json() -> None:
    with ops.graph("g") as g:
        g.output("y", ops.gelu(g.input("x", "f32", 2, 4)))
    graph = g.build()
    _, (report,) = run_pipeline(graph, parse_pipeline("fuse-linear-activation"))
    assert report.to_json() == {
        "name": "fuse-linear-activation",
        "applied": {},
        "declined": [
            {
                "rule": "fuse-linear-activation",
                "at": "%0 = gelu",
                "reason": "expected linear, found the input %x",
                "location": str(graph.nodes[0].location),
            }
        ],
        "proof": None,
    }
    _, (report,) = run_pipeline(graph, parse_pipeline("dce"), prove=True)
    assert report.to_json()["proof"] == {"kind": "PROVED", "error": 0.0, "opaque": []}
    _, (report,) = run_pipeline(
        replace(graph, nodes=(replace(graph.nodes[0], location=None),)),
        parse_pipeline("fuse-linear-activation"),
    )
    assert report.to_json()["declined"][0]["location"] is None  # type: ignore[index]


def test_no_passes_change_nothing() -> None:
    graph = small()
    assert run_pipeline(graph, ()) == (graph, [])


def test_a_name_belongs_to_one_pass() -> None:
    register_pass(Tuned)  # the same class again is no mistake

    class Other(Pass):
        name = "tuned"

    with pytest.raises(TfgraphError, match="pass 'tuned' is registered twice"):
        register_pass(Other)


def test_options_have_plain_defaults() -> None:
    @dataclass(frozen=True)
    class Needy(Pass):
        name = "needy"
        limit: int

    with pytest.raises(TfgraphError, match="pass 'needy': option 'limit' has no plain default"):
        register_pass(Needy)


def test_a_rule_can_be_added_to_a_pass() -> None:
    @rule(call("exp", var("x")))
    def extra(x: Any) -> Any:
        return ops.tanh(x)

    class Open(RulePass):
        name = "open"
        rules: ClassVar[list[Rule]] = []

    register_pass(Open)
    add_rule("open", extra)
    graph, (report,) = run_pipeline(small(), [Open()])
    assert report.applied == {"extra": 1}
    assert [n.op for n in graph.nodes] == ["mul", "tanh"]
    for name, hint in (("opn", "did you mean 'open'?"), ("dce", None)):
        with pytest.raises(TfgraphError) as caught:
            add_rule(name, extra)
        assert caught.value.message == f"no pass of rules is called '{name}'"
        assert caught.value.hint == hint


def returning(result: Any) -> Pass:
    """A pass whose `run` returns `result`, or what it makes of the graph."""

    class Mine(Pass):
        name = "mine"

        def run(self, graph: Graph) -> Graph:
            return result(graph) if callable(result) else result  # type: ignore[no-any-return]

    return Mine()


def test_a_pass_may_return_the_graph_alone() -> None:
    graph, (report,) = run_pipeline(small(), [returning(lambda graph: replace(graph, name="h"))])
    assert (graph.name, report.applied) == ("h", {"changed": 1})
    graph, (report,) = run_pipeline(small(), [returning(lambda graph: graph)])
    assert (graph.name, report.applied) == ("g", {})


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (None, "nothing"),
        ([1], "a list"),
        (lambda graph: Rewrites(None), "nothing"),  # type: ignore[arg-type]
        (lambda graph: Rewrites(graph, 3), "an int"),  # type: ignore[arg-type]
        (lambda graph: (graph, {}), "a tuple"),
    ],
)
def test_a_pass_that_returns_something_else(result: Any, got: str) -> None:
    item = returning(result)
    with pytest.raises(TfgraphError) as caught:
        run_pipeline(small(), [item])
    assert caught.value.message == (
        f"pass mine: run returns {got}, "
        "expected a Graph, or Rewrites(graph, {what was done: how often})"
    )
    place = caught.value.location
    assert place is not None
    assert (place.file, place.line) == (__file__, type(item).run.__code__.co_firstlineno)


def test_an_annotation_makes_no_option() -> None:
    class Loose(Pass):
        name = "loose"
        depth: int = 3

        def run(self, graph: Graph) -> Graph:
            return graph

    with pytest.raises(TfgraphError, match="pass 'loose': depth is no option") as caught:
        register_pass(Loose)
    assert caught.value.hint is not None
    assert "@dataclass(frozen=True)" in caught.value.hint


def test_cleanups_are_told_apart() -> None:
    @rule(call("exp", var("x")))
    def main(x: Any) -> Any:
        return ops.tanh(x)

    @rule(call("mul", var("x"), 1))
    def tidy(x: Any) -> Any:
        return x

    class Both(RulePass):
        name = "both"
        rules: ClassVar[list[Rule]] = [main]
        cleanups: ClassVar[list[Rule]] = [tidy]

    graph, (report,) = run_pipeline(small(), [Both()])
    assert report.applied == {"main": 1, "tidy": 1}
    assert (report.count, report.cleanups) == (1, {"tidy"})
    assert [n.op for n in graph.nodes] == ["tanh"]
