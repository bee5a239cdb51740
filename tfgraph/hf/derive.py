"""Values that follow from several keys of a config.json, for the field `also` of an architecture.

Each function takes the config and the values so far, and gives further ones. May import: config.
"""

from __future__ import annotations

import math
from typing import Any, cast

from tfgraph.hf.config import Config

Values = dict[str, Any]

MOST_LAYERS = 4096
"""No list is made for more layers: no model file has as many."""
_TYPES = {"full_attention": "full", "sliding_attention": "local"}


def head_size(values: Values) -> int:
    """The width of a head."""
    return int(values.get("head_size") or values["width"] // values["heads"])


def rotary(config: Config, values: Values, base: float = 10000, share: float = 1) -> Values:
    """Rotary positions: `rope_parameters`, or `rope_theta`, `rope_scaling` and their like; `base`
    and `share` of a head are those where config.json does not say."""
    return {
        "positions.kind": "rotary",
        **rotary_keys(config, values, "positions", "", base=base, share=share),
        "positions.max": config.number("max_position_embeddings|n_positions", None, "size"),
    }


def rotary_keys(
    config: Config,
    values: Values,
    path: str,
    layers: str,
    theta: str = "rope_theta|rotary_emb_base",
    base: float = 10000,
    scaled: bool = True,
    share: float = 1,
) -> Values:
    """The keys of rotary positions under `path`, of the `layers` of one type where config.json has
    types; `theta` and `base` are the older key of the base and its default."""
    for key in ("rope_parameters", "rope_scaling"):
        if not isinstance(config.get(key, {}), dict):
            raise config.error(key, "expected an object")
    inner: Any = config.get(f"rope_parameters.{layers}")
    where = f"rope_parameters.{layers}" if isinstance(inner, dict) else "rope_parameters"
    found: Values = {f"{path}.base": config.number(f"{where}.rope_theta|{theta}", base)}
    share = config.number(f"{where}.partial_rotary_factor|partial_rotary_factor|rotary_pct", share)
    if share != 1:
        found[f"{path}.size"] = int(head_size(values) * share)
    if scaled:
        where = where if config.get("rope_parameters") is not None else "rope_scaling"
        scaling = _scaling(config, where)
        found |= {f"{path}.scaling.{key}": value for key, value in scaling.items()}
    return found


def _scaling(config: Config, where: str) -> Values:
    """The keys of a scaling, none where frequencies are as they are."""
    kind = config.get(f"{where}.rope_type|{where}.type", "default")
    # "dynamic" scales only what is longer than the model was made for, which is not run.
    if kind in ("default", "dynamic"):
        return {}
    if kind == "linear":
        return {"kind": kind, "factor": config.number(f"{where}.factor")}
    original = f"{where}.original_max_position_embeddings|original_max_position_embeddings"
    if kind == "llama3":
        return {
            "kind": kind,
            "factor": config.number(f"{where}.factor"),
            "original": config.number(original, None, "size"),
            "low": config.number(f"{where}.low_freq_factor", 1),
            "high": config.number(f"{where}.high_freq_factor", 4),
        }
    if kind == "yarn":
        return _yarn(config, where, original)
    if kind in ("longrope", "su"):
        short, long = (_numbers(config, f"{where}.{name}_factor") for name in ("short", "long"))
        most = int(config.number("max_position_embeddings", None, "size"))
        before = int(config.number(original, most, "size"))
        if before < 2:
            raise config.error(original.rpartition("|")[2], "expected more than one position")
        factor = float(config.number(f"{where}.factor", most / before))
        grown = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(before))
        magnitude = config.number(f"{where}.attention_factor", grown)
        return {
            "kind": "longrope",
            "original": before,
            "short": short,
            "long": long,
            "magnitude": magnitude,
        }
    raise config.error(
        "rope_type" if config.get(f"{where}.rope_type") else "type",
        f"'{kind}' is not supported, expected default, linear, llama3, yarn, longrope or dynamic",
    )


def _yarn(config: Config, where: str, original: str) -> Values:
    """The keys of YaRN. Two scales of the magnitude, where there are such, are divided."""
    most = int(config.number("max_position_embeddings|n_positions", None, "size"))
    before = int(config.number(original, most, "size"))
    factor = float(config.number(f"{where}.factor", most / before))

    def grown(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1

    scales = [float(config.number(f"{where}.{key}", 0)) for key in ("mscale", "mscale_all_dim")]
    usual = grown(scales[0]) / grown(scales[1]) if all(scales) else grown(1)
    found: Values = {
        "kind": "yarn",
        "factor": config.number(f"{where}.factor", factor),
        "original": before,
        "low": config.number(f"{where}.beta_slow", 1),
        "high": config.number(f"{where}.beta_fast", 32),
        "magnitude": config.number(f"{where}.attention_factor", usual),
    }
    return found if config.get(f"{where}.truncate", True) else found | {"truncate": False}


def _numbers(config: Config, path: str) -> list[Any]:
    found: Any = config.get(path)
    if not isinstance(found, list) or not found:
        raise config.error(path, "expected a list of numbers")
    return [config.checked(path, value, "number") for value in cast("list[Any]", found)]


def window(config: Config, values: Values, usual: int = 0) -> Values:
    """A window in all layers, where `sliding_window` says so; where it says nothing, a `usual` one,
    if there are as many positions."""
    if "sliding_window" in config.data:
        given = bool(config.get("sliding_window"))
        size = config.number("sliding_window", None, "distance") if given else 0
    else:
        size = usual - 1 if 0 < usual < values["positions.max"] else 0
    return {"mask": [*values["mask"], {"kind": "window", "left": size}]} if size else {}


def local_layers(config: Config, usual: list[str], **near: Any) -> Values:
    """The key `local` for `layer_types`, or the types that are `usual` without it: of local layers
    with the keys `near`."""
    types: Any = config.get("layer_types", usual)
    known = isinstance(types, list) and all(
        isinstance(t, str) and t in _TYPES for t in cast("list[Any]", types)
    )
    if not known:
        expected = " and ".join(_TYPES)
        raise config.error("layer_types", f"expected a list of {expected}")
    kinds = [_TYPES[t] for t in cast("list[str]", types)]
    if "local" not in kinds:
        return {}
    period = next(
        n
        for n in range(1, len(kinds) + 1)
        if all(kind == kinds[i % n] for i, kind in enumerate(kinds))
    )
    found = {f"local.{key.replace('__', '.')}": value for key, value in near.items()}
    return {"local.pattern": kinds[:period], **found}


def alternating(config: Config, values: Values, every: int, first: bool = False) -> list[str]:
    """Layer types of which one in `every` is full: the last of them, or the `first`."""
    return [
        "full_attention" if (i + (not first)) % every == 0 else "sliding_attention"
        for i in range(min(int(values["layers"]), MOST_LAYERS))
    ]


def query_scale(config: Config, values: Values) -> Values:
    """The scale of scores by `query_pre_attn_scalar` (Gemma 2 and 3)."""
    return {"attention.scale": f"rsqrt({config.number('query_pre_attn_scalar', 256)})"}


def embedding_scale(config: Config, values: Values) -> Values:
    """Tokens times sqrt(width), where `scale_embedding` says so."""
    return {"embedding.scale": "sqrt(width)"} if config.get("scale_embedding") is True else {}


def two_rows_before(*paths: str) -> Any:
    """Tables of learned positions that begin with two rows for no position (BART, OPT)."""

    def also(config: Config, values: Values) -> Values:
        rows = int(config.number("max_position_embeddings", None, "size")) + 2
        return {f"{path}.{key}": n for path in paths for key, n in (("max", rows), ("offset", 2))}

    return also
