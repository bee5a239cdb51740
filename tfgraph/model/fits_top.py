"""What fits together in what stands on top of a model's stacks: poolers, heads, and the type.

May import: schema, problem, ir.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfgraph.ir import DType, dtype
from tfgraph.model.problem import Problem

if TYPE_CHECKING:
    from tfgraph.model.schema import HighLevel

_LOGITS = ("lm", "mlm")
_CLASSES = ("classifier", "token_classifier")
_KINDS = {
    "tied": _LOGITS,
    "scale": _LOGITS,
    "softcap": _LOGITS,
    "bias": (*_LOGITS, *_CLASSES, "span"),
    "transform": ("mlm", *_CLASSES, "span"),
    "transform_bias": ("mlm", *_CLASSES, "span"),
    "probabilities": (*_LOGITS, *_CLASSES, "detector"),
}
"""Which kinds of heads a key is for."""


def check_top(spec: HighLevel) -> Iterator[Problem]:
    """What does not fit together in pooler, head and type."""
    yield from _check_pooler(spec)
    yield from _check_head(spec)
    if spec.tf32 and dtype(spec.dtype) is not DType.float32:
        message = f"is for float32, and dtype is {spec.dtype}"
        yield Problem(("tf32",), message, ("dtype",))


def _check_pooler(spec: HighLevel) -> Iterator[Problem]:
    pooler, depends = spec.pooler, ("pooler", "kind", "vocabulary", "stem")
    if pooler is None:
        return
    for key, kinds in (("token", ("end", "last")), ("padding_id", ("last",))):
        if getattr(pooler, key) is not None and pooler.kind not in kinds:
            yield Problem(("pooler", key), f"is for {' and '.join(kinds)}", depends)
    if pooler.token is not None and pooler.padding_id is not None:
        yield Problem(("pooler", "padding_id"), "the last token is given by its id", depends)
    by_id = pooler.kind == "end" or pooler.token is not None or pooler.padding_id is not None
    if by_id and (spec.vocabulary is None or (spec.stem and spec.kind == "encoder")):
        yield Problem(("pooler",), "tokens are told by their ids", depends, "vocabulary: 30522")
    if pooler.kind == "mean" and spec.kind == "encoder-decoder":
        yield Problem(("pooler", "kind"), "mean is for one stack", depends)


def _check_head(spec: HighLevel) -> Iterator[Problem]:
    head = spec.head
    if head is None:
        return
    pretrains = head.kind == "mlm" and head.labels is not None
    classifies = head.kind in _CLASSES
    if classifies != (head.labels is not None) and not pretrains:
        yield Problem(
            ("head",),
            "a classifier needs labels, the number of classes"
            if classifies
            else "labels are for a classifier",
            ("head",),
            f"{{kind: {head.kind}, labels: 2}}" if classifies else None,
        )
    if pretrains and spec.pooler is None:
        message = "labels are of what a pooler makes"
        yield Problem(("head", "labels"), message, ("head", "pooler"), "pooler: true")
    for key, kinds in _KINDS.items():
        if head.kind not in kinds and key in head.model_fields_set:
            *others, last = kinds
            message = f"is for {', '.join(others)} and {last}"
            yield Problem(("head", key), message, ("head",))
    size = spec.embedding.size
    transformed = head.kind == "mlm" and head.transform is not False
    if (
        head.kind in _LOGITS
        and head.tied
        and size not in (None, spec.width)
        and not transformed
        and not spec.embedding.project_back
    ):
        yield Problem(
            ("head",),
            f"cannot be tied: the embedding's size {size} is not the width {spec.width}",
            ("head", "embedding", "width"),
            "tied: false",
        )
