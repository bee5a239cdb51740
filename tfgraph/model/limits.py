"""Absurd sizes are refused before any memory is taken for them, at the key that makes them.

May import: schema, read, ir, errors.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.model.schema import HighLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Graph
    from tfgraph.model.read import Document
    from tfgraph.model.schema import FreeForm

MAX_PARAMETERS = 1 << 37
MAX_SEEDED_BYTES = 1 << 34

# Which key of the file sizes a parameter, by a part of the parameter's name; others by the width.
_KEYS = {
    "embeddings.tokens": "vocabulary",
    "lm_head": "vocabulary",
    "embeddings.positions": "positions",
    "embeddings.token_types": "embedding",
    "positions.": "positions",
    "stem.": "stem",
    "pooler.": "pooler",
    "attention.": "head_size",
    ".experts.": "experts",
    ".ffn.": "ffn",
}


def check_sizes(
    graph: Graph, spec: HighLevel | FreeForm, document: Document, *, seeded: bool
) -> None:
    """Raise TfgraphError for more parameters than are supported, or more bytes than are seeded."""
    counts = {p.value.name: prod(map(int, p.value.type.shape)) for p in graph.params}
    widths = {p.value.name: p.value.type.dtype.bits for p in graph.params}
    sizes = {name: n * widths[name] // 8 for name, n in counts.items()}
    total = sum(counts.values())
    if total > MAX_PARAMETERS:
        path = _at_fault(counts, MAX_PARAMETERS, spec, document)
        raise TfgraphError(
            f"{'.'.join(path)}: {total:.3g} parameters; at most {MAX_PARAMETERS:.3g} are supported",
            document.place(*path).value,
        )
    size = sum(sizes.values())
    if seeded and size > MAX_SEEDED_BYTES:
        path = _at_fault(sizes, MAX_SEEDED_BYTES, spec, document)
        raise TfgraphError(
            f"{'.'.join(path)}: {_gib(size)} of seeded weights; at most {_gib(MAX_SEEDED_BYTES)} "
            "are made up",
            document.place(*path).value,
            "give a file of weights",
        )


def _at_fault(
    sizes: Mapping[str, int], limit: int, spec: HighLevel | FreeForm, document: Document
) -> tuple[str, ...]:
    """The path of the key to blame: what sizes the largest part, unless one layer would fit."""
    if not isinstance(spec, HighLevel):
        return ("weights", max(sizes, key=sizes.__getitem__))
    parts = Counter[str]()
    for name, size in sizes.items():
        key = next((key for part, key in _KEYS.items() if part in name), "width")
        parts[key if key in document.data else "width"] += size
    ((key, size),) = parts.most_common(1)
    in_layers = key in ("width", "ffn", "head_size", "experts")
    return ("layers",) if in_layers and size // spec.layers <= limit else (key,)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
