"""Text in and out: the tokenizer that an artifact carries, and where generation starts and stops.

    tokenizer = model.tokenizer
    ids = tokenizer.encode("The capital of France is")
    stream = tokenizer.stream(ids)
    for token in model.generate(ids):
        print(stream.add(token), end="", flush=True)
    print(stream.end())

Only this module imports `tokenizers`, and only when a tokenizer is asked for. May import: the
standard library, errors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from tfgraph.errors import MissingTool, TfgraphError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_TOKENIZER = 500_000_000
"""Bytes of a tokenizer.json; the largest known have some 30 million."""
_PADDING = ("[PAD]", "<pad>", "<|pad|>")
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # what bytes that are no whole character decode to


@dataclass(frozen=True)
class TokenRules:
    """The tokens that the target of an encoder-decoder starts with, those behind which generation
    ends, and those that it never takes, or not as the first."""

    start: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    suppress: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()

    @property
    def target(self) -> list[int]:
        """What the target starts with: token 0 where nothing says."""
        return list(self.start) or [0]

    @classmethod
    def of(cls, entry: Mapping[str, Any] | None) -> TokenRules:
        """Those of a manifest's entry, which artifacts need not have, nor all its keys."""
        given = dict(entry or {})
        if not isinstance(given.get("start", []), list):  # as older artifacts name it
            given["start"] = [] if given["start"] is None else [given["start"]]
        return cls(*(tuple(given.get(f.name, ())) for f in fields(cls)))

    def to_json(self) -> dict[str, Any]:
        """The manifest's entry."""
        return {f.name: list(getattr(self, f.name)) for f in fields(self)}


def largest_id(data: bytes) -> int | None:
    """The largest id that a tokenizer.json names, added tokens too; None where it is written in
    another way than those known."""
    try:
        told: Any = json.loads(data)
        words: Any = told["model"]["vocab"]
        ids: list[int] = [token["id"] for token in told.get("added_tokens") or ()]
        ids += list(words.values()) if hasattr(words, "values") else range(len(words))
        return max(ids, default=None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Tokenizer:
    """A tokenizer.json of Hugging Face. The padding and truncation that it asks for are left out:
    no token is lost or added unseen."""

    def __init__(self, data: bytes, where: str) -> None:
        """`where` names it in errors. Raises MissingTool where the package is not installed, and
        TfgraphError for what it cannot read."""
        self._data, self._where = data, where
        self._whole = self._open()
        padding: Any = self._whole.padding
        self.padding_id: int = padding["pad_id"] if padding else self._named(_PADDING)
        """The token that fills up shorter rows."""
        self._whole.no_padding()
        self._whole.no_truncation()
        self._by_limit: dict[int | None, Any] = {None: self._whole}

    def encode(self, text: str, *, special: bool = True, limit: int | None = None) -> list[int]:
        """The ids of a text, with those that the tokenizer puts around one if `special`; in all at
        most `limit`. Raises TfgraphError for what is no text."""
        return list(self.encoding(text, special=special, limit=limit).ids)

    def encoding(self, text: str, *, special: bool = True, limit: int | None = None) -> Any:
        """The `ids`, `attention_mask` and `type_ids` of a text."""
        if limit not in self._by_limit:  # one for each, since several threads may be using them
            limited = self._open()
            limited.no_padding()
            limited.enable_truncation(limit)
            self._by_limit[limit] = limited
        try:
            return self._by_limit[limit].encode(text, add_special_tokens=special)
        except TypeError:
            raise TfgraphError(f"expected a text of Unicode, got {text!r:.60}") from None
        except Exception as cause:  # such as for a letter that it has no token for
            what = f"{self._where}: tokenizers cannot encode {text!r:.60}: {cause}"
            raise TfgraphError(what) from cause

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return str(self._whole.decode(list(ids)))

    def stream(self, behind: Sequence[int] = ()) -> Stream:
        """Gives the text of tokens as they come, `behind` those."""
        return Stream(self, behind)

    def name(self, token: int) -> str:
        """How the tokenizer writes a token; its number where it has none of that number."""
        name = self._whole.id_to_token(token)
        return str(token) if name is None else str(name)

    def _named(self, names: Sequence[str]) -> int:
        found = (self._whole.token_to_id(name) for name in names)
        return next((token for token in found if token is not None), 0)

    def _open(self) -> Any:
        try:
            from tokenizers import Tokenizer as Package
        except ModuleNotFoundError:
            raise MissingTool(
                "tokenizers is not installed, which turns text into token ids",
                hint="pip install tokenizers, or 'tfgraph[text]'; ids work without it",
            ) from None
        try:
            return cast("Any", Package).from_buffer(self._data)
        except ValueError as cause:
            reason = str(cause).removeprefix("Cannot instantiate Tokenizer from buffer: ")
            raise TfgraphError(f"{self._where}: tokenizers cannot read it: {reason}") from cause


class Stream:
    """The text of tokens as they come: the pieces together are what all tokens decode to.

    What a token means depends on those around it: a character may need several, and a space may
    stand only between words. So a window of tokens is decoded, which begins with some whose text
    was given: the piece is what the text of the window has more.
    """

    def __init__(self, tokenizer: Tokenizer, behind: Sequence[int] = ()) -> None:
        """Nothing has come yet but the tokens `behind` which the text stands."""
        self._decode = tokenizer.decode
        self._ids = list(behind)
        text = self._decode(self._ids)
        self._given = text.rstrip(_UNKNOWN)  # of the window's text
        # Where the window begins, and where it may begin next: never within a character.
        self._start, self._next = 0, len(self._ids) if self._given == text else 0

    def add(self, token: int) -> str:
        """The text that this token adds; "" while a character is not whole."""
        self._ids.append(token)
        text = self._decode(self._ids[self._start :])
        whole = text.rstrip(_UNKNOWN)  # more tokens may make characters of the rest
        if len(whole) <= len(self._given) or not whole.startswith(self._given):
            return ""
        piece, self._given = whole[len(self._given) :], whole
        if whole == text:
            self._start, self._next = self._next, len(self._ids)
            self._given = self._decode(self._ids[self._start :])
        return piece

    def end(self) -> str:
        """What is left when no more tokens come, such as bytes that are no whole character."""
        return self._decode(self._ids[self._start :])[len(self._given) :]
