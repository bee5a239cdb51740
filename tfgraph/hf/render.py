"""The text of a model file: YAML in the order in which one reads a model, with comments.

May import: the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

# A blank line stands before each of the groups. Keys that no group has come last.
_GROUPS = (
    ("kind", "layers", "width", "heads", "kv_heads", "head_size", "ffn", "activation", "gated",
     "bias", "ffn_bias", "share_layers"),
    ("norm", "final_norm", "stem", "positions", "embedding", "attention", "experts", "local",
     "encoder", "mask", "vocabulary"),
    ("pooler", "head"),
)  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+{}()*\-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def render(
    *,
    comment: str,
    name: str,
    values: Mapping[str, Any],
    symbols: Mapping[str, tuple[int, int, int]],
    sources: Mapping[str, str],
    file: str,
    names: Mapping[str, str],
    ignore: Sequence[str],
    stored: str = "",
) -> str:
    """The text. `values` are the model's keys, dots for nesting; `sources` says which key of
    config.json each comes from; `symbols` gives minimum, maximum and example of each; `stored` is a
    comment on the dtype."""
    nested = _nest(values)
    lines = [
        f"# {' '.join(comment.split())}",
        "# Comments on the right name the keys of config.json.",
        f"name: {scalar(name)}",
    ]
    rest = [key for key in nested if not any(key in group for group in _GROUPS)]
    for i, group in enumerate((*_GROUPS, rest)):
        found = [key for key in group if key in nested]
        lines += [""] if found and i else []
        for key in found:
            origin = _origin(key, sources)
            lines.append(f"{key}: {_flow(nested[key])}" + (f" # {origin}" if origin else ""))
    lines += ["# hidden_states: true # adds the outputs hidden.0, hidden.1, ...", "", "symbols:"]
    for symbol, (low, high, example) in symbols.items():
        lines.append(f"  {symbol}: {{min: {low}, max: {high}, example: {example}}}")
    lines += ["", f"dtype: float32{stored}", "weights:", f"  file: {scalar(file)}"]
    lines += ["  names: # of the tensors in the file; its linear weights are [out, in]"]
    lines += [f"    {scalar(ours)}: {scalar(theirs)}" for ours, theirs in names.items()]
    if ignore:
        lines += ["  ignore: # tensors in the file that this model has no use for"]
        lines += [f"    - {scalar(pattern)}" for pattern in ignore]
    return "\n".join(lines) + "\n"


def scalar(value: Any) -> str:
    """A value in YAML 1.2; text in quotes where it could be read as something else."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        *outer, last = key.split(".")
        inside = result
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return result


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        items = {k: items[k] for k in sorted(items, key=lambda k: k != "kind")}
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in items.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, cast("list[Any]", value))) + "]"
    return scalar(value)


def _origin(key: str, sources: Mapping[str, str]) -> str:
    """The keys of config.json that a key of the model file comes from."""
    inner = [k for k in sources if k == key or k.startswith(f"{key}.")]
    return ", ".join(sources[k] for k in inner)
