"""What `tfgraph inspect --attention` prints: which tokens attend to which, per layer and head.

Imports numpy, tfgraph.runtime and errors: nothing that is not needed to run an artifact.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.cli.generating import parse_ids
from tfgraph.errors import MissingTool, TfgraphError, nearest
from tfgraph.runtime.examples import complete
from tfgraph.runtime.format import read_manifest
from tfgraph.runtime.sizes import evaluate
from tfgraph.runtime.tokens import target_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.cli.output import Output
    from tfgraph.runtime.runnable import Runnable
    from tfgraph.runtime.sizes import Port

    NDArray = np.ndarray[Any, np.dtype[Any]]

TOP = 5
_LAYER = re.compile(r"\blayers\.(\d+)")
_SPACES = ("\N{LOWER ONE EIGHTH BLOCK}", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}")
"""How tokenizers write the space before a word."""
_END = "</w>"
_MARKS = re.compile(f"^(##|{'|'.join(_SPACES)})|{_END}$")
_SHOWN = 0.005  # what two digits show as 0.00 is left out


@dataclass(frozen=True)
class Request:
    """What `inspect --attention` is asked for beside the model."""

    ids: str | None = None
    text: str | None = None
    prefix: str | None = None
    token: str | None = None
    layer: int | None = None
    top: int = TOP


@dataclass(frozen=True)
class AttentionMap:
    """The weights [heads, query, key] of one attention, and the tokens that stand there."""

    name: str
    weights: NDArray
    queries: Sequence[str]
    keys: Sequence[str]

    @property
    def title(self) -> str:
        """What it is called: the attention rather than its weights."""
        return self.name.removesuffix(".probabilities")

    @property
    def layer(self) -> int | None:
        """The number of the layer, if its name has one."""
        found = _LAYER.search(self.name)
        return None if found is None else int(found[1])

    def strongest(self, head: int, query: int, top: int) -> list[int]:
        """The keys that the query attends to most, of equal ones the first; none with weight 0."""
        row = self.weights[head, query]
        order = np.argsort(-row, kind="stable")[:top]
        return [int(key) for key in order if row[key] > 0]

    def to_json(self, queries: Sequence[int], top: int) -> dict[str, Any]:
        """The object in the list `maps`."""
        rows = [
            {
                "head": head,
                "position": query,
                "token": self.queries[query],
                "attends": [
                    {
                        "position": key,
                        "token": self.keys[key],
                        "weight": float(self.weights[head, query, key]),
                    }
                    for key in self.strongest(head, query, top)
                ],
            }
            for query in queries
            for head in range(len(self.weights))
        ]
        return {"name": self.name, "layer": self.layer, "rows": rows}


def attention_of_artifact(out: Output, spec: str, request: Request) -> int:
    """Run an artifact that gives its attention weights out, and print them."""
    from tfgraph.runtime.model import load

    manifest = read_manifest(Path(spec))
    if not any(port.get("attention") for port in manifest["outputs"]):
        command = manifest["command"] or ["tfgraph", "compile", "MODEL"]
        raise TfgraphError(
            f"{spec} does not give its attention weights out",
            hint=f"compile it again: {shlex.join([*command, '--tap', 'attention', '-o', spec])}",
        )
    with load(spec) as model:
        return print_attention(out, model, manifest["constraints"], request)


def print_attention(
    out: Output, executable: Runnable, constraints: Sequence[str], request: Request
) -> int:
    """Run the model once, with its attention weights among the outputs, and print them; the exit
    code."""
    ports = [port for port in executable.outputs if port.attention]
    tokens = _tokens(executable, request)
    given = _inputs(executable.inputs, tokens)
    arrays, sizes = complete(executable.inputs, executable.symbols, constraints, given, {}, 0)
    outputs = executable(dims=sizes, **arrays)
    labels = _written(executable, tokens)
    maps = [_map(port, outputs[port.name], labels) for port in ports]
    maps = _of_layer(maps, request.layer)
    chosen = [(m, find_word(m.queries, request.token)) for m in maps]
    if not any(positions for _, positions in chosen):
        raise _unknown(request.token or "", labels)
    chosen = [(m, positions) for m, positions in chosen if positions]
    out.object(
        {"tokens": labels, "maps": [m.to_json(positions, request.top) for m, positions in chosen]}
    )
    for i, (m, positions) in enumerate(chosen):
        if i:
            out.print()
        if request.token is None:
            _print_summary(out, m, request.top)
        else:
            _print_token(out, m, positions, request.top)
    return 0


def _print_token(out: Output, m: AttentionMap, positions: Sequence[int], top: int) -> None:
    """What each of these tokens attends to, a row for each head."""
    queries, keys = distinct(m.queries), distinct(m.keys)
    for query in positions:
        out.print(f"{out.style(m.title, 'bold')}  {queries[query]}")
        rows = [
            [f"head {head}", *(_cell(keys[k], m.weights[head, query, k]) for k in strongest)]
            for head in range(len(m.weights))
            for strongest in [_worth_showing(m, head, query, top)]
        ]
        out.rows([row if len(row) > 1 else [*row, "nothing"] for row in rows])


def _print_summary(out: Output, m: AttentionMap, top: int) -> None:
    """For each head the tokens that attend most to one other, and that other."""
    queries, keys = distinct(m.queries), distinct(m.keys)
    out.print(out.style(m.title, "bold"))
    rows: list[list[str]] = []
    for head, weights in enumerate(m.weights):
        order = np.argsort(-weights.max(-1), kind="stable")[:top]
        best = [(int(q), m.strongest(head, int(q), 1)) for q in order]
        cells = [
            _cell(f"{queries[q]} > {keys[found[0]]}", weights[q, found[0]])
            for q, found in best
            if found
        ]
        rows.append([f"head {head}", *(cells or ["nothing"])])
    out.rows(rows)


def _cell(label: str, weight: Any) -> str:
    return f"{label} {weight:.2f}"


def _worth_showing(m: AttentionMap, head: int, query: int, top: int) -> list[int]:
    """The strongest keys, without those whose weight shows as 0.00; the first in any case."""
    strongest = m.strongest(head, query, top)
    return strongest[:1] + [k for k in strongest[1:] if m.weights[head, query, k] >= _SHOWN]


def distinct(tokens: Sequence[str]) -> list[str]:
    """The tokens, with their positions where they occur more than once: `the@1`, `the@5`."""
    return [t if tokens.count(t) == 1 else f"{t}@{i}" for i, t in enumerate(tokens)]


def bare(token: str) -> str:
    """The text of a token without the marks of tokenizers: `##ing`, and a leading space."""
    return _MARKS.sub("", token)


def find_word(tokens: Sequence[str], word: str | None) -> list[int]:
    """Where the word stands: tokens that are it, as written or bare, and runs of tokens that make
    it up; everywhere where none is asked for. Letters are as given, else of any case."""
    if word is None:
        return list(range(len(tokens)))
    exact = {i for i, token in enumerate(tokens) if token == word} | _runs(tokens, word, bare)
    return sorted(exact or _runs(tokens, _folded(word), _folded))


def _folded(token: str) -> str:
    """The text of a token, in one case."""
    return bare(token).casefold()


def _runs(tokens: Sequence[str], word: str, text_of: Callable[[str], str]) -> set[int]:
    """The positions of tokens, alone or as they go on with each other, that say the word."""
    spaced = any(token.startswith(_SPACES) for token in tokens)
    ended = any(token.endswith(_END) for token in tokens)

    def goes_on(i: int) -> bool:
        """Whether there is a token i of the same word as the one before it."""
        if i >= len(tokens):
            return False
        joined = (spaced and not tokens[i].startswith(_SPACES)) or tokens[i].startswith("##")
        return joined or (ended and not tokens[i - 1].endswith(_END))

    found: set[int] = set()
    for start in range(len(tokens)):
        stop, text = start + 1, text_of(tokens[start])
        while text != word and word.startswith(text) and goes_on(stop):
            stop, text = stop + 1, text + text_of(tokens[stop])
        found.update(range(start, stop) if text == word else ())
    return found


def _unknown(word: str, labels: Mapping[str, Sequence[str]]) -> TfgraphError:
    tokens = list(dict.fromkeys(token for part in labels.values() for token in part))
    near = nearest(word, [bare(token) for token in tokens])
    shown = " ".join(tokens[:60]) + " ..." * (len(tokens) > 60)
    return TfgraphError(
        f"--token {word}: no such token", hint=f"{f'{near} ' * bool(near)}the tokens are {shown}"
    )


def _of_layer(maps: Sequence[AttentionMap], layer: int | None) -> list[AttentionMap]:
    """Those of one layer, or all."""
    found = [m for m in maps if layer is None or m.layer == layer]
    if not found:
        known = ", ".join(str(n) for n in sorted({m.layer for m in maps if m.layer is not None}))
        raise TfgraphError(
            f"--layer {layer}: the model has no such attention",
            hint=f"it has {known or 'no layers'}",
        )
    return found


def _map(port: Port, weights: NDArray, labels: Mapping[str, Sequence[str]]) -> AttentionMap:
    """Of a batch of one. Queries and keys are the tokens whose number they have, else positions."""
    queries, keys = (
        labels.get(str(dim)) or [str(i) for i in range(n)]
        for dim, n in zip(port.shape[2:], weights.shape[2:], strict=True)
    )
    return AttentionMap(port.name, weights[0], queries, keys)


def _tokens(model: Runnable, request: Request) -> dict[str, list[int]]:
    """The ids of the source, and of the target of an encoder-decoder, by their dimension."""
    dims = list(_id_ports(model.inputs))
    if not dims:
        hint = "`tfgraph run --save DIR` writes its attention weights as arrays"
        raise TfgraphError(f"{model.name} takes no token ids", hint=hint)
    if (request.ids is None) == (request.text is None):
        wrong = "needs a text" if request.ids is None else "takes --ids or --text, not both"
        raise TfgraphError(f"--attention {wrong}", hint="--text 'The cat sat', or --ids 5,6,7")
    if request.prefix is not None and len(dims) < 2:
        raise TfgraphError("--prefix is for encoder-decoders; this model has no target")
    if request.text is not None:
        source = model.tokenizer.encode(request.text)
        target = target_ids(model, request.prefix)
    else:
        source = parse_ids(request.ids or "", "--ids")
        start = model.generation.target
        target = start if request.prefix is None else parse_ids(request.prefix, "--prefix")
    if not source:
        raise TfgraphError("--text: this text has no tokens")
    return dict(zip(dims, (source, target), strict=False))


def _written(model: Runnable, tokens: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """How the tokenizer writes the tokens; their numbers where there is none."""
    name: Callable[[int], str] = str
    if model.tokenizer_json is not None:
        with suppress(MissingTool):  # ids work without it
            name = model.tokenizer.name
    return {dim: [name(token) for token in ids] for dim, ids in tokens.items()}


def _id_ports(ports: Sequence[Port]) -> dict[str, Port]:
    """The inputs [batch, length] that take tokens, by their length: of several of one length that
    with the largest vocabulary, for the others are kinds of tokens."""
    found: dict[str, Port] = {}
    for port in ports:
        if isinstance(port.limit, int) and len(port.shape) == 2:
            other = found.get(str(port.shape[1]))
            if other is None or port.limit > int(other.limit or 0):
                found[str(port.shape[1])] = port
    return found


def _inputs(ports: Sequence[Port], tokens: Mapping[str, Sequence[int]]) -> dict[str, NDArray]:
    """A batch of one with these tokens, all of them real and of kind 0. What has another use is
    left to be made up."""
    ids = {port.name: port for port in _id_ports(ports).values()}
    given: dict[str, NDArray] = {}
    sizes = {dim: len(row) for dim, row in tokens.items()}
    batch = {str(port.shape[0]): 1 for port in ids.values()}
    for port in ports:
        kind, _, argument = port.fill.removesuffix(")").partition("(")
        try:
            shape = tuple(evaluate(dim, sizes | batch) for dim in port.shape)
            length = evaluate(argument, sizes) if kind == "lengths" else 1
        except KeyError:
            continue
        if port.name in ids:
            given[port.name] = np.array([tokens[str(port.shape[1])]], port.dtype)
        elif kind in ("ids", "prefix", "lengths"):
            kinds = port.limit is not None
            given[port.name] = np.full(shape, 0 if kinds else length, port.dtype)
    return given
