"""Checks of a model file: what pydantic finds, put into words with a place, and what `fits` finds.

All mistakes of a file are found in one go: keys that are wrong are left out, and the checks that
don't need them still run. May import: fits, read, schema, errors; pydantic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tfgraph.errors import TfgraphError, nearest
from tfgraph.model.fits import check_high_level
from tfgraph.model.problem import Problem
from tfgraph.model.read import MOST_ERRORS, QUOTE, describe
from tfgraph.model.schema import FreeForm, HighLevel

if TYPE_CHECKING:
    from tfgraph.model.read import Document

Form = TypeVar("Form", HighLevel, FreeForm)

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
        found = errors.errors(include_url=False)
        wrong = {str(error["loc"][0]) for error in found}
        document.errors += [_explain(document, form, error) for error in found[:MOST_ERRORS]]
        document.untold += len(found[MOST_ERRORS:])
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
        known = list(_section(form, loc[:-1]).model_fields)
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
    elif kind == "less_than":  # of seeds alone
        expected = f"expected below {context['lt']}"
    else:
        expected = _EXPECTED.get(kind) or str(error["msg"])
    if form is FreeForm and kind == "string_type" and loc[0] in _QUOTED and got is None:
        hint = QUOTE
    message = f"{_label(shown)}: {expected}, got {describe(got)}"
    return TfgraphError(message, document.place(*loc).value, hint)


def _section(form: type[BaseModel], loc: tuple[str | int, ...]) -> type[BaseModel]:
    """The class of the mapping at a path; names and numbers inside a mapping or list lead on."""
    for part in loc:
        if part in form.model_fields:
            form = _class_in(form.model_fields[str(part)].annotation) or form
    return form


def _class_in(annotation: Any) -> type[BaseModel] | None:
    """The class of a section in an annotation such as `Norm | None`, `list[MaskPart]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_class_in(part) for part in get_args(annotation))
    return next((c for c in found if c is not None), None)


def _label(loc: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")
