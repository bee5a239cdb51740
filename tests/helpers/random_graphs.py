"""Random valid graphs for hypothesis: every op by its schema, symbolic sizes, masks, odd names."""

from __future__ import annotations

import inspect
from typing import Any

from hypothesis import strategies as st

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Fill, as_dim, dim_max, dim_min, exact, rsqrt, sqrt
from tfgraph.ir import mask as masks
from tfgraph.ops import Builder, Traced, graph
from tfgraph.ops.define import REGISTRY, OpDef

NAMES = st.text(st.characters(exclude_categories=()), max_size=12)
SYMBOLS = ("batch", "seq", "past", "größe")
SIZES = st.recursive(
    st.sampled_from(SYMBOLS).map(as_dim) | st.integers(1, 9).map(as_dim),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, b: a // b if b.terms else a, inner, inner),
        st.builds(dim_min, inner, inner),
        st.builds(dim_max, inner, inner),
    ),
    max_leaves=4,
)
LENGTHS = SIZES.filter(lambda d: not d.is_const or int(d) >= 1)
CONSTANTS = st.one_of(
    st.integers(-(10**20), 10**20).map(exact),
    st.fractions().map(exact),
    st.floats(allow_nan=False, allow_infinity=False).map(exact),
    st.builds(
        lambda f, a, b: f * sqrt(a) * rsqrt(b),
        st.fractions().map(exact),
        st.fractions(1),
        st.integers(1, 99),
    ),
)


@st.composite
def graphs(draw: st.DrawFn, nodes: int = 12) -> Any:
    """A graph with a few inputs and weights, up to `nodes` nodes and one to three outputs."""
    with graph("random") as g:
        g.symbol("batch", 1, draw(st.integers(64, 2**40)), draw(st.none() | st.integers(1, 64)))
        g.symbol("past", draw(st.integers(1, 8)))
        if draw(st.booleans()):
            g.constrain(draw(SIZES), draw(st.sampled_from(["==", "<="])), draw(SIZES))
        pool = _sources(draw, g)
        for _ in range(draw(st.integers(1, nodes))):
            for value in _apply(draw, g, pool):
                if draw(st.integers(0, 3)) == 0:
                    _label(draw, g, value)
                pool.append(value)
        for i in range(draw(st.integers(1, 3))):
            name = draw(NAMES | st.sampled_from(["y", "last_hidden_state", "0", "return"]))
            g.output(f"{name}{i or ''}", draw(st.sampled_from(pool)))
    return g.build()


def _sources(draw: st.DrawFn, g: Builder) -> list[Traced]:
    """Inputs of which the usual ops can be made, one of any shape, and some weights."""
    shape = draw(st.lists(LENGTHS, max_size=3))
    taken = ("x", "ids", "keep", "w", "row")
    odd = draw(NAMES.filter(lambda name: name not in taken and not name.isdigit()))
    return [
        g.input("x", "f32", "batch", "seq", 8),
        g.input("ids", "i64", "batch", "seq", fill=Fill("ids", exact(draw(st.integers(1, 99))))),
        g.input("keep", "bool", "batch", "seq", fill=Fill("prefix")),
        g.input(odd, draw(st.sampled_from(list(DType))), "past", "größe", *shape),
        g.param("w", "f32", 8, 8, fill=Fill("normal", draw(CONSTANTS))),
        g.param("row", "f32", 8, fill=Fill("zeros")),
    ]


def _apply(draw: st.DrawFn, g: Builder, pool: list[Traced]) -> list[Traced]:
    """The results of one more op on values of the pool; none where the draw doesn't fit the op."""
    recipe = draw(st.sampled_from(RECIPES + [None] * len(RECIPES)))
    try:
        if recipe is not None:
            result = recipe(draw, g, *pool[:6])
        else:
            definition = REGISTRY[draw(st.sampled_from(sorted(REGISTRY)))]
            first = draw(st.sampled_from(pool))
            operands = [_operand(draw, p, [first] * len(pool) + pool) for p in definition.operands]
            result = g.apply(definition.name, *operands, **_attrs(draw, definition, operands))
    except (TfgraphError, ZeroDivisionError, TypeError, AttributeError):
        return []
    return list(result) if isinstance(result, tuple) else [result]


def _operand(draw: st.DrawFn, parameter: inspect.Parameter, pool: list[Traced]) -> Any:
    annotation = str(parameter.annotation)
    if "Mask" in annotation:
        return _mask(draw, pool[1], pool[2])
    if parameter.default is None and draw(st.booleans()):
        return None
    if "ExactLike" in annotation and draw(st.integers(0, 2)) == 0:
        return draw(CONSTANTS)
    return draw(st.sampled_from(pool))


def _attrs(draw: st.DrawFn, definition: OpDef, operands: list[Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, parameter in definition.attributes.items():
        if parameter.default is not parameter.empty and draw(st.booleans()):
            continue
        annotation = str(parameter.annotation)
        if name == "perm":
            rank = len(operands[0].shape)
            given[name] = tuple(draw(st.permutations(range(rank))))
        elif name == "activation":
            given[name] = draw(st.sampled_from(["relu", "gelu"]))
        elif "Sequence[DimLike]" in annotation:
            given[name] = tuple(draw(st.lists(LENGTHS, max_size=3)))
        elif "DimLike" in annotation:
            given[name] = draw(LENGTHS)
        elif "ExactLike" in annotation:
            given[name] = draw(CONSTANTS)
        elif "DType" in annotation:
            given[name] = draw(st.sampled_from(list(DType)))
        elif "bool" in annotation:
            given[name] = draw(st.booleans())
        else:
            given[name] = draw(st.integers(-2, 4))
    return given


def _mask(draw: st.DrawFn, ids: Traced, keep: Traced) -> masks.Mask:
    offset = draw(SIZES)
    parts = draw(
        st.lists(
            st.sampled_from(
                [
                    masks.causal(),
                    masks.causal(offset),
                    masks.window(3),
                    masks.window(left=2, right=0, offset=offset),
                    masks.window(right=4),
                    masks.padding(keep),
                    masks.padding(ids),
                    masks.segments(ids),
                ]
            ),
            min_size=1,
            max_size=3,
        )
    )
    result = parts[0]
    for part in parts[1:]:
        result = result & part
    return result


def _scores(draw: st.DrawFn, g: Builder, x: Any, ids: Any, keep: Any, *rest: Any) -> Any:
    scores = g.apply("matmul", x, g.apply("transpose", x, perm=(0, 2, 1)))
    return g.apply("mask", g.apply("mul", scores, draw(CONSTANTS)), _mask(draw, ids, keep))


def _fused_attention(draw: st.DrawFn, g: Builder, x: Any, ids: Any, keep: Any, *rest: Any) -> Any:
    cap = draw(st.none() | st.integers(1, 50))
    m = draw(st.none() | st.just(_mask(draw, ids, keep)))
    scale = draw(CONSTANTS)
    return g.apply("attention", x, x, x, m, heads=4, kv_heads=4, scale=scale, softcap=cap)


def _add_norm(draw: st.DrawFn, g: Builder, x: Any, *rest: Any) -> Any:
    row = rest[-1]
    rows = [draw(st.sampled_from([row, None])) for _ in range(3)]
    eps = draw(st.fractions(0, 1).map(exact))
    return g.apply("add_layer_norm", x, x, *rows, eps=eps, keep_sum=draw(st.booleans()))


def _project(draw: st.DrawFn, g: Builder, x: Any, *rest: Any) -> Any:
    *_, w, row = rest
    bias = draw(st.sampled_from([row, None]))
    return g.apply("linear_activation", x, w, bias, activation="gelu")


def _topk(draw: st.DrawFn, g: Builder, x: Any, *rest: Any) -> Any:
    return g.apply("topk", x, k=draw(st.integers(1, 8)))


def _split(draw: st.DrawFn, g: Builder, x: Any, *rest: Any) -> Any:
    batch, seq, _ = x.shape
    shape: tuple[Dim, ...] = (batch, seq, as_dim(2), as_dim(4))
    return g.apply("reshape", x, shape=draw(st.permutations(shape)))


def _label(draw: st.DrawFn, g: Builder, value: Traced) -> None:
    with g.scope(draw(st.sampled_from(["layers.0", "a b", "größe"]))):
        g.label(value, f"{draw(NAMES)}.{value.value.name}")


def _lookup(draw: st.DrawFn, g: Builder, x: Any, ids: Any, keep: Any, *rest: Any) -> Any:
    if draw(st.booleans()):
        return g.apply("embedding", ids, rest[1])
    return g.apply("where", g.apply("equal", ids, 3), ids, g.apply("cast", keep, dtype="i64"))


RECIPES: list[Any] = [_scores, _fused_attention, _add_norm, _project, _topk, _split, _lookup]
