"""What fits together in a model file that is right key by key.

May import: schema, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Exact, dtype
from tfgraph.ir.legal import check_fits, rounds_to_zero

if TYPE_CHECKING:
    from tfgraph.model.schema import HighLevel

# The defaults of DSL and YAML alike: without a range, sizes go up to these.
DEFAULT_BATCH, DEFAULT_LENGTH = 1024, 512


@dataclass(frozen=True)
class Problem:
    """Something that does not fit together: at a path, depending on some top-level keys."""

    path: tuple[str | int, ...]
    message: str
    depends: tuple[str, ...]
    hint: str | None = None


def check_high_level(spec: HighLevel) -> Iterator[Problem]:
    """What does not fit together in a model that is right key by key."""
    yield from _check_heads(spec)
    yield from _check_embedding(spec)
    yield from _check_positions(spec)
    yield from _check_layers(spec)
    yield from _check_masks(spec)
    yield from _check_constants(spec)
    yield from _check_head(spec)
    yield from _check_generation(spec)
    yield from _check_symbols(spec)


def _check_heads(spec: HighLevel) -> Iterator[Problem]:
    heads = heads_of(spec)
    if spec.head_size is None and spec.width % heads:
        near = min(_divisors(spec.width), key=lambda d: (abs(d - heads), d))
        yield Problem(
            ("width",) if spec.heads is None else ("heads",),
            f"{heads} heads do not divide the width {spec.width}",
            ("heads", "width", "head_size"),
            f"{near} would; or give head_size",
        )
    if spec.kv_heads is not None and heads % spec.kv_heads:
        yield Problem(
            ("kv_heads",),
            f"{heads} query heads are not a multiple of {spec.kv_heads} key/value heads",
            ("heads", "width", "kv_heads"),
        )


def heads_of(spec: HighLevel) -> int:
    """The number of heads: one for every 64 of the width unless given."""
    return max(1, spec.width // 64) if spec.heads is None else spec.heads


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _check_embedding(spec: HighLevel) -> Iterator[Problem]:
    if spec.embedding.token_types > 1 and spec.kind == "encoder-decoder":
        yield Problem(
            ("embedding", "token_types"),
            "is for one stack, with one input token_type_ids",
            ("embedding", "kind"),
        )
    if spec.vocabulary is None:
        for key in ("embedding", "head"):
            if key in spec.model_fields_set and getattr(spec, key) is not None:
                if key == "head" and spec.head and spec.head.kind in ("classifier", "pointer"):
                    continue
                yield Problem(
                    (key,),
                    "needs a vocabulary",
                    (key, "vocabulary"),
                    f"vocabulary: 30522, or leave {key} out",
                )


_OF_POSITIONS = {
    "max": ("sinusoidal", "learned", "rotary"),
    "offset": ("learned",),
    "padding_id": ("learned",),
    "layout": ("sinusoidal", "rotary"),
    "base": ("rotary",),
    "size": ("rotary",),
    "scaling": ("rotary",),
    "buckets": ("relative",),
    "max_distance": ("relative",),
}
"""Which kinds of positions a key is for."""


def _check_positions(spec: HighLevel) -> Iterator[Problem]:
    positions, depends = spec.positions, ("positions",)
    if spec.vocabulary is None and positions.padding_id is not None:
        yield Problem(
            ("positions", "padding_id"), "needs a vocabulary", ("positions", "vocabulary")
        )
    for key, kinds in _OF_POSITIONS.items():
        default = type(positions).model_fields[key].default
        if positions.kind in kinds or getattr(positions, key) == default:
            continue
        hint = f"kind: {kinds[-1]}, or leave {key} out"
        message = (
            f"is for {' or '.join(filter(None, [', '.join(kinds[:-1]), kinds[-1]]))} positions"
        )
        if positions.kind == "none" and key == "max":
            message, hint = "there are no positions", "leave max out, or kind: learned"
        yield Problem(("positions", key), message, depends, hint)
    if positions.kind == "learned" and positions.max is None:
        yield Problem(
            ("positions",), "learned positions need a number of rows", depends, "max: 512"
        )
    if positions.kind == "rotary":
        yield from _check_rotary(spec)
    if positions.kind == "relative":
        sides = 1 if spec.kind == "decoder" else 2
        if positions.buckets % sides or positions.buckets < 2 * sides:
            yield Problem(
                ("positions", "buckets"), "expected an even number of at least 4", depends
            )
        elif positions.max_distance <= positions.buckets // 2:
            yield Problem(
                ("positions", "max_distance"),
                f"expected more than half of the {positions.buckets} buckets",
                depends,
            )


def _check_rotary(spec: HighLevel) -> Iterator[Problem]:
    positions = spec.positions
    head = spec.head_size or spec.width // heads_of(spec)
    size = positions.size or head
    depends = ("positions", "heads", "head_size", "width")
    path = ("positions", "size") if positions.size else ("positions",)
    if size > head:
        yield Problem(path, f"{size} is more than the head size {head}", depends)
    elif size % 2:
        yield Problem(path, f"rotary positions turn pairs, and {size} is odd", depends, "size: 2")
    if float(positions.base) < 1:
        yield Problem(("positions", "base"), "expected at least 1", depends)
    scaling = positions.scaling
    if scaling is None:
        return
    path = ("positions", "scaling")
    if scaling.kind == "llama3" and scaling.original is None:
        yield Problem(path, "llama3 needs the original length", depends, "original: 8192")
    if scaling.kind == "llama3" and scaling.low.factor >= scaling.high.factor:
        yield Problem((*path, "low"), "expected less than high", depends)
    for key in ("original", "low", "high"):
        if scaling.kind != "llama3" and key in scaling.model_fields_set:
            yield Problem((*path, key), "is for llama3", depends)


def _check_layers(spec: HighLevel) -> Iterator[Problem]:
    norm, experts = spec.norm, spec.experts
    if norm.kind != "layer_norm" and norm.bias:
        yield Problem(("norm", "bias"), f"{norm.kind} has no bias", ("norm",))
    if norm.unit_offset and not (norm.scale and norm.kind != "none"):
        yield Problem(("norm", "unit_offset"), "there is no scale", ("norm",))
    if "shared" in norm.model_fields_set and norm.placement != "parallel":
        yield Problem(("norm", "shared"), "is for parallel", ("norm",), "placement: parallel")
    if norm.kind == "none":
        for path, given in (
            (("final_norm",), spec.final_norm),
            (("embedding", "norm"), spec.embedding.norm),
        ):
            if given:
                yield Problem(path, "there is no norm", ("norm", path[0]), "norm: layer_norm")
    if norm.placement == "parallel" and spec.kind == "encoder-decoder":
        yield Problem(
            ("norm", "placement"),
            "the parts of a layer with memory follow each other",
            ("norm", "kind"),
        )
    if spec.residual_scale is not None and not spec.residual:
        yield Problem(("residual_scale",), "there is no residual", ("residual", "residual_scale"))
    if experts is not None and experts.active > experts.count:
        yield Problem(
            ("experts",), f"{experts.active} active experts of {experts.count}", ("experts",)
        )


def _check_masks(spec: HighLevel) -> Iterator[Problem]:
    if spec.mask == [] and spec.kind == "decoder":
        yield Problem(
            ("mask",), "a decoder is causal", ("mask", "kind"), "mask: causal, or kind: encoder"
        )
    parts = spec.mask or []
    for i, part in enumerate(parts):
        if part in parts[:i]:
            what = f"the {part.kind} mask" if part.kind != "window" else "this window"
            yield Problem(("mask", i), f"{what} is given twice", ("mask",))
        if part.kind != "window" and (part.left is not None or part.right is not None):
            yield Problem(("mask", i), "left and right are for a window", ("mask",))
        if part.kind == "window" and part.left is None and part.right is None:
            yield Problem(
                ("mask", i), "the window has no bound", ("mask",), "{kind: window, left: 128}"
            )
        if part.kind != "padding" and spec.kind == "encoder-decoder":
            yield Problem(
                ("mask", i),
                f"{part.kind}: here the mask is that of the encoder's keys; decoders are causal",
                ("mask", "kind"),
                "mask: padding",
            )


def _check_constants(spec: HighLevel) -> Iterator[Problem]:
    """Constants that the dtype of the model rounds to an infinity, or to 0."""
    kind = dtype(spec.dtype)
    constants = {
        ("norm", "eps"): spec.norm.eps,
        ("attention", "scale"): spec.attention.scale,
        ("attention", "softcap"): spec.attention.softcap,
        ("embedding", "scale"): spec.embedding.scale,
        ("residual_scale",): spec.residual_scale,
        ("head", "scale"): spec.head and spec.head.scale,
        ("head", "softcap"): spec.head and spec.head.softcap,
    }
    for path, constant in constants.items():
        if not isinstance(constant, Exact):
            continue
        try:
            check_fits(constant, kind)
            if path[-1] == "softcap":
                check_fits(Exact(1 / constant.factor), kind)  # scores are divided by it
        except TfgraphError as error:
            yield Problem(path, error.message, (path[0], "dtype"), error.hint)
            continue
        if rounds_to_zero(constant, kind):
            yield Problem(path, f"{constant} is 0 in {kind}", (path[0], "dtype"))


def _check_head(spec: HighLevel) -> Iterator[Problem]:
    head = spec.head
    if head is None:
        return
    if (head.kind == "classifier") != (head.labels is not None):
        yield Problem(
            ("head",),
            "a classifier needs labels, the number of classes"
            if head.kind == "classifier"
            else "labels are for a classifier",
            ("head",),
            "{kind: classifier, labels: 2}" if head.kind == "classifier" else None,
        )
    for key in ("tied", "bias", "scale", "softcap"):
        if head.kind in ("classifier", "pointer") and key in head.model_fields_set:
            yield Problem(("head", key), "is for lm and mlm", ("head",))
    size = spec.embedding.size
    transformed = head.kind == "mlm" and head.transform
    if (
        head.kind in ("lm", "mlm")
        and head.tied
        and size not in (None, spec.width)
        and not transformed
    ):
        yield Problem(
            ("head",),
            f"cannot be tied: the embedding's size {size} is not the width {spec.width}",
            ("head", "embedding", "width"),
            "tied: false",
        )


def length_limit(spec: HighLevel) -> int | None:
    """The longest sequence that the table of positions allows; None where there is no limit."""
    positions = spec.positions
    if positions.kind not in _OF_POSITIONS["max"] or positions.max is None:
        return None
    if positions.kind != "learned":
        return positions.max
    before = positions.offset if positions.padding_id is None else positions.padding_id + 1
    return positions.max - before


def _check_generation(spec: HighLevel) -> Iterator[Problem]:
    given = spec.generation
    if given is None:
        return
    if spec.kind == "encoder":
        yield Problem(("generation",), "an encoder does not generate", ("generation", "kind"))
        return
    if spec.vocabulary is None:
        yield Problem(("generation",), "needs vocabulary", ("generation", "vocabulary"))
        return
    if given.start is not None and spec.kind == "decoder":
        yield Problem(
            ("generation", "start"),
            "a decoder starts with its prompt",
            ("generation", "kind"),
            "a start token before a prompt is the tokenizer's to put there",
        )
    stops = [(("generation", "stop", i), token) for i, token in enumerate(given.stop)]
    for path, token in [(("generation", "start"), given.start), *stops]:
        if token is not None and token >= spec.vocabulary:
            wanted = f"{token} is no token, expected at most {spec.vocabulary - 1}"
            yield Problem(path, wanted, ("generation", "vocabulary"))


def _check_symbols(spec: HighLevel) -> Iterator[Problem]:
    known = ["batch", "seq"] + (["target"] if spec.kind == "encoder-decoder" else [])
    limit = length_limit(spec)
    if limit is not None and limit < 1:
        yield Problem(("positions", "max"), "leaves no row for a position", ("positions",))
        return
    for name, symbol in spec.symbols.items():
        path = ("symbols", name)
        if name not in known:
            hint = nearest(name, known) or f"known here: {', '.join(known)}"
            yield Problem(path, "unknown symbol", ("symbols", "kind"), hint)
            continue
        high = symbol.max
        if high is not None and symbol.min > high:
            yield Problem((*path, "max"), f"is below min: {symbol.min}", ("symbols",))
        elif symbol.example is not None and not (
            symbol.min <= symbol.example and (high is None or symbol.example <= high)
        ):
            yield Problem((*path, "example"), "is not between min and max", ("symbols",))
        if name != "batch" and limit is not None:
            for key in ("max", "example", "min"):
                size = getattr(symbol, key)
                if size is not None and size > limit:
                    yield Problem(
                        (*path, key),
                        f"{size} is more than the {limit} positions",
                        ("symbols", "positions"),
                        f"positions: max: {size + (spec.positions.max or 0) - limit}",
                    )
                    break
