"""What the fuzzer found, each as the small graph it was shrunk to, so that it stays mended."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.text import parse_graph

ATTENTION = """
graph g(%x: f32[batch,seq,4]) {{
  %y = attention(%x, %x, %x, {mask}) {{heads=1, kv_heads=1, scale=1}} : f32[batch,seq,4]
  return %y
}}"""


@pytest.mark.parametrize("mask", ["window()", "window() & causal()", "causal() & window()"])
def test_a_window_that_is_open_on_both_sides_hides_nothing(mask: str) -> None:
    run = tfgraph.compile(parse_graph(ATTENTION.format(mask=mask)))
    x = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
    scores = x.astype(np.float64) @ x.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights * np.tril(np.ones((9, 9))) if "causal" in mask else weights
    want = weights / weights.sum(-1, keepdims=True) @ x
    assert_close(run(x=x)["y"], want, length=4 + 9)


@pytest.mark.parametrize(("value", "dtype"), [("0.5", "bool"), ("-0.5", "i64"), ("2.5", "i32")])
def test_a_constant_of_an_integer_type_is_an_integer(value: str, dtype: str) -> None:
    """Backends converted others differently."""
    text = f"""graph g(%x: f32[n]) {{
      %y = full() {{shape=[n], value={value}, dtype={dtype}}} : {dtype}[n]
      return %y
    }}"""
    with pytest.raises(TfgraphError, match=f"{value} is not an integer, but {dtype} holds them"):
        parse_graph(text)
