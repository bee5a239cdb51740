"""YAML into plain data, with the place of every key and value, and every mistake of form.

YAML 1.2, one document. Limits on size, depth and aliases hold before anything is built, so that a
file of a few lines cannot take much memory. May import: errors; ruamel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    NodeEvent,
)
from ruamel.yaml.reader import ReaderError

from tfgraph.errors import Location, TfgraphError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES = 4_000_000
MAX_DEPTH = 32
MAX_ALIASES = 16
MAX_VALUES = 100_000
MAX_DIGITS = 300
MOST_ERRORS = 200
"""That are told of one file."""
MOST_HINTS = 50
_TEXT_FILE = "a model file is text; `tfgraph init` writes an example"
_TAG = "tag:yaml.org,2002:"

QUOTE = 'within { } and [ ] a text with any of , { } [ ] stands in quotes: {y: "add(x, 1)"}'

Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: its key (itself, in a list), the value, and the value's first letter,
    which a quoted text has behind the quote."""

    key: Location
    value: Location
    text: Location


@dataclass
class Document:
    """The data of a file, the place of each path in it, and the mistakes found while reading.

    `empty` are the paths where nothing stands, as in `layers:`, which reads as None; `untold` is
    how many mistakes are not among the errors.
    """

    file: str
    data: Any = None
    places: dict[Path_, Place] = field(default_factory=lambda: dict[Path_, Place]())
    errors: list[TfgraphError] = field(default_factory=lambda: list[TfgraphError]())
    empty: list[Path_] = field(default_factory=lambda: list[Path_]())
    untold: int = 0

    def place(self, *path: str | int) -> Place:
        """The place of a path, or of the nearest part around it that the file has."""
        kept: Path_ = ()
        for part in path:
            if (*kept, part) in self.places:
                kept = (*kept, part)
        start = Location(self.file, 1, 1)
        return self.places.get(kept, Place(start, start, start))

    def near(self, word: str, known: Iterable[str]) -> str | None:
        """A hint as `nearest` gives it, which takes its time: for the first errors alone."""
        return nearest(word, known) if len(self.errors) < MOST_HINTS else None

    def raise_errors(self) -> None:
        """Raise all mistakes as one error, in the order of the file, of very many the first;
        nothing if there is none."""
        ordered = sorted(self.errors, key=_order)
        if ordered:
            first, *rest = ordered[:MOST_ERRORS]
            left = self.untold + len(ordered[MOST_ERRORS:])
            if left:
                rest.append(TfgraphError(f"and {left} more", Location(self.file)))
            raise TfgraphError(first.message, first.location, first.hint, rest)


def _order(error: TfgraphError) -> tuple[int, int]:
    where = error.location
    return (where.line, where.column) if where else (0, 0)


def read_document(path: str | Path, text: str | None = None) -> Document:
    """Read a file, or a `text` that would stand there. Raises TfgraphError, with line and column,
    for what is not YAML or too large; duplicate keys and unsupported tags are collected in the
    document."""
    document = Document(str(path))
    text = _read_text(Path(path)) if text is None else text
    try:
        _check_limits(document.file, text)
        root = _yaml().compose(text)
    except ReaderError as cause:
        error: Any = cause  # ruamel's attributes have no types
        before = text[: error.position]
        line = before.count("\n") + 1
        where = Location(document.file, line, error.position - before.rfind("\n"))
        raise TfgraphError(f"not YAML: {error.reason}", where, _TEXT_FILE) from cause
    except MarkedYAMLError as cause:
        error = cause
        mark = error.problem_mark or error.context_mark
        where = _at(document.file, mark) if mark else Location(document.file, 1, 1)
        problem = str(error.problem or error.context)
        open_ = problem.startswith("expected ',' or") and "<stream end>" not in problem
        hint = QUOTE if open_ else None
        raise TfgraphError(f"not YAML: {problem}", where, hint) from cause
    except (YAMLError, ValueError, RecursionError) as cause:
        raise TfgraphError(f"not YAML: {cause}", Location(document.file, 1, 1)) from cause
    if root is None:
        raise TfgraphError(
            "the file is empty", Location(document.file, 1, 1), "`tfgraph init` writes an example"
        )
    document.data = _convert(document, root, (), _at(document.file, root.start_mark))
    if not isinstance(document.data, dict):
        raise TfgraphError(
            f"expected a mapping such as `layers: 4`, got {describe(document.data)}",
            document.place().value,
        )
    return document


def _read_text(path: Path) -> str:
    where = Location(str(path))
    try:
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no such file"
            raise TfgraphError(f"cannot read the model: {what}", where)
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise TfgraphError(f"a model file of {size} bytes; at most {MAX_BYTES} are read", where)
        raw = path.read_bytes()
    except OSError as cause:
        raise TfgraphError(f"cannot read the model: {cause.strerror}", where) from cause
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        line = raw[: cause.start].count(b"\n") + 1
        column = cause.start - raw.rfind(b"\n", 0, cause.start)
        raise TfgraphError(
            "not YAML: the text is not UTF-8", Location(where.file, line, column), _TEXT_FILE
        ) from cause


def _check_limits(file: str, text: str) -> None:
    """Count events, which are read one by one, before the tree is built, with an alias as all that
    it stands for: the plain data holds that once for each alias."""
    limits = _Limits()
    for event in _yaml().parse(text):
        problem = limits.take(event)
        if problem:
            raise TfgraphError(f"the file is refused: {problem}", _at(file, event.start_mark))


class _Limits:
    """What the events so far make: how many values and aliases, and which values are open."""

    def __init__(self) -> None:
        self.aliases = self.values = 0
        self.open: list[_Held] = []
        self.anchors: dict[str, _Held] = {}

    def take(self, event: Any) -> str | None:
        """Count an event; the limit that it breaks, in words."""
        if isinstance(event, CollectionEndEvent):
            done = self.open.pop()
            done.values = self.values - done.before
        if not isinstance(event, NodeEvent):
            return None
        anchor: Any = getattr(event, "anchor", None)  # ruamel's attributes have no types
        held = _Held(self.values, depth=int(isinstance(event, CollectionStartEvent)))
        if isinstance(event, AliasEvent):
            self.aliases += 1
            # One that nothing defines is told when the tree is built.
            held = self.anchors.get(str(anchor), held)
            if held in self.open:
                return "an alias contains itself"
        elif anchor is not None:
            self.anchors[str(anchor)] = held
        depth = len(self.open) + held.depth
        if held.depth:
            for levels, around in enumerate(reversed(self.open), held.depth + 1):
                around.depth = max(around.depth, levels)
        self.values += held.values
        if isinstance(event, CollectionStartEvent):
            self.open.append(held)
        if self.aliases > MAX_ALIASES:
            return f"more than {MAX_ALIASES} aliases (*name)"
        if depth > MAX_DEPTH:
            return f"nested deeper than {MAX_DEPTH}"
        return f"more than {MAX_VALUES} values" if self.values > MAX_VALUES else None


@dataclass(eq=False)
class _Held:
    """A value: how many came before it, how many it holds, itself included, and how deep it is."""

    before: int
    values: int = 1
    depth: int = 0


def _yaml() -> Any:
    """A reader of YAML 1.2; as Any, since ruamel's annotations are incomplete."""
    return YAML(typ="safe", pure=True)


def _convert(document: Document, node: Any, path: Path_, key: Location) -> Any:
    """The plain data of a node; records places and mistakes."""
    value = _at(document.file, node.start_mark)
    if node.id == "scalar" and len(node.value) == 0 and node.style is None:
        value = key  # nothing is there: `layers:`
        document.empty += [path] if path else []
    quoted = node.id == "scalar" and node.style in ("'", '"')
    text = Location(value.file, value.line, value.column + 1) if quoted else value
    document.places[path] = Place(key, value, text)
    if node.id == "mapping":
        return _convert_mapping(document, node, path)
    if node.id == "sequence":
        return [
            _convert(document, item, (*path, i), _at(document.file, item.start_mark))
            for i, item in enumerate(node.value)
        ]
    return _scalar(document, node, value)


def _convert_mapping(document: Document, node: Any, path: Path_) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = _at(document.file, key_node.start_mark)
        if key_node.id != "scalar":
            document.errors.append(TfgraphError("a key must be a name", where))
            continue
        name = str(key_node.value)
        if name in result:
            first = document.places[(*path, name)].key
            document.errors.append(
                TfgraphError(f"{name}: duplicate key", where, f"the first is in line {first.line}")
            )
            continue
        result[name] = _convert(document, value_node, (*path, name), where)
    return result


def _scalar(document: Document, node: Any, where: Location) -> Any:
    tag, text = str(node.tag), str(node.value)
    kind = tag.removeprefix(_TAG)
    if kind in ("int", "float"):
        digits = text.replace("_", "").lower()
        if len(digits) > MAX_DIGITS:
            document.errors.append(TfgraphError("a number with too many digits", where))
            return None
        try:
            if kind == "float":
                return float(digits.replace(".inf", "inf").replace(".nan", "nan"))
            prefixed = digits.lstrip("+-")[:2] in ("0x", "0o", "0b")
            return int(digits, 0) if prefixed else int(digits)
        except ValueError:  # it was tagged as a number: `!!int x`
            document.errors.append(TfgraphError(f"!!{kind} {text!r} is no number", where))
            return None
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            message = f"!!bool {text!r} is neither true nor false"
            document.errors.append(TfgraphError(message, where))
        return text.lower() == "true"
    if kind == "null":
        return None
    if tag.startswith(_TAG) and kind in ("str", "timestamp", "merge", "value"):
        return text
    document.errors.append(TfgraphError(f"the tag {tag} is not supported", where))
    return None


def describe(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _at(file: str, mark: Any) -> Location:
    return Location(file, mark.line + 1, mark.column + 1)
