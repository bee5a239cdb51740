"""The `@op` decorator, and what holds for every op that it registered."""

from __future__ import annotations

import ast
import inspect
import textwrap
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.op_samples import SAMPLES, Sample, takes

from tfgraph.errors import TfgraphError
from tfgraph.fuzz.schema import own_ops
from tfgraph.ir import DType, as_dim, exact, tensor
from tfgraph.ir.mask import causal
from tfgraph.ops import REGISTRY, FloatArray, add, evaluate, find_op, op
from tfgraph.ops.infer import like_first
from tfgraph.ops.trace import Traced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import DimLike, ExactLike, Mask
    from tfgraph.ops import Array

every_op = pytest.mark.parametrize("name", own_ops())
x = FloatArray(np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.fixture
def probe() -> Any:
    """An op with every kind of operand and attribute; its body returns the operands it got."""

    @op(infer=like_first)
    def probe_(
        a: Array,
        b: Array | ExactLike,
        m: Mask | None = None,
        c: Array | None = None,
        /,
        *,
        width: DimLike,
        shape: Sequence[DimLike] = (1,),
        eps: ExactLike = 0.5,
        cap: ExactLike | None = None,
        kind: DType = DType.float32,
        axis: int = -1,
        axes: Sequence[int] = (),
        keep: bool = False,
        mode: str = "plain",
    ) -> Array:
        """Return the first."""
        return a

    return REGISTRY["probe"]


def test_the_name_and_the_place_are_those_of_the_function(probe: Any) -> None:
    assert probe.name == "probe"
    assert probe.doc == "Return the first."
    assert probe.location.file == __file__
    assert find_op("probe") is probe


def test_operands_and_attributes_are_told_apart(probe: Any) -> None:
    assert [p.name for p in probe.operands] == ["a", "b", "m", "c"]
    names = ["width", "shape", "eps", "cap", "kind", "axis", "axes", "keep", "mode"]
    assert list(probe.attributes) == names


def test_attributes_are_read_by_their_annotations(probe: Any) -> None:
    given = {
        "width": "seq", "shape": [2, "seq"], "eps": 1e-6, "cap": Fraction(1, 3), "kind": "f16",
        "axes": [1, 0], "keep": True, "mode": "fast",
    }  # fmt: skip
    assert probe.bind_attrs(given) == {
        "width": as_dim("seq"),
        "shape": (as_dim(2), as_dim("seq")),
        "eps": exact(1e-6),
        "cap": exact(Fraction(1, 3)),
        "kind": DType.float16,
        "axis": -1,
        "axes": (1, 0),
        "keep": True,
        "mode": "fast",
    }
    defaults = probe.bind_attrs({"width": 3})
    assert defaults["eps"] == exact(0.5)
    assert defaults["cap"] is None
    assert defaults["shape"] == (as_dim(1),)
    assert probe.bind_attrs(defaults) == defaults


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "probe: attribute 'width' is missing"),
        ({"width": 1.5}, "probe: width: expected DimLike, got 1.5"),
        ({"width": None}, "probe: width: expected DimLike, got None"),
        ({"width": "a b"}, "probe: width: 'a b' is not a symbol's name"),
        ({"width": [1]}, "probe: width: expected DimLike, got [1]"),
        ({"shape": 3}, "probe: shape: expected Sequence[DimLike], got 3"),
        ({"shape": [2.5]}, "probe: shape: expected DimLike, got 2.5"),
        ({"eps": "small"}, "probe: eps: expected a number, got 'small'"),
        ({"eps": True}, "probe: eps: expected a number, got True"),
        ({"eps": float("nan")}, "probe: eps: nan is not a finite constant"),
        ({"eps": float("inf")}, "probe: eps: inf is not a finite constant"),
        ({"axis": None}, "probe: axis: expected int, got None"),
        ({"axis": 1.0}, "probe: axis: expected int, got 1.0"),
        ({"axis": True}, "probe: axis: expected int, got True"),
        ({"axes": 0}, "probe: axes: expected Sequence[int], got 0"),
        ({"keep": 1}, "probe: keep: expected bool, got 1"),
        ({"mode": 3}, "probe: mode: expected str, got 3"),
        ({"kind": 3}, "probe: kind: expected DType, got 3"),
    ],
    ids=lambda v: "" if isinstance(v, str) else str(v),
)
def test_wrong_attributes(probe: Any, given: dict[str, Any], message: str) -> None:
    complete = {"width": 1, **given} if given else given
    with pytest.raises(TfgraphError) as caught:
        probe.bind_attrs(complete)
    assert caught.value.message == message


def test_wrong_names_get_the_nearest(probe: Any) -> None:
    with pytest.raises(TfgraphError, match="probe has no attribute 'widht'") as caught:
        probe.bind_attrs({"widht": 1})
    assert caught.value.hint == "did you mean 'width'?"
    with pytest.raises(TfgraphError, match="unknown op 'sofmax'") as caught:
        find_op("sofmax")
    assert caught.value.hint == "did you mean 'softmax'?"
    with pytest.raises(TfgraphError, match="unknown dtype 'f33'"):
        probe.bind_attrs({"width": 1, "kind": "f33"})


def test_operands_are_bound_by_kind(probe: Any) -> None:
    assert probe.bind_operands((x, x)) == (x, x)
    assert probe.bind_operands((x, 2)) == (x, exact(2))
    assert probe.bind_operands((x, np.float32(0.5))) == (x, exact(0.5))
    assert probe.bind_operands((x, np.int64(3))) == (x, exact(3))
    assert probe.bind_operands((x, np.array(3))) == (x, exact(3))
    assert probe.bind_operands((x, Fraction(1, 3))) == (x, exact(Fraction(1, 3)))
    assert probe.bind_operands((x, 0.1, None, None)) == (x, exact(0.1))
    assert probe.bind_operands((x, x, None, x)) == (x, x, None, x)
    assert probe.bind_operands((x, x, causal())) == (x, x, causal())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "probe: operand 'a' is missing"),
        ((x,), "probe: operand 'b' is missing"),
        ((2, x), "probe: 'a' must be a tensor, not a number"),
        ((None, x), "probe: 'a' must be given"),
        ((x, None), "probe: 'b' must be given"),
        ((x, x, x), "probe: 'm' is a tensor f32[2,3], expected a mask"),
        ((causal(), x), "probe: 'a' is the mask causal, expected a tensor"),
        ((x, x, None, causal()), "probe: 'c' is the mask causal, expected a tensor"),
        ((x, x, None, x, x), "probe takes 4 operands"),
        ((x, float("nan")), "probe: b: nan is not a finite constant"),
        ((x, float("-inf")), "probe: b: -inf is not a finite constant"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_operands(probe: Any, given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TfgraphError) as caught:
        probe.bind_operands(given)
    assert caught.value.message == message


def test_an_op_is_registered_once() -> None:
    with pytest.raises(TfgraphError, match="op 'add' is registered twice") as caught:

        @op(infer=like_first)
        def add_(x: Array, /) -> Array:
            return x

    assert "elementwise.py" in str(caught.value.hint)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_operands_are_positional_only() -> None:
    with pytest.raises(TypeError, match="operands are positional-only"):

        @op(infer=like_first)
        def strange(x: Array) -> Array:
            return x


def test_an_op_needs_a_tensor() -> None:
    with pytest.raises(TfgraphError, match="add: no operand is a tensor of a graph or an Array"):
        add(1, 2)


def test_numbers_take_the_dtype_of_the_tensor_and_must_fit() -> None:
    types = find_op("add").result_types
    for kind, fits, too_big in [
        ("i8", (-128, 127), (-129, 128)),
        ("u8", (0, 255), (-1, 256)),
        ("i4", (-8, 7), (-9, 8)),
        ("i32", (-(2**31), 2**31 - 1), (2**31,)),
        ("i64", (-(2**63), 2**63 - 1), (2**63,)),
    ]:
        for number in fits:
            assert types((tensor(kind, 2), exact(number)), {}) == (tensor(kind, 2),)
            assert types((exact(number), tensor(kind, 2)), {}) == (tensor(kind, 2),)
        for number in too_big:
            with pytest.raises(TfgraphError, match=rf"add: {number} does not fit {kind}"):
                types((tensor(kind, 2), exact(number)), {})
    with pytest.raises(TfgraphError, match=r"add: 0\.5 is not an integer"):
        types((tensor("i8", 2), exact(0.5)), {})


# What holds for every op.


def test_at_most_fifty_core_ops() -> None:
    assert len(own_ops("core")) <= 50
    assert len(own_ops("core")) + len(own_ops("composite")) == len(own_ops())


def test_every_op_has_a_sample() -> None:
    assert set(SAMPLES) == set(own_ops())


@every_op
def test_every_op_has_a_docstring(name: str) -> None:
    definition = REGISTRY[name]
    assert definition.doc
    assert definition.doc.isascii() or definition.doc.isprintable()


def test_composite_bodies_call_only_ops() -> None:
    for name in own_ops("composite"):
        source = textwrap.dedent(inspect.getsource(REGISTRY[name].body))
        used = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
        assert "xp" not in used, name
        assert "np" not in used, name


@pytest.mark.parametrize("name", own_ops("composite"))
def test_composite_bodies_expand_to_other_ops(name: str) -> None:
    """The expansion is finite, so every composite op ends in core ops."""

    def deeper(op_name: str, path: tuple[str, ...]) -> None:
        assert op_name not in path
        if REGISTRY[op_name].kind == "core":
            return
        sample = Sample(op_name, DType.float32, 1)
        body = REGISTRY[op_name].body
        before = len(sample.builder.nodes)
        with sample.builder:
            bound = REGISTRY[op_name].bind_operands(sample.operands)
            body(*bound, **REGISTRY[op_name].bind_attrs(sample.attrs))
        made = sample.builder.nodes[before:]
        assert made
        for node in made:
            deeper(node.op, (*path, op_name))

    deeper(name, ())


LOGICAL = ("logical_and", "logical_or", "logical_not")


@every_op
def test_every_op_takes_float32_or_bool(name: str) -> None:
    if name in LOGICAL:
        assert takes(REGISTRY[name]) == (DType.bool_,)
    else:
        floats = {DType.float64, DType.float32, DType.float16, DType.bfloat16}
        assert floats <= set(takes(REGISTRY[name]))


@every_op
def test_infers_what_its_body_gives(name: str) -> None:
    """On every dtype that it takes: symbolic types at the sizes are the types of the results."""
    for kind in takes(REGISTRY[name]):
        for seed in range(12):
            sample = Sample(name, kind, seed)
            inferred = [
                r.type.with_shape(d.evaluate(sample.sizes) for d in r.shape) for r in sample.results
            ]
            like = FloatArray(np.zeros(1, np.float32))
            ((_, results),) = evaluate(sample.graph, sample.given, sample.sizes, like)
            assert [r.type for r in results] == inferred, (kind, seed)
            assert all(isinstance(r.data, np.ndarray | np.generic) for r in results)


@every_op
def test_a_traced_call_emits_the_node_of_its_name(name: str) -> None:
    for kind in takes(REGISTRY[name])[:2]:
        sample = Sample(name, kind, 3)
        (node,) = sample.graph.nodes
        assert node.op == name
        assert list(node.attrs) == list(REGISTRY[name].attributes)
        assert all(isinstance(r, Traced) for r in sample.results)
        assert node.location is not None
        assert node.location.file.endswith("op_samples.py")


@every_op
def test_flops_are_a_dimension_of_the_symbols(name: str) -> None:
    from tfgraph.ops.trace import map_traced

    kind = takes(REGISTRY[name])[0]
    for seed in range(5):
        sample = Sample(name, kind, seed)
        definition = REGISTRY[name]
        types = [map_traced(o, lambda t: t.type) for o in definition.bind_operands(sample.operands)]
        flops = definition.flops(types, definition.bind_attrs(sample.attrs))
        assert flops.evaluate(sample.sizes) >= 0


def test_flops_of_the_heavy_ops() -> None:
    flops = find_op("linear").flops((tensor("f32", "b", "s", 8), tensor("f32", 8, 32)), {})
    assert str(flops) == "512*b*s"
    flops = find_op("matmul").flops((tensor("f32", "b", 4, 8), tensor("f32", "b", 8, 3)), {})
    assert flops == as_dim("b") * 4 * 8 * 3 * 2
    q, k = tensor("f32", "b", "s", 12), tensor("f32", "b", "t", 6)
    attrs = find_op("attention").bind_attrs({"heads": 4, "kv_heads": 2, "scale": 1})
    # Q K^T and P V, each 2 * heads * s * t * 3.
    assert find_op("attention").flops((q, k, k), attrs) == as_dim("b") * "s" * "t" * 48
