"""Properties that hold of every Transformer, on every backend.

The bits of a compiled model's rows, whatever its batch-mates, padding and pieces of a prompt, are
held by test_bits; what a mask hides by test_masks; what each pass keeps by tests/passes. Here are
the same properties as values, on the reference too, and those that stand nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.small_model import small_model
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.api.fuse import fuse
from tfgraph.backends.base import Target
from tfgraph.ir import Output, as_dim, rsqrt
from tfgraph.ir.mask import alibi, causal, padding
from tfgraph.passes import DEFAULT_PIPELINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.backends.base import Executable
    from tfgraph.ir import Graph, Value

NDArray = np.ndarray[Any, Any]
BACKENDS = ("numpy", "cpu")
ROUNDINGS = 4096  # of a few layers in a row
HEADS, SIZE, KEYS = 4, 5, 66


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def models(backend: str) -> Iterator[tuple[Executable, Executable]]:
    """The small model after the passes and before, with every value that both have as an output."""
    graph = small_model()
    fused = fuse(graph, Target("cpu"), DEFAULT_PIPELINE).compiled
    theirs = {v for node in graph.nodes for v in node.outputs}
    shared = [v for n in fused.nodes for v in n.outputs if v in theirs - graph.weight_values]
    assert len(shared) > 10
    runs = [tfgraph.compile(with_taps(g, shared), backend, passes="dce") for g in (fused, graph)]
    yield runs[0], runs[1]
    for run in runs:
        run.close()


def with_taps(graph: Graph, values: list[Value]) -> Graph:
    """The graph with each value as a further output, called `value:NAME`."""
    taps = tuple(Output(f"value:{v.name}", v) for v in values)
    return replace(graph, outputs=(*graph.outputs, *taps))


def feeds(batch: int, seq: int) -> dict[str, NDArray]:
    rng = np.random.default_rng([batch, seq])
    lengths = rng.integers(1, seq + 1, (batch, 1))
    return {
        "ids": rng.integers(0, 90, (batch, seq)),
        "keep": (np.arange(seq) < lengths).astype(np.int64),
    }


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (2, 7), (3, 65)])
def test_a_fused_model_equals_its_unfused_self_at_every_value_of_both(
    models: tuple[Executable, Executable], batch: int, seq: int
) -> None:
    got, want = (model(**feeds(batch, seq)) for model in models)
    assert list(got) == list(want)
    for name, value in want.items():
        assert_close(got[name], value, length=ROUNDINGS, name=name)


@pytest.mark.parametrize("seq", [1, 13, 65])
def test_a_batch_of_one_equals_its_row_in_a_batch(
    models: tuple[Executable, Executable], seq: int
) -> None:
    given = feeds(3, seq)
    together = models[0](**given)
    for row in range(3):
        alone = models[0](**{name: array[row : row + 1] for name, array in given.items()})
        for name in ("decoded", "hidden", "logits"):
            assert_close(together[name][row], alone[name][0], length=ROUNDINGS, name=name)


@pytest.mark.parametrize("more", [1, 7, 64])
def test_padding_changes_nothing(models: tuple[Executable, Executable], more: int) -> None:
    """Of what is decoded: the encoder layer on top has no mask."""
    given = feeds(2, 9) | {"keep": np.ones((2, 9), np.int64)}
    padded = {name: np.pad(array, ((0, 0), (0, more))) for name, array in given.items()}
    got = models[0](**padded)["decoded"][:, :9]
    assert_close(got, models[0](**given)["decoded"], length=ROUNDINGS)


def attention(names: dict[str, str]) -> Graph:
    """Attention with a cache; each input has the name that `names` gives it, or its own."""
    with ops.graph(names.get("graph", "g")) as g:

        def given(name: str, dtype: str, *shape: Any) -> Any:
            return g.input(names.get(name, name), dtype, *shape)

        keys = as_dim("past") + "seq"
        q = given("q", "f32", "batch", "seq", HEADS * SIZE)
        k, v = (given(n, "f32", "batch", keys, HEADS * SIZE) for n in "kv")
        m = causal("past") & padding(given("keep", "bool", "batch", keys))
        m = m & alibi(given("slopes", "f32", HEADS), "past")
        y = ops.attention(q, k, v, m, heads=HEADS, kv_heads=HEADS, scale=rsqrt(SIZE))
        g.output("y", ops.gelu(y))
    return g.build()


@pytest.fixture(scope="module")
def attend(backend: str) -> Iterator[Executable]:
    with tfgraph.compile(attention({}), backend) as run:
        yield run


def attended(queries: int, past: int) -> dict[str, NDArray]:
    rng = np.random.default_rng([queries, past])
    width, keys = HEADS * SIZE, past + queries
    return {
        "q": rng.standard_normal((2, queries, width), np.float32),
        "k": rng.standard_normal((2, keys, width), np.float32),
        "v": rng.standard_normal((2, keys, width), np.float32),
        "keep": rng.random((2, keys)) < 0.7,
        "slopes": rng.random(HEADS, np.float32),
    }


@pytest.mark.parametrize(("queries", "past"), [(1, 1), (7, 3), (65, 1)])
def test_permuting_heads_commutes(attend: Executable, queries: int, past: int) -> None:
    given = attended(queries, past)
    order = np.array([2, 0, 3, 1])

    def permuted(x: NDArray) -> NDArray:
        heads = x.reshape(*x.shape[:-1], HEADS, -1)[..., order, :]
        return np.ascontiguousarray(heads.reshape(x.shape))

    other = {name: permuted(given[name]) for name in "qkv"}
    got = attend(**given | other | {"slopes": given["slopes"][order]})["y"]
    np.testing.assert_array_equal(got, permuted(attend(**given)["y"]))


def test_the_cached_equals_the_uncached(attend: Executable) -> None:
    """The last queries alone, behind the others as a cache, against all queries at once."""
    whole = attended(KEYS - 1, 1)
    want = attend(**whole)["y"]
    for new in (1, 2, 31, 64):
        part = whole | {"q": whole["q"][:, -new:]}
        assert_close(attend(**part)["y"], want[:, -new:], length=KEYS)


def test_renaming_changes_nothing(attend: Executable, backend: str) -> None:
    """Neither names of inputs nor those of values: odd ones, and in another order of letters."""
    names = {"q": "v", "k": "größe 1", "v": "q", "keep": "return", "slopes": "0x"}
    graph = attention({**names, "graph": "other"})
    fresh = {v: replace(v, name=f"z{i}") for i, v in enumerate(_made(graph))}

    def renamed(value: Value) -> Value:
        return fresh.get(value, value)

    def output(o: Output) -> Output:
        return replace(o, value=renamed(o.value))

    nodes = [
        replace(n.map_values(renamed), outputs=tuple(map(renamed, n.outputs))) for n in graph.nodes
    ]
    graph = replace(graph, nodes=tuple(nodes), outputs=tuple(map(output, graph.outputs)))
    given = attended(9, 4)
    with tfgraph.compile(graph, backend) as run:
        got = run(**{names.get(name, name): array for name, array in given.items()})
    np.testing.assert_array_equal(got["y"], attend(**given)["y"])


def _made(graph: Graph) -> list[Value]:
    return [v for node in graph.nodes for v in node.outputs]
