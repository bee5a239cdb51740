"""recover-norms: layer norm and RMS norm written out in elementwise ops, as exporters write them,
become one op each.

Legal when the means are over the last axis; a scale or bias joins where it is a vector of that
axis' size. What is written out rounds after each op, the norm once: values differ by roundings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ops import layer_norm, rms_norm
from tfgraph.passes.pattern import NoMatch, call, const, either, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Exact, Node
    from tfgraph.passes.pattern import Pattern


def _root(x: Pattern) -> Pattern:
    """sqrt(mean(x^2) + eps)."""
    square = either(call("pow", x, 2), call("mul", x, x))
    mean = call("mean", square, name="square", why="expected the mean of squares")
    return call("sqrt", call("add", mean, const("eps")))


def _divided(x: Pattern) -> Pattern:
    """x / root."""
    return call("div", x, _root(x))


def _multiplied(x: Pattern) -> Pattern:
    """x times the reciprocal of the root."""
    return call("mul", x, call("div", 1, _root(x)))


_CENTERED = call("sub", var("x"), call("mean", var("x"), name="mean"), shared=True)


@rule(_divided(_CENTERED), near=5, name="layer-norm")
def _layer_norm(x: Any, eps: Exact, mean: Node, square: Node) -> Any:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) -> layer_norm(x)."""
    _check_last(mean, square)
    return layer_norm(x, eps=eps)


@rule(_multiplied(_CENTERED), near=5, name="layer-norm-by-reciprocal")
def _layer_norm_by_reciprocal(x: Any, eps: Exact, mean: Node, square: Node) -> Any:
    """(x - mean(x)) (1 / sqrt(...)) -> layer_norm(x)."""
    _check_last(mean, square)
    return layer_norm(x, eps=eps)


@rule(_divided(var("x")), near=4, name="rms-norm")
def _rms_norm(x: Any, eps: Exact, square: Node) -> Any:
    """x / sqrt(mean(x^2) + eps) -> rms_norm(x)."""
    _check_last(square)
    return rms_norm(x, eps=eps)


@rule(_multiplied(var("x")), near=5, name="rms-norm-by-reciprocal")
def _rms_norm_by_reciprocal(x: Any, eps: Exact, square: Node) -> Any:
    """x (1 / sqrt(mean(x^2) + eps)) -> rms_norm(x)."""
    _check_last(square)
    return rms_norm(x, eps=eps)


@rule(call("rms_norm", _CENTERED, opt("scale"), name="norm"), near=10**6)
def centered_norm(x: Any, scale: Any, mean: Node, norm: Node) -> Any:
    """rms_norm(x - mean(x), scale) -> layer_norm(x, scale)."""
    _check_last(mean)
    eps: Any = norm.attrs["eps"]
    return layer_norm(x, scale, eps=eps)


def _check_last(*means: Node) -> None:
    for node in means:
        if node.attrs["axis"] not in (-1, node.inputs[0].type.rank - 1):
            raise NoMatch(f"the mean is over axis {node.attrs['axis']}, not over the last")
        if not node.attrs["keepdims"]:
            raise NoMatch("the mean leaves out its axis")


_NORMED = call(("layer_norm", "rms_norm"), var("x"), name="norm", shared=True)


@rule(call("mul", _NORMED, var("scale")), near=10**6)
def join_scale(x: Any, scale: Any, norm: Node) -> Any:
    """layer_norm(x) * scale -> layer_norm(x, scale), and so for rms_norm."""
    _check_row(scale, x)
    eps: Any = norm.attrs["eps"]
    return (layer_norm if norm.op == "layer_norm" else rms_norm)(x, scale, eps=eps)


_SCALED = call("layer_norm", var("x"), opt("scale"), name="norm", shared=True)


@rule(call("add", _SCALED, var("bias")), near=10**6)
def join_bias(x: Any, scale: Any, bias: Any, norm: Node) -> Any:
    """layer_norm(x, scale) + bias -> layer_norm(x, scale, bias)."""
    _check_row(bias, x)
    eps: Any = norm.attrs["eps"]
    return layer_norm(x, scale, bias, eps=eps)


def _check_row(row: Any, x: Any) -> None:
    if getattr(row, "shape", None) != x.shape[-1:]:
        raise NoMatch


_ONES = call("full", name="ones", shared=True, attrs={"value": 1})


@rule(call(("layer_norm", "rms_norm"), var("x"), _ONES, opt("bias"), name="norm"), near=10**6)
def drop_ones(x: Any, bias: Any, norm: Node) -> Any:
    """layer_norm(x, ones, bias) -> layer_norm(x, bias), and so for rms_norm."""
    eps: Any = norm.attrs["eps"]
    return layer_norm(x, None, bias, eps=eps) if norm.op == "layer_norm" else rms_norm(x, eps=eps)


@register_pass
class RecoverNorms(RulePass):
    """Layer norm and RMS norm that were written out."""

    name = "recover-norms"
    rules: ClassVar[list[Rule]] = [
        _layer_norm,
        _layer_norm_by_reciprocal,
        _rms_norm,
        _rms_norm_by_reciprocal,
        centered_norm,
        join_scale,
        join_bias,
        drop_ones,
    ]
