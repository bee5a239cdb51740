"""Generation: tokens one after another, each drawn from what the model says of those before it.

    for token in model.generate([5, 6, 7], max_tokens=20):
        ...

May import: numpy, runnable, beams, sampling, source, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.beams import search
from tfgraph.runtime.sampling import GREEDY, Sampling, draw, probabilities
from tfgraph.runtime.source import Cached, Source, Uncached, encode, step_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tfgraph.runtime.runnable import Runnable

    Array = np.ndarray[Any, np.dtype[Any]]


class Generation:
    """An iterator over the tokens of one prompt; over lists of them, for several prompts, with None
    for rows that have ended.

    What is known so far: `steps`, how often the model was asked, `prefills`, and, where that is
    asked for, the `difference` of the logits from those without a cache: the largest.
    """

    def __init__(
        self,
        model: Runnable,
        ids: Sequence[int] | Sequence[Sequence[int]],
        *,
        max_tokens: int,
        sampling: Sampling = GREEDY,
        stop: Collection[int] = (),
        seed: int = 0,
        beams: int = 1,
        cache: bool = True,
        check_cache: bool = False,
        chunk: int | None = None,
        prefix: Sequence[int] | None = None,
    ) -> None:
        """See `Runnable.generate`."""
        step = step_of(model)
        for name, least, got in (
            ("max_tokens", 0, max_tokens),
            ("beams", 1, beams),
            ("chunk", 1, chunk),
        ):
            if got is not None and got < least:
                raise TfgraphError(f"{name} is {got}, expected at least {least}")
        self._several = bool(len(ids)) and not np.isscalar(ids[0])
        prompts = [_row(row) for row in cast("Any", ids if self._several else [ids])]
        if beams > 1 and (self._several or sampling != GREEDY):
            raise TfgraphError("beams are for one prompt, and draw nothing")
        self._sources = prompts if "encode" in model.functions else None
        if prefix is not None and self._sources is None:
            raise TfgraphError(f"{model.name} is no encoder-decoder: it has no prefix")
        start = (model.generation.start or 0,)
        target = _row(start if prefix is None else prefix)
        self._prompts = [target] * len(prompts) if self._sources else prompts
        longest = max(map(len, self._prompts))  # the last new token is not fed
        self._max_tokens = min(max_tokens, step.symbols["end"].high + 1 - longest)
        self._sampling, self._stop, self._beams = sampling, set(stop), beams
        self._seed = seed
        self.steps = 0
        self.difference: float | None = 0.0 if check_cache else None
        self._source: Source
        self._check = Uncached(model, self._sources) if check_cache else None
        if cache:
            encoded = encode(model, self._sources) if self._sources else {}
            self._source = Cached(model, encoded, chunk)
        else:
            self._source = Uncached(model, self._sources)
        self._tokens = self._search() if beams > 1 else self._draw()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._tokens)

    def feed(self, rows: Sequence[Sequence[int]]) -> Array:
        """The logits behind these further tokens; compared, where that is asked for."""
        self.steps += 1
        logits = self._source.feed(rows)
        if self._check is not None:
            apart = np.abs(logits.astype(np.float64) - self._check.feed(rows)).max()
            known = self.difference or 0.0
            self.difference = float(max(known, apart))
        return logits

    def reorder(self, rows: Sequence[int]) -> None:
        """Row i goes on from row rows[i], as beams do."""
        for source in filter(None, (self._source, self._check)):
            source.reorder(rows)

    def _draw(self) -> Iterator[Any]:
        """A token for each row, then the next; a row has random numbers of its own."""
        seen = [list(prompt) for prompt in self._prompts]
        streams = [np.random.Generator(np.random.Philox([self._seed, i])) for i in range(len(seen))]
        ended = [False] * len(seen)
        new: Sequence[Sequence[int]] = self._prompts
        for _ in range(self._max_tokens):
            logits = self.feed(new)
            drawn: list[int | None] = []
            for i, row in enumerate(logits):
                p = probabilities(row, seen[i], self._sampling)
                token = draw(p, streams[i])
                seen[i].append(token)
                drawn.append(None if ended[i] else token)
                ended[i] = ended[i] or token in self._stop
            yield drawn if self._several else drawn[0]
            if all(ended):
                return
            new = [row[-1:] for row in seen]

    def _search(self) -> Iterator[int]:
        """The tokens of the best beam, when it is known."""
        found = search(self, self._prompts[0], self._beams, self._max_tokens, self._stop)
        yield from found

    @property
    def prefills(self) -> list[int]:
        """The tokens of each call that took more than each row's newest."""
        return self._source.prefills


def _row(ids: Sequence[int]) -> list[int]:
    """Tokens as ints. Raises TfgraphError for none, or for what is no integer."""
    row = [int(token) for token in ids if not isinstance(token, bool | float)]
    if not row or len(row) < len(ids):
        raise TfgraphError(f"ids are {list(ids)!r:.60}, expected integers, at least one")
    return row
