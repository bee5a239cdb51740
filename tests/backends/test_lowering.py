"""Operands reach the kernels in the right order: graphs in which any two swapped would show."""

from __future__ import annotations

import numpy as np
import pytest

import tfgraph.ops as ops
from tfgraph.api import compare
from tfgraph.backends.tvm.cpu.kernels import CpuKernels
from tfgraph.backends.tvm.emitters import lower
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.ir import Graph, rsqrt
from tfgraph.ir.mask import alibi, causal, window
from tfgraph.ops import Builder


def rows(g: Builder, *names: str, width: int = 24) -> list[ops.Traced]:
    return [g.input(name, "f32", width) for name in names]


@pytest.mark.parametrize("keep_sum", [False, True])
def test_add_norm_with_every_row(keep_sum: bool) -> None:
    with ops.graph("norm") as g:
        a, b = (g.input(n, "f32", "batch", 5, 24) for n in "ab")
        scale, bias, shift = rows(g, "scale", "bias", "shift")
        results = ops.add_layer_norm(a, b, scale, bias, shift, keep_sum=keep_sum)
        for i, result in enumerate(results if isinstance(results, tuple) else (results,)):
            g.output(f"y{i}", result)
    assert compare(g.build(), dims={"batch": 3}).ok


def test_add_rms_norm_with_every_row() -> None:
    with ops.graph("norm") as g:
        a, b = (g.input(n, "f32", "batch", 5, 24) for n in "ab")
        scale, shift = rows(g, "scale", "shift")
        g.output("y", ops.add_rms_norm(a, b, scale, shift))
    assert compare(g.build(), dims={"batch": 3}).ok


def two_offsets() -> Graph:
    with ops.graph("offsets") as g:
        past, other = g.symbol("past", 1, 50), g.symbol("other", 1, 50)
        q = g.input("q", "f32", 2, "s", 16)
        k, v = (g.input(n, "f32", 2, "t", 16) for n in "kv")
        mask = causal(past) & window(4, 3, other) & alibi(g.input("slopes", "f32", 2), past)
        g.output("y", ops.attention(q, k, v, mask, heads=2, kv_heads=2, scale=rsqrt(8)))
    return g.build()


@pytest.mark.parametrize(("past", "other"), [(3, 9), (9, 3), (20, 1)])
def test_masks_with_offsets_that_differ(past: int, other: int) -> None:
    assert compare(two_offsets(), dims={"s": 7, "t": 31, "past": past, "other": other}).ok


def test_values_wider_than_keys_in_grouped_heads() -> None:
    with ops.graph("wide") as g:
        q, k = g.input("q", "f32", "b", "s", 4 * 8), g.input("k", "f32", "b", "s", 2 * 8)
        v = g.input("v", "f32", "b", "s", 2 * 24)
        g.output("y", ops.attention(q, k, v, causal(), heads=4, kv_heads=2, scale=rsqrt(8)))
    report = compare(g.build(), dims={"b": 2, "s": 37})
    assert report.ok
    assert np.isfinite(report.outputs[0].max_abs)


def test_kernels_that_share_rows_share_the_view_of_them() -> None:
    with ops.graph("views") as g:
        x = g.input("x", "f32", "batch", "seq", 24)
        w, v = (g.param(name, "f32", 24, 24) for name in "wv")
        y = ops.add_layer_norm(x, ops.linear(x, w), eps=1e-5)
        g.output("y", ops.add_layer_norm(y, ops.linear(y, v), eps=1e-5))
    zeros = np.zeros((24, 24), np.float32)
    lowered = lower(g.build(), {"w": zeros, "v": zeros}, CpuKernels(cpu_machine()))
    # The rows of x, and the result in its own shape.
    assert str(lowered.module["main"]).count("R.reshape(") == 2
