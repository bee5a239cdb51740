"""Masks as values: structure, printing, operands."""

from __future__ import annotations

import pytest

from tfgraph.errors import TfgraphError
from tfgraph.ir import Mask, Value, as_dim, tensor
from tfgraph.ir.mask import (
    KINDS,
    All,
    Causal,
    Segments,
    Window,
    alibi,
    bias,
    causal,
    dense,
    padding,
    prefix,
    relative,
    render_mask,
    segments,
    window,
)

keep = Value("keep", tensor("i64", "batch", "seq"))
ids = Value("ids", tensor("i64", "batch", "seq"))
slopes = Value("slopes", tensor("f32", 4))
table = Value("table", tensor("f32", 32, 4))
past = as_dim("past")

ALL = [
    (causal(), "causal()", []),
    (causal("past"), "causal(offset=past)", []),
    (causal(past + 1), "causal(offset=past + 1)", []),
    (causal(0), "causal(offset=0)", []),
    (window(128), "window(left=128)", []),
    (window(left=2, right=0, offset="past"), "window(left=2, right=0, offset=past)", []),
    (window(right=3), "window(right=3)", []),
    (window(), "window()", []),
    (padding(keep), "padding(%keep)", [keep]),
    (prefix(keep), "prefix(%keep)", [keep]),
    (prefix(keep, offset=4), "prefix(%keep, offset=4)", [keep]),
    (segments(ids), "segments(%ids, %ids)", [ids, ids]),
    (segments(ids, keep), "segments(%ids, %keep)", [ids, keep]),
    (dense(keep), "dense(%keep)", [keep]),
    (bias(keep), "bias(%keep)", [keep]),
    (alibi(slopes), "alibi(%slopes)", [slopes]),
    (alibi(slopes, offset=past), "alibi(%slopes, offset=past)", [slopes]),
    (relative(table), "relative(%table)", [table]),
    (
        relative(table, 64, bidirectional=False, offset=past),
        "relative(%table, max_distance=64, bidirectional=false, offset=past)",
        [table],
    ),
    (causal() & padding(keep), "causal() & padding(%keep)", [keep]),
    (
        alibi(slopes) & segments(ids, keep) & window(1),
        "alibi(%slopes) & segments(%ids, %keep) & window(left=1)",
        [slopes, ids, keep],
    ),
]
case = pytest.mark.parametrize(("mask", "text", "tensors"), ALL, ids=[a[1] for a in ALL])


@case
def test_prints(mask: Mask, text: str, tensors: list[Value]) -> None:
    assert str(mask) == text
    assert render_mask(mask, lambda v: f"${v.name}") == text.replace("%", "$")


@case
def test_tensors_and_map(mask: Mask, text: str, tensors: list[Value]) -> None:
    assert list(mask.tensors()) == tensors
    renamed = mask.map(lambda v: Value(v.name.upper(), v.type))
    assert [v.name for v in renamed.tensors()] == [v.name.upper() for v in tensors]
    assert renamed.map(lambda v: Value(v.name.lower(), v.type)) == mask
    assert list(renamed.dims()) == list(mask.dims())


@case
def test_dims_are_mapped(mask: Mask, text: str, tensors: list[Value]) -> None:
    here = mask.map(lambda v: v, lambda d: d.substitute({"past": 7}))
    assert str(here) == text.replace("past + 1", "8").replace("past", "7")
    assert [d.evaluate({"past": 7}) for d in mask.dims()] == [int(d) for d in here.dims()]


def test_every_kind_is_tried() -> None:
    tried = {type(part) for mask, _, _ in ALL for part in mask.parts}
    assert tried == set(KINDS.values())


def test_and_is_flat_and_keeps_order() -> None:
    a, b, c = causal(), padding(keep), window(1)
    assert (a & b) & c == a & (b & c) == All((a, b, c))
    assert (a & b).parts == (a, b)
    assert a.parts == (a,)
    assert a & b != b & a
    assert hash(a & b) == hash(All((a, b)))


def test_fields() -> None:
    assert causal(3) == Causal(as_dim(3))
    assert window(0) == Window(left=as_dim(0), right=None)
    assert segments(ids) == Segments(ids, ids)
    assert causal() != causal(0)


def test_masks_only_intersect() -> None:
    with pytest.raises(TfgraphError, match=r"window\(left=4\) \| .*only intersect") as caught:
        _ = window(4) | causal()  # type: ignore[operator]
    assert "tfgraph.ops.logical_or" in str(caught.value.hint)
    with pytest.raises(TfgraphError, match=r"~causal\(\): masks only intersect"):
        _ = ~causal()
    with pytest.raises(TfgraphError, match="& a Value: both must be masks") as caught:
        _ = causal() & keep  # type: ignore[operator]
    assert "dense(t)" in str(caught.value.hint)
