"""The plan of memory in a manifest, against what the virtual machine allocates, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.small_graphs import CHAIN

import tfgraph
from tfgraph.runtime import jit
from tfgraph.runtime.sizes import evaluate
from tfgraph.text import parse_graph

VIEWS = """
graph v(%x: f32[n,4], %y: f32[m,3]) {
  %a = relu(%x)
  %v = reshape(%a) {shape=[n, 2, 2]}
  %s = softmax(%y) {axis=-1}
  %t = neg(%s)
  %u = neg(%v)
  %z = sum(%u) {axis=-1}
  return z=%z, t=%t
}
"""
ATTENTION = """
graph g(%x: f32[1,seq,64]) {
  symbol seq: 1..60000, example 16
  %0 = attention(%x, %x, %x) {heads=4, kv_heads=4, scale=0.25}
  return y=%0
}
"""
MASKED = """
graph g(%x: f32[batch,seq,16], %keep: i64[batch,seq]) {
  %y = attention(%x, %x, %x, padding(%keep)) {heads=2, kv_heads=2, scale=0.25}
  return %y
}
"""


def compiled(text: str) -> Any:
    return tfgraph.compile(parse_graph(text), "cpu", passes="")


def held(manifest: Any) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in manifest["storages"]]
    for launch in manifest["launches"]:
        for i in launch["into"]:
            found[i].append(launch["value"])
    return found


def test_a_chain_by_hand() -> None:
    """a is an output and stays; b, of its size, dies with c; d takes the place of none, as c is
    read while it is made; where b was, e would be too small a guest."""
    manifest = compiled(CHAIN).manifest
    assert held(manifest) == [["a"], ["b"], ["c"], ["d"], ["e"]]
    assert manifest["storages"] == ["16*n", "16*n", "400*n", "400*n", "4*n"]
    # a, c and d; then a, d and e, which are fewer.
    assert evaluate(manifest["memory"], {"n": 7}) == (16 + 400 + 400) * 7


def test_a_view_keeps_what_it_shows() -> None:
    """v is another name of a, which therefore lives until u is made."""
    manifest = compiled(VIEWS).manifest
    sizes = {"n": 10, "m": 1}
    assert "v" not in [v for one in held(manifest) for v in one]
    assert evaluate(manifest["memory"], sizes) == 160 + 160 + 12  # a, u and t


def test_attention_has_no_scores() -> None:
    """Its memory is that of its result, and no square of the length."""
    manifest = compiled(ATTENTION).manifest
    assert evaluate(manifest["memory"], {"seq": 60_000}) == 60_000 * 64 * 4


def test_of_several_kernels_the_last_does_the_work() -> None:
    first, last = compiled(MASKED).manifest["launches"]
    assert first == {"kernel": "compact_keys", "into": [0, 1]}
    assert (last["kernel"], last["value"], last["into"]) == ("attention", "y", [2])


@pytest.mark.parametrize("text", [CHAIN, VIEWS, ATTENTION])
def test_the_machine_allocates_what_is_planned(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[int] = []

    def instrument(_observer: Any) -> Any:
        def called(_function: Any, name: str, before: bool, _result: Any, *args: Any) -> int:
            if before and name == "vm.builtin.alloc_storage":
                allocated.append(int(args[1][0]))
            return 0

        return called

    monkeypatch.setattr(jit, "_instrument", instrument)
    model = compiled(text)
    sizes = dict.fromkeys(model.symbols, 5)
    with model.observed(lambda name, before: None):
        model(**model.example(sizes))
    assert allocated == [evaluate(size, sizes) for size in model.manifest["storages"]]
