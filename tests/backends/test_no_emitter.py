"""An op that no kernel runs and whose body takes arrays alone: the reference runs it, and compiled
backends say where to register a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ops import REGISTRY, FloatArray
from tfgraph.ops.define import op
from tfgraph.ops.evaluate import Unexpandable, expand
from tfgraph.ops.infer import like_first

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tfgraph.ir import Graph
    from tfgraph.ops import Array


def of_data(x: Array, /) -> Array:
    """The sine, of NumPy's array."""
    return FloatArray(np.sin(x.data))  # type: ignore[attr-defined]


def of_numpy(x: Array, /) -> Array:
    """The sine, by NumPy's function."""
    return np.sin(x) if not isinstance(x, FloatArray) else FloatArray(np.sin(x.data))  # type: ignore[call-overload, no-any-return]


def of_python(x: Array, /) -> Array:
    """The sine, by Python's operators on a dict."""
    return FloatArray(np.sin({"x": x}["x" if isinstance(x, FloatArray) else "y"].data))  # type: ignore[attr-defined]


def of_nothing(x: Array, /) -> Array:
    """The sine, forgotten for values of a graph."""
    return FloatArray(np.sin(x.data)) if isinstance(x, FloatArray) else None  # type: ignore[return-value]


BODIES: dict[Callable[..., Any], str] = {
    of_data: "a value of a graph has no attribute 'data'",
    of_numpy: "numpy.sin cannot compute with a value of a graph: it has no numbers",
    of_python: "KeyError: 'y'",
    of_nothing: "it does not return such values",
}


@pytest.fixture(params=["core", "composite"])
def kind(request: pytest.FixtureRequest) -> Generator[str]:
    """The kind of the op; the registry is as before afterwards."""
    before = dict(REGISTRY)
    yield request.param
    REGISTRY.clear()
    REGISTRY.update(before)


def graph_of(body: Callable[..., Any], kind: str) -> Graph:
    made = op(infer=like_first, kind=kind)(body)
    with tfgraph.graph("g") as g:
        g.output("y", ops.exp(made(g.input("x", "f32", 3))))
    return g.build()


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.__name__)
def test_the_error_says_where_to_register(kind: str, body: Callable[..., Any]) -> None:
    graph = graph_of(body, kind)
    x = np.array([0, 1, 2], np.float32)
    got = tfgraph.compile(graph, "numpy")(x=x)["y"]
    assert_close(got, np.exp(np.sin(x)), length=2)
    with pytest.raises(TfgraphError) as caught:
        tfgraph.compile(graph, "cpu")
    error = caught.value
    name = body.__name__
    assert error.message == (
        f"the cpu backend cannot run {name} on f32[3]: its body fails on values of a graph: "
        f"{BODIES[body]}"
    )
    assert error.hint == (
        f"register one: @tfgraph.backends.tvm.lower.emitter('{name}', target='cpu')"
    )
    assert error.location == graph.nodes[0].location
    assert isinstance(error.__cause__, Unexpandable)
    with pytest.raises(Unexpandable, match=f"{name} has no parts"):
        expand(graph, lambda node: True)
