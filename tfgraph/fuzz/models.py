"""Whole small models: a model file with everything drawn that such a file may say.

May import: model, ir, errors.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.fuzz.inputs import Case
from tfgraph.ir import DType, Exact, Graph, Symbol
from tfgraph.model import read_model

if TYPE_CHECKING:
    import numpy as np

_ACTIVATIONS = ("relu", "relu2", "silu", "gelu", "gelu_tanh", "quick_gelu", "tanh", "sigmoid")
_TRIES = 40


def random_model(seed: int, rng: np.random.Generator, dtype: DType) -> Case:
    """The graph of a random model file that is valid, and the fills that its inputs ask for.

    A draw that the reader refuses, because two of its keys don't go together, is drawn again.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.yaml"
        for _ in range(_TRIES):
            path.write_text(json.dumps(_keys(rng, dtype)), "utf-8")  # which is YAML too
            try:
                graph = read_model(path).graph
            except TfgraphError:
                continue
            return Case(seed, _with_limits(graph), _fills(graph))
    raise AssertionError(f"seed {seed}: no model of {_TRIES} was valid")


def _keys(rng: np.random.Generator, dtype: DType) -> dict[str, Any]:
    """The keys of a model file."""

    def pick(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    kind = pick("encoder", "decoder", "encoder-decoder")
    norm = {
        "kind": pick("layer_norm", "rms_norm"),
        "placement": pick("pre", "post", "sandwich", "parallel"),
    }
    heads, kv_heads = pick((2, 2), (4, 2), (4, 1), (1, 1))
    given: dict[str, Any] = {
        "kind": kind,
        "layers": pick(1, 2),
        "width": pick(8, 24),
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": pick(8, 24, 40),
        "activation": pick(*_ACTIVATIONS),
        "gated": pick(False, True),
        "bias": pick(False, True),
        "norm": norm,
        "positions": _positions(pick),
        "attention": _attention(pick),
        "vocabulary": 50,
        "embedding": {"scale": pick("sqrt(width)", 1), "norm": pick(False, True)},
        "share_layers": pick(False, False, True),
        "dtype": dtype.value,
    }
    if kind != "encoder-decoder":
        window = {"kind": "window", "left": pick(0, 3, 40), "right": pick(0, 2)}
        given["mask"] = pick("none", "padding", "causal", ["causal", "padding"], window)
        given["head"] = pick("none", "lm", "mlm", {"kind": "classifier", "labels": 3})
    if pick(False, False, False, True):
        # No more than are active, so that a rounding error cannot choose other ones.
        given["experts"] = {"count": 2, "active": 2, "normalise": pick(False, True)}
    return given


def _positions(pick: Any) -> dict[str, Any]:
    kind = pick("none", "sinusoidal", "learned", "rotary", "alibi", "relative")
    if kind in ("none", "alibi", "relative"):
        return {"kind": kind}
    more = {"layout": pick("interleaved", "halves")} if kind == "rotary" else {}
    return {"kind": kind, "max": 512, **more}


def _attention(pick: Any) -> dict[str, Any]:
    given = {
        "softcap": pick(None, None, 30),
        "qk_norm": pick("none", "none", "rms_norm", "layer_norm"),
        "value_size": pick(None, None, 6),
    }
    return {key: value for key, value in given.items() if value is not None}


def _with_limits(graph: Graph) -> Graph:
    """The graph with sizes as large as those of other random graphs at most."""
    symbols = tuple(Symbol(s.name, s.low, min(s.high, 512)) for s in graph.symbols)
    return replace(graph, symbols=symbols)


def _fills(graph: Graph) -> dict[str, tuple[str, Any]]:
    """How the generators of the model's inputs fill them."""
    found: dict[str, tuple[str, Any]] = {}
    for given in graph.inputs:
        fill = given.fill
        assert fill is not None
        limit = int(fill.argument.factor) if isinstance(fill.argument, Exact) else None
        found[given.value.name] = (fill.kind, limit)
    return found
