"""What `tfgraph generate` does with its arguments: the tokens as they come, and what was counted.

Imports the standard library, output, tfgraph.runtime and errors: nothing that is not needed to run
an artifact.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgraph.cli.output import plural
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgraph.cli.output import Output
    from tfgraph.runtime.generate import Generation
    from tfgraph.runtime.model import Model
    from tfgraph.runtime.text import Stream


@dataclass(frozen=True)
class Request:
    """The options of `generate`; None where one is not given."""

    ids: str | None = None
    text: str | None = None
    input: list[str] | None = None
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
    suppress: str | None = None
    seed: int | None = None
    chunk: int | None = None
    cache: bool = True
    check_cache: bool = False

    def options(self) -> dict[str, Any]:
        """The arguments of `Runnable.generate` but for ids. Raises TfgraphError where they
        contradict."""
        given = self._drawing()
        if given:
            given.setdefault("temperature", 1.0)
        draws = given.get("temperature", 0) != 0
        if self.seed is not None and not draws:
            raise TfgraphError(
                "--seed is given and nothing draws",
                hint="--temperature, --top-k, --top-p and --min-p do",
            )
        for option, wrong in (("--chunk", self.chunk), ("--check-cache", self.check_cache)):
            if wrong and not self.cache:
                raise TfgraphError(f"--no-cache has no cache, so it does not go with {option}")
        if self.repetition_penalty is not None:
            given["repetition_penalty"] = self.repetition_penalty
        for name in ("stop", "suppress"):
            tokens: str | None = getattr(self, name)
            if tokens is not None:
                given[name] = parse_ids(tokens, f"--{name}") if tokens else ()
        return given | {
            "max_tokens": self.max_tokens,
            "beams": self.beams,
            "seed": self.seed or 0,
            "chunk": self.chunk,
            "cache": self.cache,
            "check_cache": self.check_cache,
        }

    def _drawing(self) -> dict[str, Any]:
        """The options that draw, but for those whose value says that they do not: `--top-k 0`,
        `--top-p 1`, `--min-p 0`. Raises TfgraphError for them beside one that draws nothing."""
        found: dict[str, Any] = {
            name: value
            for name, value, off in (
                ("temperature", self.temperature, None),
                ("top_k", self.top_k, 0),
                ("top_p", self.top_p, 1),
                ("min_p", self.min_p, 0),
            )
            if value not in (None, off)
        }
        greedy = {
            "--greedy": self.greedy,
            "--temperature 0": self.temperature == 0,
            f"--beams {self.beams}": self.beams > 1,
        }
        for other in (name for name, chosen in greedy.items() if chosen):
            for name, value in found.items():
                if name != "temperature" or value != 0:
                    option = f"--{name.replace('_', '-')}"
                    raise TfgraphError(f"{other} draws nothing, so it does not go with {option}")
        if self.beams > 1 and self.greedy:
            raise TfgraphError(
                f"--greedy keeps one beam, so it does not go with --beams {self.beams}"
            )
        if self.beams > 1 and self.repetition_penalty not in (None, 1):
            raise TfgraphError(
                f"--beams {self.beams} goes by the logits as they are, so it does not go with "
                "--repetition-penalty"
            )
        return found


def generate_artifact(
    out: Output, spec: str, request: Request, threads: int | None, verify_weights: bool
) -> int:
    """Load the artifact and print the tokens, or the text, that it generates."""
    _require_one_prompt(request)
    prompt, options = _given_ids(request), request.options()
    from tfgraph.runtime.model import load

    with load(spec, threads=threads, verify_weights=verify_weights) as model:
        ids: Any
        ids, prefix = prompt or _encoded(model, request)
        generation = model.generate(ids, prefix=prefix, **options)
        text = None
        if request.text is not None or (request.input and model.tokenizer_json is not None):
            text = model.tokenizer.stream(ids if prefix is None else prefix)
        start = time.perf_counter()
        tokens, written = _stream(out, _known(out, generation, request), text)
        seconds = time.perf_counter() - start
    found: dict[str, Any] = {
        "ids": tokens,
        "steps": generation.steps,
        "prefill_lengths": generation.prefills,
    }
    if text is not None:
        found["text"] = written
    if generation.difference is not None:
        finite = math.isfinite(generation.difference)
        found["logit_max_abs_vs_uncached"] = generation.difference if finite else None
    out.object(found)
    if generation.difference is not None:
        out.note(f"largest difference of a logit without the cache: {generation.difference:.3g}")
    if generation.out_of_positions:
        out.note(f"ended early: {model.name} has no position for another token")
    out.note(_counted(len(tokens), seconds))
    return 0


def _known(out: Output, generation: Generation, request: Request) -> Iterable[int]:
    """The tokens as they come; where they are not shown as they come, all of them, and meanwhile
    how far it is."""
    if not out.json and request.beams == 1:
        return generation
    with out.progress("generating") as say:
        start = time.perf_counter()
        if not out.verbose:  # which would print a line for each
            generation.on_step = lambda: say(
                _counted(generation.steps, time.perf_counter() - start)
            )
        return list(generation)


def _counted(tokens: int, seconds: float) -> str:
    """How many tokens in which time, and by second."""
    rate = tokens / max(seconds, 1e-9)
    return f"{plural(tokens, 'token')} in {seconds:.2f} s, {rate:.4g} tokens/s"


def _require_one_prompt(request: Request) -> None:
    """Raise TfgraphError unless the prompt is given, and in one way."""
    ways = {"--ids": request.ids, "--text": request.text, "--input": request.input}
    given = [option for option, value in ways.items() if value is not None]
    if len(given) != 1:
        wrong = f"{given[0]} and {given[1]} are both given" if given else "a prompt is missing"
        hint = "--ids 5,6,7, or --text of a model that has a tokenizer"
        raise TfgraphError(wrong, hint=hint)


def _given_ids(request: Request) -> tuple[list[int], list[int] | None] | None:
    """The prompt and the target so far, where they are given as ids; None where not."""
    if request.ids is None:
        return None
    prefix = request.prefix
    ids = parse_ids(request.ids, "--ids")
    return ids, None if prefix is None else parse_ids(prefix, "--prefix")


def _encoded(model: Model, request: Request) -> tuple[Any, list[int] | None]:
    """The same of a text, or of the encoder's inputs; of an encoder-decoder the target begins with
    the start tokens."""
    from tfgraph.runtime.tokens import target_ids

    if request.input is not None:
        from tfgraph.cli.inputs import read_inputs

        encode = model.functions.get("encode")
        if encode is None:
            raise TfgraphError(f"{model.name} has no encoder: --input is not for it")
        return read_inputs(request.input, encode.inputs), target_ids(model, request.prefix)
    ids = model.tokenizer.encode(request.text or "")
    if not ids:
        raise TfgraphError("--text: this text has no tokens")
    decodes = "encode" in model.functions or request.prefix is not None
    return ids, target_ids(model, request.prefix) if decodes else None


def _stream(out: Output, known: Iterable[int], text: Stream | None) -> tuple[list[int], str | None]:
    """Print each token when it is known, as text or with commas between them; all tokens, and
    their text."""
    tokens: list[int] = []
    pieces: list[str] = []

    def show(piece: str) -> None:
        pieces.append(piece)
        if not out.json:
            print(piece, end="", flush=True)

    try:
        for token in known:
            comma = "," * bool(tokens)
            tokens.append(token)
            show(f"{comma}{token}" if text is None else text.add(token))
        if text is not None:
            show(text.end())
    finally:
        if tokens and not out.json:
            print(flush=True)
    return tokens, None if text is None else "".join(pieces)


def parse_ids(text: str, option: str) -> list[int]:
    """Token ids with commas between them. Raises TfgraphError for anything else."""
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if not (word.isascii() and word.isdecimal())]
    if wrong or any(len(word) > 18 for word in words):
        got = wrong[0] if wrong else max(words, key=len)
        raise TfgraphError(f"{option}: {got!r:.40} is no token id", hint=f"{option} 5,6,7")
    return [int(word) for word in words]
