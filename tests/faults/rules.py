"""Faults of rules: a pass has one rule more, which is wrong at one layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faults.fault import Fault
from faults.models import LAYERS, SIZES, model

import tfgraph
from tfgraph import ops
from tfgraph.ir import exact
from tfgraph.passes import PASSES, NoMatch, Rule, call, masked, rule, var

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pytest

    from tfgraph.api.comparison import Divergence

_PASSES = ("simplify", "fuse-attention", "fuse-add-norm", "fuse-linear-activation")
_LAST = {"dropped-mask": 1, "dropped-bias": 4, "tanh-for-erf": 4}
"""How many of these passes a rule still matches in; 3 unless it says so."""


def _at(layer: int, value: Any) -> None:
    """Decline elsewhere, and where the rule was already."""
    if not str(value.name).startswith(f"layers.{layer}."):
        raise NoMatch("another layer")


def _other_eps(layer: int) -> Rule:
    @rule(call("layer_norm", var("x"), var("scale"), var("bias"), name="norm"))
    def wrong_eps(x: Any, scale: Any, bias: Any, norm: Any) -> Any:
        """layer_norm(x) -> the same with another eps."""
        _at(layer, scale.value)
        if norm.attrs["eps"] == exact("0.01"):
            raise NoMatch("done")
        return ops.layer_norm(x, scale, bias, eps=exact("0.01"))

    return wrong_eps


def _swapped(layer: int) -> Rule:
    @rule(call("layer_norm", var("x"), var("scale"), var("bias"), name="norm"))
    def swapped_scale_and_bias(x: Any, scale: Any, bias: Any, norm: Any) -> Any:
        """layer_norm(x, scale, bias) -> layer_norm(x, bias, scale)."""
        _at(layer, scale.value)
        if not scale.value.name.endswith("scale"):
            raise NoMatch("done")
        return ops.layer_norm(x, bias, scale, eps=norm.attrs["eps"])

    return swapped_scale_and_bias


def _dropped_bias(layer: int) -> Rule:
    @rule(call("linear", var("x"), var("w"), var("b")))
    def dropped_bias(x: Any, w: Any, b: Any) -> Any:
        """linear(x, w, b) -> linear(x, w)."""
        _at(layer, b.value)
        return ops.linear(x, w)

    return dropped_bias


def _dropped_mask(layer: int) -> Rule:
    @rule(call("softmax", call("mask", var("x"), masked("m"), name="hidden"), name="soft"))
    def dropped_mask(x: Any, hidden: Any, soft: Any) -> Any:
        """softmax(mask(x, m)) -> softmax(x)."""
        _at(layer, hidden.outputs[0])
        return ops.softmax(x, axis=soft.attrs["axis"])

    return dropped_mask


def _other_gelu(layer: int) -> Rule:
    @rule(call("gelu", call("linear", var("x"), var("w"), var("b"), name="up")))
    def tanh_for_erf(x: Any, w: Any, b: Any) -> Any:
        """gelu(x) -> its approximation by tanh."""
        _at(layer, w.value)
        return ops.gelu_tanh(ops.linear(x, w, b))

    return tanh_for_erf


def _minus(layer: int) -> Rule:
    @rule(call("layer_norm", call("add", var("a"), var("b")), var("s"), var("c"), name="norm"))
    def minus_for_plus(a: Any, b: Any, s: Any, c: Any, norm: Any) -> Any:
        """layer_norm(a + b) -> layer_norm(a - b)."""
        _at(layer, s.value)
        return ops.layer_norm(ops.sub(a, b), s, c, eps=norm.attrs["eps"])

    return minus_for_plus


_RULES: tuple[Callable[[int], Rule], ...] = (
    _other_eps,
    _swapped,
    _dropped_bias,
    _dropped_mask,
    _other_gelu,
    _minus,
)


def rule_fault(rng: np.random.Generator) -> Fault:
    """A wrong rule, a pass and a layer, drawn; found by `bisect` or by `compare`."""
    layer = int(rng.integers(LAYERS))
    wrong = _RULES[rng.integers(len(_RULES))](layer)
    name = _PASSES[rng.integers(_LAST.get(wrong.name, 3))]
    by_bisect = bool(rng.random() < 0.5)

    def find(patch: pytest.MonkeyPatch) -> Divergence | None:
        cls: Any = PASSES[name]
        patch.setattr(cls, "rules", [wrong, *cls.rules])
        encoder = model("encoder")
        if by_bisect:
            return tfgraph.bisect(encoder, dims=SIZES).first
        return tfgraph.compare(encoder, dims=SIZES).first_divergence

    def right(first: Divergence) -> bool:
        said = f"pass {name}, rule {wrong.name} ({wrong.location})"
        in_layer = first.value.startswith(f"layers.{layer}") or first.value.isdigit()
        return first.kind == "pass" and said in first.why and in_layer

    how = "bisect" if by_bisect else "compare"
    return Fault("rules", f"{wrong.name} in {name}, layer {layer}, by {how}", find, right)
