"""What everything that runs offers, an artifact and the reference alike.

    with tfgraph.compile(graph) as model:
        outputs = model(**model.example({"seq": 33}))

May import: the other files of runtime, errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.runtime.examples import example
from tfgraph.runtime.inputs import check_dims
from tfgraph.runtime.kept import Kept
from tfgraph.runtime.place import HOST, Place
from tfgraph.runtime.text import Tokenizer, TokenRules

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Never, Self

    import numpy as np

    from tfgraph.runtime.generate import Generation
    from tfgraph.runtime.sizes import Port, SymbolRange
    from tfgraph.runtime.state import State

    Array = np.ndarray[Any, np.dtype[Any]]


class Runnable(ABC):
    """A callable from arrays by input name to arrays by output name."""

    name: str
    target: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: Mapping[str, SymbolRange]
    functions: Mapping[str, Runnable] = MappingProxyType({})
    """The other functions of the model, such as `step` of one that generates."""
    generation: TokenRules = TokenRules()
    """Where generation starts and stops, unless `generate` is told otherwise."""
    no_generation: str | None = None
    """Why it does not generate, where that is known."""
    tokenizer_json: bytes | None = None
    """The tokenizer that came with the model."""
    place: Place = HOST
    """Where its states lie."""

    @abstractmethod
    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, Array]:
        """Run on arrays by input name; the outputs by name.

        Inputs are NumPy arrays or DLPack tensors in the CPU's memory, of the dtype that the port
        names; where their bytes lie in a way that kernels can't read, they are copied. `dims` gives
        the sizes of symbols that no input's shape tells. An input that is a state becomes the
        output of its name: compiled code writes the caller's array, the reference makes a new one.

        Outputs are new arrays, which belong to the caller. Those named in `out` are written to the
        arrays it gives, by a copy when all is computed, and these are what is returned: writable,
        of the output's dtype and of its shape at this call's sizes, apart from the inputs and from
        each other. Raises TfgraphError for a wrong or missing name, dtype, shape, size or id.
        """

    def keep(self, arrays: Mapping[str, Array]) -> Kept:
        """Some of the inputs, all states among them, for `resume`. Raises TfgraphError for a wrong
        dtype, for sizes that contradict each other and for states that share memory."""
        return Kept(dict(arrays))

    def resume(self, kept: Kept, dims: Mapping[str, int], **inputs: Any) -> dict[str, Array]:
        """The outputs that are no states, of the other inputs; the states in `kept` become what
        the call makes of them. Its arrays may be replaced or written between calls: what a call on
        all inputs would refuse is refused, but for other inputs that share a state's memory."""
        found = self(dims=dims, **inputs, **kept.arrays)
        for port in self.inputs:
            if port.is_state:
                kept.arrays[port.name] = found.pop(port.name)
        return found

    def example(
        self, dims: Mapping[str, int] | None = None, seed: int = 0, **mistaken: Never
    ) -> dict[str, Array]:
        """Inputs from the model's generators, at its example sizes unless `dims` says others.
        Raises TfgraphError for an unknown symbol and for a size out of its range."""
        if mistaken:
            raise TfgraphError(
                f"example has no argument '{next(iter(mistaken))}'",
                hint=f"sizes are given as model.example({dict(mistaken)})",
            )
        sizes = self.sizes(dims)
        return {port.name: example(port, sizes, seed) for port in self.inputs}

    def sizes(self, dims: Mapping[str, int] | None = None) -> dict[str, int]:
        """The example size of each symbol, with those in `dims` instead; raises as `example`."""
        given = check_dims(dims, self.symbols)
        for name, size in given.items():
            self.symbols[name].check(name, size, "dims")
        return {name: s.example for name, s in self.symbols.items()} | given

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Turns text into ids, and ids into text: see `tfgraph.runtime.text`. Raises TfgraphError
        where the model came without one, MissingTool where `tokenizers` is not installed."""
        if self.tokenizer_json is None:
            raise TfgraphError(
                f"{self.name} has no tokenizer",
                hint="name one in its model file, `tokenizer: tokenizer.json`, and compile again",
            )
        return Tokenizer(self.tokenizer_json, f"the tokenizer of {self.name}")

    def tokenize(
        self, texts: str | Sequence[str], *, prefix: str | None = None, limit: int | None = None
    ) -> dict[str, Array]:
        """Texts as inputs, those of `input_ids`, `attention_mask` and `token_type_ids` that the
        model has: i64 [texts, tokens], shorter ones padded behind.

        `limit` cuts off what is longer. Of an encoder-decoder, `decoder_input_ids` are the start
        token and the text `prefix`. Raises TfgraphError for a model that takes no ids, or none of
        several lengths, and as `tokenizer`.
        """
        from tfgraph.runtime.tokens import text_inputs

        return text_inputs(self, [texts] if isinstance(texts, str) else texts, prefix, limit)

    def new_state(
        self,
        batch: int = 1,
        *,
        first: Sequence[int] | None = None,
        sources: Sequence[Sequence[int]] | dict[str, Array] | None = None,
    ) -> State:
        """What `generate` keeps between steps, to be fed by hand: see `tfgraph.runtime.state`.

        The `first` tokens of each row are padding, whatever they are. `sources` are those of an
        encoder-decoder, a list of tokens for each row, or its encoder's inputs by name.
        Raises TfgraphError where the model does not generate.
        """
        from tfgraph.runtime.source import new_state

        return new_state(self, batch, first, sources)

    def generate(
        self,
        ids: Sequence[int] | Sequence[Sequence[int]] | dict[str, Array],
        *,
        max_tokens: int = 32,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        beams: int = 1,
        stop: Collection[int] | None = None,
        suppress: Collection[int] | None = None,
        seed: int = 0,
        cache: bool = True,
        check_cache: bool = False,
        chunk: int | None = None,
        prefix: Sequence[int] | None = None,
    ) -> Generation:
        """The tokens behind `ids`, one after another, at most `max_tokens` and as many as the model
        has positions for; the last is one of `stop` where one came, by default the model's own.

        For several prompts, each token is a list with one for each, None for those that have ended.
        Temperature 0 takes the likeliest token; else one is drawn, of those that `top_k`, `top_p`
        and `min_p` leave, see `tfgraph.runtime.sampling`. More than one beam gives the tokens of
        the best when it is known. Tokens in `suppress` are never taken, by default those that the
        model file says. Of an encoder-decoder, `ids` are the source, or arrays for the inputs of
        its encoder by name, a row each, and `prefix` is the target so far, by default the model's
        start tokens, or 0. `cache=False` computes all tokens
        anew at each step, `check_cache` both ways (see `Generation.difference`); prompts are fed in
        pieces of `chunk` tokens. Raises TfgraphError for a model that does not generate, an id out
        of range, or an option that makes no sense.
        """
        from tfgraph.runtime.generate import Generation
        from tfgraph.runtime.sampling import Sampling

        return Generation(
            self,
            ids,
            max_tokens=max_tokens,
            sampling=Sampling(temperature, top_k, top_p, min_p, repetition_penalty),
            beams=beams,
            stop=self.generation.stop if stop is None else stop,
            suppress=self.generation.suppress if suppress is None else suppress,
            suppress_first=self.generation.suppress_first if suppress is None else (),
            seed=seed,
            cache=cache,
            check_cache=check_cache,
            chunk=chunk,
            prefix=prefix,
        )

    def close(self) -> None:  # noqa: B027 - not all hold something
        """Free what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        return f"<{self.name} for {self.target}: {inputs} -> {outputs}>"
