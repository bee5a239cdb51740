"""Checks of a model file: what pydantic finds, put into words with a place, and what fits together.

All mistakes of a file are found in one go: keys that are wrong are left out, and the checks that
don't need them still run. May import: read, schema, ir, errors; pydantic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Exact, dtype
from tfgraph.ir.legal import check_fits, rounds_to_zero
from tfgraph.model.read import QUOTE, describe
from tfgraph.model.schema import (
    Attention,
    Embedding,
    File,
    FreeForm,
    Head,
    HighLevel,
    MaskPart,
    Norm,
    Positions,
    Symbol,
)

if TYPE_CHECKING:
    from tfgraph.model.read import Document

Form = TypeVar("Form", HighLevel, FreeForm)

_SECTIONS: dict[str | int, type[BaseModel]] = {
    "norm": Norm,
    "positions": Positions,
    "embedding": Embedding,
    "attention": Attention,
    "mask": MaskPart,
    "head": Head,
    "symbols": Symbol,
    "weights": File,
    "checkpoint": File,
}
_EXPECTED = {
    "int_type": "expected an integer",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected a text",
    "string_pattern_mismatch": "expected a CUDA architecture such as sm_80",  # of arch alone
    "list_type": "expected a list",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
}
# Sections of the free form whose texts hold commas.
_QUOTED = ("inputs", "weights", "nodes")
# The defaults of DSL and YAML alike: without a range, sizes go up to these.
DEFAULT_BATCH, DEFAULT_LENGTH = 1024, 512


@dataclass(frozen=True)
class Problem:
    """Something that does not fit together: at a path, depending on some top-level keys."""

    path: tuple[str | int, ...]
    message: str
    depends: tuple[str, ...]
    hint: str | None = None


def is_free(data: dict[str, Any]) -> bool:
    """Whether a file is in the free form."""
    return bool({"nodes", "inputs", "outputs"} & data.keys())


def validate(document: Document, form: type[Form]) -> Form:
    """The file's content. Raises one TfgraphError with all mistakes, each at its place."""
    spec: Form | None = None
    wrong: set[str] = set()
    try:
        spec = form.model_validate(document.data)
    except ValidationError as errors:
        for error in errors.errors(include_url=False):
            document.errors.append(_explain(document, form, error))
            wrong.add(str(error["loc"][0]))
    document.errors += _empty(document, wrong)
    if issubclass(form, HighLevel):
        for problem in _problems(document.data, spec, wrong):
            path = problem.path
            while path not in document.places:  # a short form has no place of its own
                path = path[:-1]
            label = _label(path)
            where = document.place(*path).value
            document.errors.append(TfgraphError(f"{label}: {problem.message}", where, problem.hint))
    document.raise_errors()
    assert spec is not None  # or errors were raised
    return spec


def _empty(document: Document, wrong: set[str]) -> Iterator[TfgraphError]:
    """Keys without a value, which is easily an accident; `null` is written to mean the default."""
    for path in document.empty:
        if str(path[0]) not in wrong:
            yield TfgraphError(
                f"{_label(path)}: expected a value, got nothing",
                document.place(*path).key,
                "leave the key out for its default",
            )


def _problems(data: dict[str, Any], spec: Any, wrong: set[str]) -> Iterator[Problem]:
    """What does not fit together among the keys that are right."""
    if spec is None:
        kept = {key: value for key, value in data.items() if key not in wrong}
        try:
            spec = HighLevel.model_validate({"layers": 1, "width": 1, **kept})
        except ValidationError:
            return
    for problem in check_high_level(spec):
        if not wrong.intersection(problem.depends):
            yield problem


def _explain(document: Document, form: type[BaseModel], error: Any) -> TfgraphError:
    loc: tuple[str | int, ...] = error["loc"]
    kind: str = error["type"]
    context: dict[str, Any] = error.get("ctx") or {}
    if kind == "missing":
        return TfgraphError(f"{_label(loc)} is missing", document.place(*loc[:-1]).key)
    if kind == "extra_forbidden":
        section = form if len(loc) == 1 else _SECTIONS.get(loc[0], form)
        known = list(section.model_fields)
        near = nearest(str(loc[-1]), known) or f"known here: {', '.join(known)}"
        return TfgraphError(f"{_label(loc)}: unknown key", document.place(*loc).key, near)
    shown = loc
    while shown and shown not in document.places:  # a short form has no place of its own
        shown = shown[:-1]
    got: Any = error["input"]
    hint: str | None = None
    if kind == "literal_error":
        options = str(context["expected"]).replace("'", "")
        expected = f"expected {options}"
        hint = nearest(str(got), options.replace(" or ", ", ").split(", "))
    elif kind in ("greater_than_equal", "less_than_equal"):
        bound = context.get("ge", context.get("le"))
        expected = f"expected at {'least' if 'ge' in context else 'most'} {bound}"
    else:
        expected = _EXPECTED.get(kind) or str(error["msg"])
    if form is FreeForm and kind == "string_type" and loc[0] in _QUOTED and got is None:
        hint = QUOTE
    message = f"{_label(shown)}: {expected}, got {describe(got)}"
    return TfgraphError(message, document.place(*loc).value, hint)


def _label(loc: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


def check_high_level(spec: HighLevel) -> Iterator[Problem]:
    """What does not fit together in a model that is right key by key."""
    yield from _check_heads(spec)
    yield from _check_embedding(spec)
    yield from _check_masks(spec)
    yield from _check_constants(spec)
    yield from _check_head(spec)
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
                if key == "head" and spec.head and spec.head.kind == "classifier":
                    continue
                yield Problem(
                    (key,),
                    "needs a vocabulary",
                    (key, "vocabulary"),
                    f"vocabulary: 30522, or leave {key} out",
                )
        if spec.positions.padding_id is not None:
            yield Problem(
                ("positions", "padding_id"), "needs a vocabulary", ("positions", "vocabulary")
            )
    positions = spec.positions
    if positions.kind != "learned":
        for key in ("offset", "padding_id"):
            if getattr(positions, key):
                yield Problem(
                    ("positions", key),
                    "is for learned positions",
                    ("positions",),
                    f"kind: learned, or leave {key} out",
                )
    if positions.kind == "none" and positions.max is not None:
        yield Problem(
            ("positions", "max"),
            "there are no positions",
            ("positions",),
            "leave max out, or kind: learned",
        )
    if positions.kind == "learned" and positions.max is None:
        yield Problem(
            ("positions",), "learned positions need a number of rows", ("positions",), "max: 512"
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
    }
    for path, constant in constants.items():
        if not isinstance(constant, Exact):
            continue
        try:
            check_fits(constant, kind)
            if path == ("attention", "softcap"):
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
    size = spec.embedding.size
    transformed = head.kind == "mlm" and head.transform
    if (
        head.kind != "classifier"
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
    if positions.kind == "none" or positions.max is None:
        return None
    if positions.kind != "learned":
        return positions.max
    before = positions.offset if positions.padding_id is None else positions.padding_id + 1
    return positions.max - before


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
