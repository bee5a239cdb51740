"""Mistakes in the textual IR: their exact places, and garbage that must be refused quickly."""

from __future__ import annotations

import random
import time

import pytest
from helpers.text_samples import ENCODER, HERE

from tfgraph.errors import TfgraphError
from tfgraph.text import parse_dim, parse_graph, print_graph

# Mistakes in a graph: the first line of ENCODER that holds `old` gets `new` in its place, and the
# error is expected `column` characters into it (from 1), or at a place given in full.

MISTAKES = [
    (
        "embedding(%ids",
        "embeding(%ids",
        "5:8",
        "unknown op 'embeding'",
        "did you mean 'embedding'?",
    ),
    (
        "keep_sum=true",
        "kep_sum=true",
        "7:68",
        "add_layer_norm has no attribute 'kep_sum'",
        "did you mean 'keep_sum'?",
    ),
    ("keep_sum=true", "eps=1", "7:68", "add_layer_norm: 'eps' is given twice", None),
    ("causal()", "casual()", "10:22", "unknown mask 'casual'", "did you mean 'causal'?"),
    (
        "causal()",
        "causal(ofset=1)",
        "10:29",
        "causal has no argument 'ofset'",
        "did you mean 'offset'?",
    ),
    ("padding(%keep)", "padding(keep)", "10:41", "expected a value such as %x, found 'keep'", None),
    (
        "matmul(%sum, %3)",
        "matmul(%sun, %3)",
        "9:20",
        "value 'sun' is not defined before it is used",
        "did you mean 'sum'?",
    ),
    ("%6 = softmax(%5)", "%5 = softmax(%5)", "11:3", "value '%5' is defined twice", None),
    (
        "{axis=-1} : f32[batch,seq,seq]",
        "{axis=-1} : f32[batch,seq,8]",
        "11:32",
        "the result is f32[batch,seq,seq], not f32[batch,seq,8]",
        None,
    ),
    ("{axis=-1}", "{axis=3}", "11:8", "softmax: axis 3 is out of range for rank 3", None),
    ("{axis=-1}", "{axis=[1]}", "11:26", "expected an integer, found '['", None),
    (
        "matmul(%sum, %3)",
        "matmul(%sum, %2)",
        "9:13",
        "matmul: the number of rows of f32[batch,seq,8] is seq, expected 8",
        None,
    ),
    ("%sum, %2 =", "%sum =", "7:3", "add_layer_norm has 2 results, not 1", None),
    (
        "mul(%0, 2*sqrt(2))",
        "mul(%0, 2*sqrt(-2))",
        "6:18",
        "sqrt(-2): the argument must be positive",
        None,
    ),
    (
        "mul(%0, 2*sqrt(2))",
        "mul(%0, 1e999999)",
        "6:16",
        "the number '1e999999' is out of range",
        None,
    ),
    ("softmax(%5)", "softmax(5)", "11:16", "softmax: 'x' must be a tensor, not a number", None),
    (
        "i64[batch,seq] = ids",
        "flot16[batch,seq] = ids",
        "1:15",
        "unknown dtype 'flot16'",
        "did you mean 'float16'?",
    ),
    (
        "i64[batch,seq] = ids",
        "i64[batch,seq*1099511627777] = ids",
        "1:29",
        "a size beyond 1099511627776",
        None,
    ),
    (
        "symbol batch: 1..64, example 2",
        "symbol batch: 1..64, example 65",
        "2:10",
        "symbol batch: the example 65 is not from 1 to 64",
        None,
    ),
    (
        "constraint batch + seq",
        "constraint batch + sek",
        "4:14",
        "no input or declaration gives the symbol 'sek'",
        "did you mean 'seq'?",
    ),
    (
        "symbol seq: 1..512",
        "symbol max: 1..512",
        "3:10",
        "'max' is not a symbol's name",
        None,
    ),
    (
        "symbol seq: 1..512",
        "symbol seq: 0..512",
        "3:10",
        "symbol seq: the lowest size is 0: sizes are at least 1",
        None,
    ),
    (
        "%keep: i64[batch,seq] = prefix()",
        "%keep: i64[batch,0] = prefix()",
        "1:50",
        "a size of 0 in [batch,0]: sizes are at least 1",
        None,
    ),
    (
        "%keep: i64[batch,seq] = prefix()",
        "%dims: i64[batch,seq] = prefix()",
        "1:43",
        "an input cannot be called 'dims', as an argument of every call is",
        "rename it",
    ),
    (
        "%keep: i64[batch,seq] = prefix()",
        "%keep: i64[batch] = lengths(seq + past)",
        "1:63",
        "%keep: lengths(past + seq): no input gives the symbol 'past'",
        None,
    ),
    (
        "%keep: i64[batch,seq] = prefix()",
        "%keep: i64[batch,seq] = prefx(3)",
        "1:67",
        "unknown generator 'prefx'",
        "did you mean 'prefix'?",
    ),
    (
        "ids(1000)",
        "ids(0)",
        "1:32",
        "ids(0): expected an integer of at least 1",
        None,
    ),
    (
        "2*sqrt(2)) : f32[batch,seq,8]",
        "1e39)",
        "6:8",
        "mul: 1e+39 does not fit f32",
        "the largest f32 is 3.4028235e+38",
    ),
    (
        "softmax(%5) {axis=-1} : f32[batch,seq,seq]",
        "slice(%2) {axis=2, start=3, stop=3}",
        "11:8",
        "slice: the result has a size of 0 in [batch,seq,0]: sizes are at least 1",
        None,
    ),
    ("batch + seq <= 512", "batch + seq < 512", "4:26", "unexpected character '<'", None),
    ('"a b"=%sum', '"a b=%sum', "13:32", "a string that does not end on its line", None),
    (
        "probabilities=%6, %7",
        "%6, 6=%7",
        "13:14",
        "expected an output such as %x or name=%x, found '6'",
        None,
    ),
    ("probabilities=%6, %7", "y=%6, y=%7", "13:16", "two outputs are called 'y'", None),
    (
        "  return",
        "  retrn",
        "13:3",
        "expected a node such as %0 = op(...), or 'return', found 'retrn'",
        None,
    ),
    (
        "ones()\n",
        "ones(\n",
        "18:3",
        "expected a number, found '%w'",
        "or one of sqrt, rsqrt, exp, log of a number",
    ),
    (
        "= normal(rsqrt(8))\n}",
        "= normal(rsqrt(8))",
        "19:1",
        "expected a weight such as %w: f32[8], or '}', found the end of the text",
        None,
    ),
]


@pytest.mark.parametrize(("old", "new", "place", "message", "hint"), MISTAKES)
def test_mistakes_have_their_exact_place(
    old: str, new: str, place: str, message: str, hint: str | None
) -> None:
    assert ENCODER.count(old) >= 1
    with pytest.raises(TfgraphError) as caught:
        parse_graph(ENCODER.replace(old, new, 1), "enc.txt")
    error = caught.value
    assert (str(error.location), error.message) == (f"enc.txt:{place}", message)
    if hint is not None or message.startswith("unknown"):
        assert error.hint == hint


# Garbage: nothing but TfgraphError, quickly.


def test_mutated_graphs_raise_only_our_error() -> None:
    rng = random.Random(0)
    pieces = [
        *'%(){}[],:=+-*/&"\\#.01e9 \n',
        "//",
        "..",
        "_",
        "None",
        "true",
        "%0",
        "%sum",
        "seq",
        "min(",
        "rsqrt(",
        "causal(",
        "weights {",
        "graph",
        "\0",
        "é",
        "\ud800",
        "1e400",
        "9" * 30,
        "return",
        "[[[[",
        "((((",
        "f32[",
        "attention",
        "full() {shape=[",
        "take(%ids, %ids)",
    ]
    words = ENCODER.replace("(", " ( ").replace(",", " , ").split(" ")
    refused = 0
    start = time.process_time()
    for _ in range(2000):
        if rng.random() < 0.5:
            text = ENCODER
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(text))
                until = at + rng.choice([0, 1, 1, 3, 30])
                text = text[:at] + rng.choice([*pieces, ""]) + text[until:]
        else:
            mixed = list(words)
            for _ in range(rng.randint(1, 4)):
                mixed[rng.randrange(len(mixed))] = rng.choice([*words, *pieces])
            text = " ".join(mixed)
        try:
            parsed = parse_graph(text)
        except TfgraphError:
            refused += 1
        else:
            assert parse_graph(print_graph(parsed)) == parsed
    assert refused > 1500
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "size",
    [
        "(" * 20_000,
        "-" * 20_000,
        "(-" * 10_000 + "a",
        "*".join(["(a + b + c + d + e)"] * 40),
        "*".join("a" * 5000),
        "//".join(["a"] * 5000),
        "//".join(f"(a{i} + 1)" for i in range(200)),
        "min(" * 200 + "a",
        "max(" + ", ".join(f"a{i}" for i in range(5000)) + ")",
        " + ".join(f"a{i}" for i in range(5000)),
        "9" * 5000,
        "*".join(["1099511627776"] * 5000),
        "a" * 600,
        "a // (b - b)",
    ],
    ids=lambda text: text[:12],
)
def test_absurd_sizes_are_refused_before_they_cost_anything(size: str) -> None:
    start = time.process_time()
    with pytest.raises(TfgraphError):
        parse_dim(size, HERE)
    with pytest.raises(TfgraphError):
        parse_graph(f"graph g(%x: f32[{size}]) {{ return %x }}")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "body",
    [
        "%0 = full() {shape=[" + "2, " * 20_000 + "2], value=1}",
        "%0 = concat(" + ", ".join(["%x"] * 20_000) + ") {axis=0}",
        "%0 = reshape(%x) {shape=[" + ", ".join(["(a + b + c)"] * 30) + "]}",
        "%0 = transpose(%x) {perm=" + "[" * 20_000,
        "%0 = mul(%x, " + "*".join(["1e300"] * 16) + ")",
        "%0 = mul(%x, exp(exp(1e3)))",
        "%0 = mul(%x, exp(1000))",
        "%0 = mul(%x, log(1e-400)*rsqrt(1e-400))",
        "%0 = mul(%x, " + "9" * 2000 + ")",
        "%0 = attention(%y, %y, %y) {heads=0, kv_heads=0, scale=1}",
        "%0 = attention(%y, %y, %y) {heads=1, kv_heads=0, scale=1}",
        "\n".join(["%0 = take(%i, %i)", *(f"%{i + 1} = take(%{i}, %{i})" for i in range(99))]),
        "\n".join(
            [
                "%0 = concat(%x, %x) {axis=0}",
                *(f"%{i + 1} = concat(%{i}, %{i}) {{axis=0}}" for i in range(9999)),
            ]
        ),
        "%0 = broadcast_to(%x) {shape=[-1]}",
        "%" + "n" * 513 + " = neg(%x)",
        "%0 = mask(%x, " + " & ".join(["causal()"] * 20_000) + ")",
    ],
    ids=lambda text: text[:24],
)
def test_absurd_nodes_are_refused_before_they_cost_anything(body: str) -> None:
    header = "graph g(%x: f32[a,b,c], %y: f32[a,b,8], %i: i64[4,5]) {\n"
    start = time.process_time()
    with pytest.raises(TfgraphError):
        parse_graph(f"{header}{body}\nreturn %x }}")
    assert time.process_time() - start < 2


def test_a_graph_without_outputs_is_refused_at_its_return() -> None:
    with pytest.raises(TfgraphError, match="the graph has no outputs") as caught:
        parse_graph("graph g(%x: f32[2]) {\n  return\n}\n", "g.tfg")
    assert str(caught.value.location) == "g.tfg:2:3"


@pytest.mark.parametrize("word", ["true", "false", "None", "min", "max"])
def test_a_reserved_word_is_no_symbol(word: str) -> None:
    text = f"graph g(%x: f32[{word},4]) {{\n  %y = neg(%x)\n  return %y\n}}\n"
    with pytest.raises(TfgraphError, match=f"'{word}' is not a symbol's name"):
        parse_graph(text)
