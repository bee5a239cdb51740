"""Mistakes in the free form of a model file, each with line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.mistakes import FREE, errors_of

from tfgraph.errors import TfgraphError
from tfgraph.model import read_model
from tfgraph.model.read import QUOTE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (FREE + "nodes:\n  a: add(x, b)\n  b: relu(c)\n  c: neg(a)\noutputs: {y: a}\n",
         ["4:3: a cycle: a -> c -> b -> a"]),
        (FREE + "nodes:\n  a: relu(a)\noutputs: {y: a}\n", ["4:3: a cycle: a -> a"]),
        (FREE + "nodes:\n  a: reluu(x)\n  b: softmax(x) {axs=1}\n  c: relu(q)\noutputs: {y: a}\n",
         ["4:6: unknown op 'reluu'", "5:18: softmax has no attribute 'axs'",
          "6:11: 'q' is not defined"]),
        (FREE + "  y: f33[batch]\nweights:\n  w: f32[8,4\nnodes: {a: relu(x)}\noutputs: {y: a}\n",
         ["3:6: unknown dtype 'f33'", "5:13: expected ',' or ']', found the end of the text"]),
        (FREE + "weights:\n  w: f32[9,4]\nnodes:\n  a: linear(x, w)\n  b: relu(a)\n"
         "  d, e: relu(x)\noutputs: {y: b}\n",
         ["6:6: linear: the width of f32[batch,seq,8] is 8, expected 9",
          "8:3: relu has 1 results, and 'd, e' names 2"]),
        (FREE + "nodes: {a: relu(x), x: relu(a)}\noutputs: {y: a}\n", ["3:21: x: defined twice"]),
        (FREE + "nodes: {a: relu(x)}\noutputs: {y: b}\n", ["4:14: 'b' is not defined"]),
        (FREE + "nodes: {a: relu(x)}\noutputs: {y: a}\nconstraints: [seq < 4]\n",
         ["5:15: constraints: expected == or <= between sizes, got 'seq < 4'"]),
        (FREE + "nodes: {a: relu(x)}\n", ["1:1: outputs is missing"]),
        (FREE + "nodes: {a: 3}\noutputs: {y: a}\n", ["3:12: nodes.a: expected a text, got 3"]),
    ],
)  # fmt: skip
def test_free_form(tmp_path: Path, content: str, expected: list[str]) -> None:
    found = errors_of(tmp_path, content)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert got.startswith(want)


FREE_FORM = """\
inputs:
  x: f32[s,8]
  keep: i64[b] = lengths(s)
nodes:
  y: softmax(x)
outputs: {y: y}
"""


@pytest.mark.parametrize(
    ("old", "new", "expected", "hint"),
    [
        ("x: f32[s,8]", "x: f32[s,0]", "2:6: a size of 0 in [s,0]: sizes are at least 1", None),
        ("x: f32[s,8]", "x: f32[s,min]", "2:12: 'min' is not a symbol's name", None),
        ("  keep", "  dims", "3:3: an input cannot be called 'dims', as an argument of every call "
         "is", "rename it"),
        ("  keep", "  out", "3:3: an input cannot be called 'out', as an argument of every call "
         "is", "rename it"),
        ("  keep", "  7", "3:3: input '7': results have numbers for names", None),
        ("lengths(s)", "lengths(s + t)", "3:18: %keep: lengths(s + t): no input gives the symbol "
         "'t'", None),
        ("lengths(s)", "lenghts(s)", "3:18: unknown generator 'lenghts'",
         "did you mean 'lengths'?"),
        ("lengths(s)", "lengths(0)", "3:18: lengths(0): expected a size", None),
        ("lengths(s)", "ids()", "3:18: ids(): expected an integer of at least 1", None),
        ("lengths(s)", "ids(s)", "3:22: expected a number, found 's'",
         "or one of sqrt, rsqrt, exp, log of a number"),
        ("softmax(x)", "slice(x) {axis=1, start=3, stop=3}",
         "5:6: slice: the result has a size of 0 in [s,0]: sizes are at least 1", None),
        ("softmax(x)", "mul(x, 1e39)", "5:6: mul: 1e+39 does not fit f32",
         "the largest f32 is 3.4028235e+38"),
        ("softmax(x)", "full() {shape=[2], value=300, dtype=u8}",
         "5:6: full: 300 does not fit u8", "u8 holds 0 to 255"),
        ("outputs:", "symbols:\n  a b: {min: 1}\noutputs:",
         "7:3: 'a b' is not a symbol's name", None),
        ("outputs:", "symbols:\n  true: {min: 1}\noutputs:",
         "7:3: 'true' is not a symbol's name", None),
        ("outputs:", "symbols:\n  s: {min: 5, example: 3}\noutputs:",
         "7:6: symbol s: the example 3 is not from 5 to 65536", None),
        ("outputs:", "constraints:\n  - s <= t\noutputs:",
         "7:5: constraint s <= t: no input gives the symbol 't'", None),
        ("nodes:\n  y: softmax(x)", "nodes: {y: add(x, 1)}",
         "4:19: nodes.1): expected a text, got nothing", QUOTE),
        ("x: f32[s,8]\n  keep: i64[b] = lengths(s)", "{x: f32[8]}",
         "2:10: not YAML: expected ',' or '}', but got '['", QUOTE),
        ("nodes:\n  y: softmax(x)", "nodes: {y: softmax(x) {axis=0}}",
         "4:23: not YAML: expected ',' or '}', but got '{'", QUOTE),
    ],
)  # fmt: skip
def test_one_mistake_in_the_free_form(
    tmp_path: Path, old: str, new: str, expected: str, hint: str | None
) -> None:
    assert old in FREE_FORM
    path = tmp_path / "model.yaml"
    path.write_text(FREE_FORM)
    read_model(path)
    assert errors_of(tmp_path, FREE_FORM.replace(old, new)) == [expected]
    with pytest.raises(TfgraphError) as caught:
        read_model(path)
    assert caught.value.hint == hint
