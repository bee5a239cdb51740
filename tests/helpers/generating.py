"""Small models that generate, one for each way in which they differ."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import tfgraph
from tfgraph.model import Model, read_model

if TYPE_CHECKING:
    from tfgraph.backends.base import Executable

VOCABULARY = 40
_BASE = f"layers: 2\nwidth: 24\nheads: 4\nvocabulary: {VOCABULARY}\nhead: lm\n"
YAML = {
    "learned": _BASE + "kind: decoder\nkv_heads: 2\npositions: {kind: learned, max: 150}\n"
    "norm: {placement: pre}\n",
    "offset": _BASE + "kind: decoder\npositions: {kind: learned, max: 120, offset: 2}\n"
    "mask: [causal, padding]\nactivation: relu\n",
    "sinusoidal": _BASE + "kind: decoder\npositions: sinusoidal\nshare_layers: true\n"
    "embedding: {token_types: 2, norm: true, scale: sqrt(width)}\n",
    "none": _BASE + "kind: decoder\nnorm: {kind: rms_norm, placement: pre}\ngated: true\n"
    "bias: false\nactivation: silu\n",
    "window": _BASE + "kind: decoder\nmask: [{kind: window, left: 9, right: 0}]\n"
    "attention: {softcap: 20}\n",
    "rotary": _BASE + "kind: decoder\nkv_heads: 2\npositions: {kind: rotary, base: 100}\n"
    "norm: {kind: rms_norm, placement: pre}\ngated: true\nattention: {qk_norm: rms_norm}\n",
    "rotary, parallel": _BASE + "kind: decoder\npositions: {kind: rotary, size: 4, layout: "
    "interleaved}\nnorm: {placement: parallel}\n",
    "alibi": _BASE + "kind: decoder\npositions: alibi\nmask: [causal, padding]\n",
    "relative": _BASE + "kind: decoder\npositions: {kind: relative, buckets: 8, "
    "max_distance: 20}\nnorm: {placement: pre}\nattention: {value_size: 4}\n",
    "experts": _BASE + "kind: decoder\nexperts: {count: 4, active: 2}\n",
    "local": _BASE
    + "kind: decoder\npositions: {kind: rotary, base: 100}\nlocal: {pattern: [local, "
    "full], left: 9, positions: {kind: rotary, base: 50}}\nnorm: {kind: rms_norm, placement: inner}"
    "\nattention: {qk_norm: rms_norm, qk_norm_over: width}\n",
    "masked": _BASE + "kind: decoder\npositions: {kind: learned, max: 120, offset: 2, masked: true}"
    "\nmask: [causal, padding]\nembedding: {size: 8, projection_first: true, project_back: true}\n"
    "attention: {key_bias: false}\n",
    "longrope": _BASE + "kind: decoder\nkv_heads: 2\nnorm: {placement: parallel, bias: false}\n"
    "positions: {kind: rotary, max: 120, scaling: {kind: longrope, original: 110, "
    "short: [1, 1.5, 2], long: [2, 3, 4], magnitude: 1.2}}\n"
    "attention: {qk_norm: layer_norm, qk_norm_over: own}\n",
    "encoder-decoder": _BASE + "kind: encoder-decoder\nmask: padding\npositions: sinusoidal\n",
    "encoder-decoder, normed keys": _BASE + "kind: encoder-decoder\nkv_heads: 2\nmask: padding\n"
    "positions: rotary\nattention: {qk_norm: layer_norm, qk_norm_over: own}\n",
    "encoder-decoder, no mask": _BASE + "kind: encoder-decoder\nkv_heads: 1\n"
    "positions: {kind: learned, max: 100}\nnorm: {placement: pre}\n",
}
YAML["encoder-decoder, relative"] = (
    _BASE + "kind: encoder-decoder\nmask: padding\npositions: relative\n"
    "embedding: {shared: false}\nattention: {scale: 1}\nhead: {kind: lm, tied: false}\n"
).replace("head: lm\n", "", 1)
DECODERS = [name for name in YAML if "encoder" not in name]


@cache
def model(name: str) -> Model:
    """The model of that name, or of that YAML text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.yaml"
        path.write_text(YAML.get(name, name))
        return read_model(path)


@cache
def compiled(name: str, target: str = "cpu", **options: Any) -> Executable:
    """It, compiled, for the whole of the tests."""
    return tfgraph.compile(model(name), target, **options)
