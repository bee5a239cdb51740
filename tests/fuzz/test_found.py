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


SUMS = """
graph g(%x: f32[m,2048], %w: f32[2048,m], %z: f32[m,2048,8]) {
  %a = sum(%x) {axis=1, keepdims=false} : f32[m]
  %b = mean(%x) {axis=1, keepdims=false} : f32[m]
  %c = sum(%z) {axis=1, keepdims=false} : f32[m,8]
  %d = cumsum(%x) {axis=1} : f32[m,2048]
  %e = matmul(%x, %w) : f32[m,m]
  return %a, %b, %c, %d, %e
}"""


@pytest.mark.parametrize("number", [3.5277214, 0.7, -1.1, 1e4 / 3])
@pytest.mark.parametrize("backend", ["cpu", "onnxruntime"])
def test_long_sums_of_one_number_are_not_blamed(backend: str, number: float) -> None:
    """Their roundings are all of one sign."""
    given = {
        "x": np.full((4, 2048), number, np.float32),
        "w": np.ones((2048, 4), np.float32),
        "z": np.full((4, 2048, 8), number, np.float32),
    }
    compared = tfgraph.compare(
        parse_graph(SUMS), backends=("numpy", backend), dims={"m": 4}, inputs=given
    )
    assert compared.ok, str(compared)
