"""How attributes and operands are annotated: as strings or classes; and what the body then gets."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.reference import run_graph

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import DimLike, DType, Exact, ExactLike, as_dim, exact, rsqrt
from tfgraph.ir.mask import Mask
from tfgraph.ops import REGISTRY, Array, expand, op, xp
from tfgraph.ops.annotations import normal, spelled
from tfgraph.ops.infer import like_first
from tfgraph.text import parse_graph, print_graph


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (float, "float"),
        ("float", "float"),
        (DType, "DType"),
        (ExactLike, "ExactLike"),
        (ExactLike | None, "ExactLike | None"),
        (DimLike, "DimLike"),
        (int | None, "int | None"),
        ("Optional[bool]", "bool | None"),
        ("typing.Optional[tfgraph.ir.DimLike]", "DimLike | None"),
        (Sequence[int], "Sequence[int]"),
        ("collections.abc.Sequence[ir.DimLike]", "Sequence[DimLike]"),
        (tuple[float, ...], "tuple[float, ...]"),
        (Array | ExactLike, "ExactLike | Array"),
        (Mask | None, "Mask | None"),
        (inspect.Parameter.empty, ""),
        (complex, "complex"),
    ],
)  # fmt: skip
def test_spelling(annotation: Any, text: str) -> None:
    assert spelled(annotation) == text


@pytest.mark.parametrize(
    ("annotation", "value", "want"),
    [
        ("float", 1.5, exact(1.5)),
        ("float", 2, exact(2)),
        ("float", np.float32(0.5), exact(0.5)),
        ("float", Fraction(1, 3), exact(Fraction(1, 3))),
        ("float", rsqrt(2), rsqrt(2)),
        ("float | None", None, None),
        ("tuple[float, ...]", [1, 0.5], (exact(1), exact(0.5))),
        ("int", np.int64(3), 3),
        ("bool", np.bool_(True), True),
        ("Sequence[int | None]", [1, None], (1, None)),
        ("str | None", "x", "x"),
    ],
)
def test_values(annotation: str, value: Any, want: Any) -> None:
    assert normal(value, annotation) == want
    assert type(normal(value, annotation)) is type(want)


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        ("float", "1.0", "expected a number, got '1.0'"),
        ("float", True, "expected a number, got True"),
        ("float | None", "a", "expected a number | None, got 'a'"),
        ("int", 1.5, "expected int, got 1.5"),
        ("str", 1, "expected str, got 1"),
    ],
)
def test_wrong_values(annotation: str, value: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        normal(value, annotation)
    assert str(caught.value) == message


def softclip_of(float_: Any) -> Any:
    """An op with an attribute of each plain kind; the annotations are classes, or text of them."""

    def softclip(x, /, *, bound=1.0, times=1, shifted=False, way="both"):  # type: ignore[no-untyped-def]
        """Clip to -bound..bound."""
        assert type(bound) is float, bound
        assert (type(times), type(shifted), type(way)) == (int, bool, str)
        low = 0.0 if way == "up" else -bound * times
        return xp.maximum(xp.minimum(x, bound * times), low)

    kinds = {"x": Array, "bound": float_, "times": int, "shifted": bool, "way": str}
    text = isinstance(float_, str)
    softclip.__annotations__ = {
        n: getattr(kind, "__name__", kind) if text else kind for n, kind in kinds.items()
    }

    def infer(x: Any, *, bound: float, **_: Any) -> Any:
        assert type(bound) is float
        return x

    return op(infer=infer, flops=lambda x, *, bound, **_: ops.find_op("relu").flops([x], {}))(
        softclip
    )


@pytest.mark.parametrize("float_", [float, "float"])
def test_plain_annotations_have_their_plain_meaning(float_: Any) -> None:
    softclip = softclip_of(float_)
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", 5)
        g.output("y", softclip(x, bound=0.5, times=2))
        g.output("z", softclip(x, bound=rsqrt(16), way="up"))
        g.output("plain", softclip(x))
    graph = g.build()
    text = print_graph(graph)
    assert 'softclip(%x) {bound=0.5, times=2, shifted=false, way="both"}' in text
    assert '{bound=0.25, times=1, shifted=false, way="up"}' in text
    assert print_graph(parse_graph(text)) == text
    assert isinstance(graph.nodes[0].attrs["bound"], Exact)
    values = {"x": np.array([-3, -0.5, 0.1, 0.75, 3], np.float32)}
    got = run_graph(graph, values)
    assert got["y"].tolist() == np.clip(values["x"], -1, 1).tolist()
    assert got["z"].tolist() == np.clip(values["x"], 0, 0.25).tolist()
    assert got["plain"].tolist() == np.clip(values["x"], -1, 1).tolist()
    parts = expand(graph, lambda node: node.op == "softclip")
    assert {node.op for node in parts.nodes} == {"minimum", "maximum"}
    assert REGISTRY["softclip"].flops([graph.inputs[0].value.type], graph.nodes[0].attrs) == as_dim(
        5
    )


def test_a_number_that_is_kept_exact_calculates_in_a_body() -> None:
    @op(infer=like_first)
    def within(x: Array, /, *, bound: ExactLike = 1) -> Array:
        """Clip to -bound..2 bound."""
        return xp.maximum(xp.minimum(x, 2 * bound), -bound)  # type: ignore[operator]

    with tfgraph.graph("g") as g:
        g.output("y", within(g.input("x", "f32", 3), bound=rsqrt(3)))  # type: ignore[arg-type]
    y = run_graph(g.build(), {"x": np.array([-9, 0.25, 9], np.float32)})["y"]
    np.testing.assert_array_equal(y, np.float32([-(3**-0.5), 0.25, 2 * 3**-0.5]))


def test_two_numbers_are_no_arrays() -> None:
    with pytest.raises(TypeError, match=r"numbers calculate with \+ - \* /"):
        xp.mul(-1, exact(2))


def registered(annotations: dict[str, Any], default: Any = 1) -> None:
    def odd(x, /, *, k=default):  # type: ignore[no-untyped-def]
        return x

    odd.__annotations__ = annotations
    op(infer=like_first)(odd)


@pytest.mark.parametrize(
    ("annotations", "default", "message"),
    [
        ({}, 1, "op odd: attribute 'k' has no annotation"),
        ({"k": complex}, 1, "op odd: attribute 'k' is annotated complex"),
        ({"k": "double"}, 1, "op odd: attribute 'k' is annotated double"),
        ({"k": "Sequence[double]"}, 1, "op odd: attribute 'k' is annotated Sequence[double]"),
        ({"k": dict[str, int]}, 1, "op odd: attribute 'k' is annotated dict[str, int]"),
        ({"k": int, "x": float}, 1, "op odd: operand 'x' is annotated float"),
        ({"k": int}, 1.5, "op odd: k: expected int, got 1.5, its default"),
        ({"k": float}, None, "op odd: k: expected a number, got None, its default"),
    ],
)
def test_what_says_nothing_is_refused_where_the_op_is_made(
    annotations: dict[str, Any], default: Any, message: str
) -> None:
    with pytest.raises(TfgraphError) as caught:
        registered(annotations, default)
    assert caught.value.message == message
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    if "attribute" in message:
        assert caught.value.hint == (
            "annotate it bool, int, float, str, DType, DimLike or ExactLike; "
            "Sequence[...] of one; and | None"
        )
    assert "odd" not in REGISTRY


@pytest.mark.parametrize("annotation", [Array, "Array", "Any", None, typing.Any])
def test_operands_may_be_annotated_as_any(annotation: Any) -> None:
    registered({"k": int} | ({} if annotation is None else {"x": annotation}))
    assert "odd" in REGISTRY


def test_an_operand_may_be_a_number_where_the_annotation_is_a_class() -> None:
    def scaled(x, by, /):  # type: ignore[no-untyped-def]
        return xp.mul(x, by)

    scaled.__annotations__ = {"x": Array, "by": Array | ExactLike}
    apply = op(infer=like_first)(scaled)
    with tfgraph.graph("g") as g:
        g.output("y", apply(g.input("x", "f32", 2), 3))
    assert "scaled(%x, 3)" in print_graph(g.build())
