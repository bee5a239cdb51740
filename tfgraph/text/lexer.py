"""The textual IR as tokens, each with its place, and a cursor over them that words the errors.

May import: errors.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.errors import Location, TfgraphError

if TYPE_CHECKING:
    from collections.abc import Generator

LONGEST_NAME = 512
LONGEST_NUMBER = 1000
DEEPEST = 24

_STRING = r'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"'
# Symbols may be any identifiers, so a name runs over all non-ASCII characters; it is checked later.
_LETTER = r"(?:[A-Za-z_]|[^\x00-\x7f])"
_TOKEN = re.compile(
    rf"""
      (?P<space>   [ \t\r\n]+ | \#[^\n]* )
    | (?P<value>   %(?: [A-Za-z0-9_.~]+ | {_STRING} ) )
    | (?P<number>  [0-9]+ (?:\.[0-9]+)? (?:[eE][+-]?[0-9]+)? )
    | (?P<name>    {_LETTER} (?: {_LETTER} | [0-9] | \.(?=[A-Za-z0-9_]) )* )
    | (?P<string>  {_STRING} )
    | (?P<mark>    \.\. | // | == | <= | [()\[\]{{}},:=+\-*/&] )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is value, name, number, string, end, or a mark itself such as "("; `text` is the
    name without % and quotes, the string without quotes, or the text as it stands."""

    kind: str
    text: str
    location: Location

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 40 else f"{self.text[:40]}..."
        if self.kind == "end":
            return "the end of the text"
        if self.kind == "string":
            return f"the string {json.dumps(shown)}"
        return f"'%{shown}'" if self.kind == "value" else f"'{shown}'"


def tokens(text: str, origin: Location) -> list[Token]:
    """The tokens of `text`, which starts at `origin` in its file; comments run from # to the end of
    the line. Raises TfgraphError at a character that starts no token."""
    found: list[Token] = []
    line, start, at = 0, 0, 0

    def place(position: int) -> Location:
        if not origin.line:
            return origin
        if line == 0:
            column = origin.column + position if origin.column else 0
        else:
            column = position - start + 1
        return Location(origin.file, origin.line + line, column)

    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unexpected(text[at:], place(at))
        kind, source = match.lastgroup or "", match.group()
        if kind != "space":
            found.append(_token(kind, source, place(at)))
        elif "\n" in source:
            line += source.count("\n")
            start = at + source.rindex("\n") + 1
        at = match.end()
    found.append(Token("end", "", place(at)))
    return found


def _token(kind: str, source: str, where: Location) -> Token:
    if kind == "number" and len(source) > LONGEST_NUMBER:
        raise TfgraphError(f"a number of {len(source)} digits: at most {LONGEST_NUMBER}", where)
    name = source[1:] if kind == "value" else source
    if name.startswith('"'):
        try:
            name = str(json.loads(name))
        except ValueError as cause:
            raise TfgraphError(
                f"not a string: {source[:40]}", where, "escapes are those of JSON"
            ) from cause
    if kind in ("value", "name") and len(name) > LONGEST_NAME:
        raise TfgraphError(f"a name of {len(name)} characters: at most {LONGEST_NAME}", where)
    return Token(source if kind == "mark" else kind, name, where)


def _unexpected(rest: str, where: Location) -> TfgraphError:
    if rest[0] == '"' or rest[:2] == '%"':
        return TfgraphError("a string that does not end on its line", where)
    if rest[0] == "%":
        return TfgraphError("expected a name after '%'", where)
    return TfgraphError(f"unexpected character {rest[0]!r}", where)


class Cursor:
    """A position among tokens. `bare` says that plain names, not %names, name values."""

    def __init__(self, found: list[Token], *, bare: bool = False) -> None:
        self._tokens = found
        self.at = 0
        self.bare = bare
        self._depth = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self.at]

    def peek(self) -> Token:
        """The token after the next."""
        return self._tokens[min(self.at + 1, len(self._tokens) - 1)]

    def next(self) -> Token:
        """Take the next token; the end stays."""
        token = self._tokens[self.at]
        self.at = min(self.at + 1, len(self._tokens) - 1)
        return token

    def sees(self, *kinds: str) -> bool:
        """Whether the next token is of one of these kinds."""
        return self.token.kind in kinds

    def sees_word(self, word: str) -> bool:
        """Whether the next token is this name."""
        return self.token.kind == "name" and self.token.text == word

    def accept(self, kind: str) -> Token | None:
        """Take the next token if it is of this kind."""
        return self.next() if self.token.kind == kind else None

    def expect(self, kind: str, what: str = "") -> Token:
        """Take a token of this kind, or raise."""
        if self.token.kind != kind:
            raise self.wrong(what or f"'{kind}'")
        return self.next()

    def expect_word(self, word: str) -> Token:
        """Take this name, or raise."""
        if not self.sees_word(word):
            raise self.wrong(f"'{word}'")
        return self.next()

    def wrong(self, expected: str, hint: str | None = None) -> TfgraphError:
        """The error that something else was expected here."""
        return TfgraphError(f"expected {expected}, found {self.token}", self.token.location, hint)

    @contextlib.contextmanager
    def nested(self) -> Generator[None]:
        """One level of brackets. Raises TfgraphError where there are too many."""
        if self._depth >= DEEPEST:
            raise TfgraphError(f"nested more than {DEEPEST} deep", self.token.location)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


@contextlib.contextmanager
def located(where: Location, what: str = "") -> Generator[None]:
    """Errors inside that know no place get this one; other exceptions that bad values cause
    become TfgraphErrors, with `what` in front."""
    try:
        yield
    except TfgraphError as error:
        if error.location is not None:
            raise
        raise TfgraphError(error.message, where, error.hint, error.related) from error
    except RecursionError as cause:
        raise TfgraphError(f"{what}nested too deeply", where) from cause
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as cause:
        raise TfgraphError(f"{what}{cause}", where) from cause
