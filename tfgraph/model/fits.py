"""What fits together in a model file that is right key by key.

May import: schema, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Exact, dtype
from tfgraph.ir.legal import check_fits, rounds_to_zero
from tfgraph.model.derived import encoder_of, heads_of, image_length, length_limit
from tfgraph.model.fits_positions import check_positions
from tfgraph.model.fits_top import check_top
from tfgraph.model.problem import Problem
from tfgraph.model.schema_types import MAX_EXPERTS_IN_ALL

if TYPE_CHECKING:
    from tfgraph.model.schema import HighLevel


def check_high_level(spec: HighLevel) -> Iterator[Problem]:
    """What does not fit together in a model that is right key by key."""
    yield from _check_heads(spec)
    yield from _check_embedding(spec)
    yield from check_positions(spec)
    yield from _check_local(spec)
    yield from _check_encoder(spec)
    yield from _check_stem(spec)
    yield from _check_layers(spec)
    yield from _check_projections(spec)
    yield from _check_masks(spec)
    yield from _check_constants(spec)
    yield from check_top(spec)
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
                if key == "head" and spec.head and spec.head.kind not in ("lm", "mlm"):
                    continue
                yield Problem(
                    (key,),
                    "needs a vocabulary",
                    (key, "vocabulary"),
                    f"vocabulary: 30522, or leave {key} out",
                )


def _check_local(spec: HighLevel) -> Iterator[Problem]:
    local = spec.local
    if local is None:
        return
    if spec.kind == "encoder-decoder":
        yield Problem(("local",), "is for one stack", ("local", "kind"))
    if "local" not in local.pattern:
        hint = "pattern: [local, full]"
        yield Problem(("local", "pattern"), "no layer is local", ("local",), hint)
    if local.left is None and local.right is None and local.positions is None:
        message = "local layers need a window (left or right), or positions"
        yield Problem(("local",), message, ("local",), "left: 127")
    if spec.share_layers:
        yield Problem(("local",), "all layers are the same", ("local", "share_layers"))


def _check_encoder(spec: HighLevel) -> Iterator[Problem]:
    start = spec.decoder_start
    if start is not None and (spec.kind != "encoder-decoder" or spec.stem is not None):
        message = "is for an encoder-decoder whose encoder reads tokens"
        yield Problem(("decoder_start",), message, ("decoder_start", "kind", "stem"))
    elif start is not None and start >= (spec.vocabulary or 0):
        message = f"{start} is no token of the vocabulary"
        yield Problem(("decoder_start",), message, ("decoder_start", "vocabulary"))
    elif start is not None and spec.head is not None and spec.head.kind == "lm":
        message = "a language model reads what it has made"
        yield Problem(("decoder_start",), message, ("decoder_start", "head"))
    if spec.encoder is None:
        return
    if spec.kind != "encoder-decoder":
        yield Problem(("encoder",), "is for an encoder-decoder", ("encoder", "kind"))
    for problem in _check_heads(encoder_of(spec)):
        if problem.path == ("heads",) and spec.encoder.heads is not None:
            yield Problem(("encoder", "heads"), problem.message, ("encoder", *problem.depends))


def _check_stem(spec: HighLevel) -> Iterator[Problem]:
    stem, depends = spec.stem, ("stem", "kind")
    if stem is None:
        return
    if spec.kind == "decoder":
        yield Problem(("stem",), "is for an encoder, or what a decoder attends to", depends)
    if spec.vocabulary is not None and spec.kind != "encoder-decoder":
        yield Problem(("stem",), "takes the place of a vocabulary", ("stem", "vocabulary"))
    if any(part.kind == "padding" for part in spec.mask or ()):
        yield Problem(("mask",), "what a stem makes has no padding", ("mask", "stem"))
    if stem.kind == "audio":
        for key in ("height", "width", "patch", "class_token"):
            if key in stem.model_fields_set:
                yield Problem(("stem", key), "is for an image", depends)
        return
    for key in ("height", "patch"):
        if getattr(stem, key) is None:
            yield Problem(("stem",), f"an image needs its {key}", depends, f"{key}: 16")
    if stem.height and stem.patch:
        for key in ("height", "width"):
            size = getattr(stem, key)
            if size is not None and size % stem.patch:
                message = f"{size} pixels are not whole patches of {stem.patch}"
                yield Problem(("stem", key), message, depends)
        count, limit = image_length(spec), length_limit(encoder_of(spec))
        if count is not None and limit is not None and count > limit:
            message = f"an image makes {count} vectors, and there are {limit} positions"
            yield Problem(("positions", "max"), message, ("positions", "stem"), f"max: {count}")


def _check_layers(spec: HighLevel) -> Iterator[Problem]:
    norm, experts = spec.norm, spec.experts
    if spec.convolution is not None and spec.kind != "encoder":
        yield Problem(("convolution",), "is for an encoder", ("convolution", "kind"))
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
    if not norm.first and norm.placement not in ("pre", "sandwich"):
        message = f"a layer with its norms {norm.placement} does not begin with one"
        yield Problem(("norm", "first"), message, ("norm",))
    if spec.attention.qk_norm_over != "head" and spec.attention.qk_norm == "none":
        yield Problem(
            ("attention", "qk_norm_over"),
            "there is no qk_norm",
            ("attention",),
            "qk_norm: rms_norm",
        )
    if norm.placement == "parallel" and spec.kind == "encoder-decoder":
        yield Problem(
            ("norm", "placement"),
            "the parts of a layer with memory follow each other",
            ("norm", "kind"),
        )
    if spec.residual_scale is not None and not spec.residual:
        yield Problem(("residual_scale",), "there is no residual", ("residual", "residual_scale"))
    layers = spec.layers + (encoder_of(spec).layers if spec.kind == "encoder-decoder" else 0)
    if experts is not None and layers * experts.count > MAX_EXPERTS_IN_ALL:
        yield Problem(
            ("experts", "count"),
            f"{layers * experts.count} experts in {layers} layers; at most {MAX_EXPERTS_IN_ALL}",
            ("experts", "layers", "encoder"),
        )
    if experts is not None and experts.active > experts.count:
        yield Problem(
            ("experts",), f"{experts.active} active experts of {experts.count}", ("experts",)
        )


def _check_projections(spec: HighLevel) -> Iterator[Problem]:
    """Keys for an embedding of another size than the width, or for one stack."""
    given, depends = spec.embedding, ("embedding", "width")
    for key in ("projection_first", "project_back", "projection_bias"):
        if key in given.model_fields_set and given.size in (None, spec.width):
            message = f"the embedding has the width {spec.width}"
            yield Problem(("embedding", key), message, depends, f"size: {spec.width // 2 or 1}")
    two = spec.kind == "encoder-decoder"
    if given.project_back and (two or spec.stem is not None):
        yield Problem(("embedding", "project_back"), "is for one stack", ("embedding", "kind"))
    if spec.final_norm == "above" and (two or spec.norm.kind == "none"):
        message = "is for one stack, with a norm"
        yield Problem(("final_norm",), message, ("final_norm", "kind", "norm"))


def _check_masks(spec: HighLevel) -> Iterator[Problem]:
    if spec.mask == [] and spec.kind == "decoder":
        yield Problem(
            ("mask",), "a decoder is causal", ("mask", "kind"), "mask: causal, or kind: encoder"
        )
    parts = spec.mask or []
    for i, part in enumerate(parts):
        if part in parts[:i]:
            what = {"window": "this window", "bias": "the bias"}.get(
                part.kind, f"the {part.kind} mask"
            )
            yield Problem(("mask", i), f"{what} is given twice", ("mask",))
        if part.kind != "window" and (part.left is not None or part.right is not None):
            yield Problem(("mask", i), "left and right are for a window", ("mask",))
        if part.kind == "window" and part.left is None and part.right is None:
            yield Problem(
                ("mask", i), "the window has no bound", ("mask",), "{kind: window, left: 128}"
            )
        if part.kind in ("dense", "bias") and spec.head is not None and spec.head.kind == "pointer":
            yield Problem(
                ("mask", i), f"{part.kind}: is for heads, a pointer has none", ("mask", "head")
            )
        if part.kind == "causal" and spec.kind == "encoder-decoder":
            yield Problem(
                ("mask", i),
                "causal: here the mask is that of the encoder; decoders are causal",
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
    if given.start and spec.kind == "decoder":
        yield Problem(
            ("generation", "start"),
            "a decoder starts with its prompt",
            ("generation", "kind"),
            "a start token before a prompt is the tokenizer's to put there",
        )
    for key, tokens in given:
        for i, token in enumerate(tokens):
            if token >= spec.vocabulary:
                wanted = f"{token} is no token, expected at most {spec.vocabulary - 1}"
                yield Problem(("generation", key, i), wanted, ("generation", "vocabulary"))


def _check_symbols(spec: HighLevel) -> Iterator[Problem]:
    two = spec.kind == "encoder-decoder" and spec.decoder_start is None
    known = ["batch", "seq"] + (["target"] if two else [])
    known = ["batch"] if image_length(spec) and spec.kind == "encoder" else known
    limits = {name: length_limit(spec) for name in known}
    limits |= {"batch": None, "seq": length_limit(encoder_of(spec))}
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
        high, limit = symbol.max, limits[name]
        if high is not None and symbol.min > high:
            yield Problem((*path, "max"), f"is below min: {symbol.min}", ("symbols",))
        elif symbol.example is not None and not (
            symbol.min <= symbol.example and (high is None or symbol.example <= high)
        ):
            yield Problem((*path, "example"), "is not between min and max", ("symbols",))
        if limit is not None:
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
