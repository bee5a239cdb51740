"""What `tfgraph generate` does with its arguments: the tokens as they come, and what was counted.

Imports the standard library, output, tfgraph.runtime and errors: nothing that is not needed to run
an artifact.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgraph.cli.output import plural
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.cli.output import Output
    from tfgraph.runtime.generate import Generation


@dataclass(frozen=True)
class Request:
    """The options of `generate`; None where one is not given."""

    ids: str
    prefix: str | None = None
    max_tokens: int = 32
    greedy: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    beams: int = 1
    stop: str | None = None
    seed: int = 0
    chunk: int | None = None
    cache: bool = True
    check_cache: bool = False

    def options(self) -> dict[str, Any]:
        """The arguments of `Runnable.generate`. Raises TfgraphError where they contradict."""
        drawing = {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
        }
        given: dict[str, Any] = {n: value for n, value in drawing.items() if value is not None}
        for name in given:
            if self.greedy or self.beams > 1:
                other = "--greedy" if self.greedy else "--beams"
                option = f"--{name.replace('_', '-')}"
                raise TfgraphError(f"{other} draws nothing, so it does not go with {option}")
        if given:
            given.setdefault("temperature", 1.0)
        if self.repetition_penalty is not None:
            given["repetition_penalty"] = self.repetition_penalty
        if self.prefix is not None:
            given["prefix"] = parse_ids(self.prefix, "--prefix")
        return given | {
            "max_tokens": self.max_tokens,
            "beams": self.beams,
            "stop": parse_ids(self.stop, "--stop") if self.stop else (),
            "seed": self.seed,
            "chunk": self.chunk,
            "cache": self.cache,
            "check_cache": self.check_cache,
        }


def generate_artifact(
    out: Output, spec: str, request: Request, threads: int | None, verify_weights: bool
) -> int:
    """Load the artifact and print the tokens that it generates."""
    ids, options = parse_ids(request.ids, "--ids"), request.options()
    from tfgraph.runtime.model import load

    with load(spec, threads=threads, verify_weights=verify_weights) as model:
        generation = model.generate(ids, **options)
        start = time.perf_counter()
        tokens = _stream(out, generation)
        seconds = time.perf_counter() - start
    out.object(
        {
            "ids": tokens,
            "steps": generation.steps,
            "prefill_lengths": generation.prefills,
            "logit_max_abs_vs_uncached": generation.difference,
        }
    )
    if generation.difference is not None:
        out.note(f"largest difference of a logit without the cache: {generation.difference:.3g}")
    rate = len(tokens) / max(seconds, 1e-9)
    out.note(f"{plural(len(tokens), 'token')} in {seconds:.2f} s, {rate:.4g} tokens/s")
    return 0


def _stream(out: Output, generation: Generation) -> list[int]:
    """Print each token when it is known, with commas between them, and return them all."""
    tokens: list[int] = []
    try:
        for token in generation:
            if not out.json:
                print("," * bool(tokens) + str(token), end="", flush=True)
            tokens.append(token)
    finally:
        if tokens and not out.json:
            print(flush=True)
            sys.stdout.flush()
    return tokens


def parse_ids(text: str, option: str) -> list[int]:
    """Token ids with commas between them. Raises TfgraphError for anything else."""
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if not (word.isascii() and word.isdecimal())]
    if wrong or any(len(word) > 18 for word in words):
        got = wrong[0] if wrong else max(words, key=len)
        raise TfgraphError(f"{option}: {got!r:.40} is no token id", hint=f"{option} 5,6,7")
    return [int(word) for word in words]
