"""Pictures: what is in them, and that odd names cannot break out of their quotes."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from helpers.random_graphs import graphs
from hypothesis import HealthCheck, given, settings

from tfgraph.draw import to_dot, to_mermaid
from tfgraph.ir import Graph
from tfgraph.ops import add, graph, topk
from tfgraph.text import parse_graph, print_graph

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = """
graph block(%x: f32[n,4], %m: i64[n]) {
  %layers.0.attention.scores = matmul(%x, %layers.0.attention.weight)
  %1 = softmax(%layers.0.attention.scores) {axis=0}
  %layers.0.ffn.up = mul(%1, 0.5)
  %3, %4 = topk(%layers.0.ffn.up) {k=2}
  return y=%3, z=%4
}
weights { %layers.0.attention.weight: f32[4,4] }
"""


def test_dot() -> None:
    """A box for each node, input and output; frames by part; weights in the boxes that read them;
    the results of a node with several are told apart."""
    lines = to_dot(parse_graph(TEXT)).splitlines()
    boxes = [line.strip() for line in lines if " [label=<" in line]
    labels = [box.partition("[label=<")[2].partition(">,")[0] for box in boxes]
    assert [re.sub(r"(<[^>]*>)+", "|", label).strip("|") for label in labels] == [
        "x|f32[n,4]",
        "m|i64[n]",
        "y|f32[n,2]",
        "z|i64[n,2]",
        "matmul|%layers.0.attention.scores: f32[n,4]|weight [4,4]",
        "softmax axis=0|%1: f32[n,4]",
        "mul 0.5|%layers.0.ffn.up: f32[n,4]",
        "topk k=2|%3: f32[n,2]|%4: i64[n,2]",
    ]
    assert [line.strip() for line in lines if "->" in line] == [
        "i0 -> n0",
        "n0 -> n1",
        "n1 -> n2",
        "n2 -> n3",
        'n3 -> o0 [label="%3"]',
        'n3 -> o1 [label="%4"]',
    ]
    frames = [line.strip() for line in lines if line.strip().startswith("label=")]
    assert frames == [f'label="{title}"; labeljust=l' for title in ("layers.0", "attention", "ffn")]


def test_weights_have_boxes_on_request() -> None:
    picture = to_dot(parse_graph(TEXT), weights=True)
    assert "w0 -> n0" in picture
    assert "weight [4,4]" not in picture


def test_mermaid() -> None:
    assert (
        to_mermaid(parse_graph(TEXT))
        == """\
flowchart TD
  i0(["<b>x</b><br/>f32[n,4]"]):::input
  i1(["<b>m</b><br/>i64[n]"]):::input
  o0(["<b>y</b><br/>f32[n,2]"]):::output
  o1(["<b>z</b><br/>i64[n,2]"]):::output
  subgraph g_0["layers.0"]
    subgraph g_0_0["attention"]
      n0["<b>matmul</b><br/>%layers.0.attention.scores: f32[n,4]<br/>weight [4,4]"]:::transformer
      n1["<b>softmax axis=0</b><br/>%1: f32[n,4]"]:::transformer
    end
    subgraph g_0_1["ffn"]
      n2["<b>mul 0.5</b><br/>%layers.0.ffn.up: f32[n,4]"]:::other
      n3["<b>topk k=2</b><br/>%3: f32[n,2]<br/>%4: i64[n,2]"]:::other
    end
  end
  i0 --> n0
  n0 --> n1
  n1 --> n2
  n2 --> n3
  n3 -- "%3" --> o0
  n3 -- "%4" --> o1
  classDef input fill:#ffffff,stroke:#495057,color:#212529
  classDef output fill:#e3f3e6,stroke:#3c8c54,color:#212529
  classDef transformer fill:#dbe9fb,stroke:#4a7ebb,color:#212529
  classDef other fill:#ffffff,stroke:#868e96,color:#212529
"""
    )


def odd() -> Graph:
    with graph("odd") as g:
        x = g.input('a "b" <c> & \\ # ` end;', "f32", 4)
        y = g.label(add(x, x), "x\ny\"'{}|<>é\0")
        values, indices = topk(y, k=2)  # type: ignore[arg-type]
        g.output('subgraph "end" \\', values)  # type: ignore[arg-type]
        g.output("i", indices)  # type: ignore[arg-type]
    return g.build()


def test_quoting() -> None:
    dot, mermaid = to_dot(odd()), to_mermaid(odd())
    assert "a &quot;b&quot; &lt;c&gt; &amp; \\ # ` end;" in dot
    assert "<b>a #34;b#34; #60;c#62; #38; #92; #35; #96; end#59;</b>" in mermaid
    assert "\0" not in dot + mermaid
    assert 'i0 -> n0 [label="2 times"]' in dot


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_no_name_breaks_out(built: Graph) -> None:
    """Each statement stays one line of the form it should have, whatever the names."""
    mermaid_line = re.compile(
        r'flowchart TD| +\w+(\(\[|\[)"[^"]*"(\]\)|\]):::\w+| +subgraph \w+\["[^"]*"\]| +end'
        r'| +\w+ (-->|-- "[^"]*" -->) \w+| +classDef \w+ [\w:#,]+'
    )
    for line in to_mermaid(built).splitlines():
        assert mermaid_line.fullmatch(line), line
    quoted = r'"(?:[^"\\]|\\.)*"'
    dot_line = re.compile(
        rf"digraph {quoted} {{| *}}| +(graph|node|edge) \[.*\]| +subgraph cluster_\w+ {{"
        rf'| +label={quoted}; labeljust=l| +style=rounded; color="#ced4da"'
        rf"| +\w+ -> \w+( \[label={quoted}\])?"
        r'| +\w+ \[label=<(?:[^<>]|</?(?:b|br/|font[^<>]*)>)*>, fillcolor="[^"]*", '
        r'color="[^"]*"(, shape=ellipse, margin=0)?\]'
    )
    for line in to_dot(built).splitlines():
        assert dot_line.fullmatch(line), line


def test_graphviz_reads_it() -> None:
    dot = shutil.which("dot")
    if dot is None:
        pytest.skip("no Graphviz (dot) to read pictures with")
    for built in (odd(), parse_graph(TEXT)):
        source = to_dot(built, weights=True)
        done = subprocess.run(
            [dot, "-Tsvg"], input=source, capture_output=True, encoding="utf-8", check=True
        )
        assert not done.stderr
        assert done.stdout.count('class="edge"') == source.count("->")


WIDE = """
graph wide(%attention_mask: i64[batch,seq], %x: f32[batch,seq,64], %t: f32[seq,seq]) {
  %0 = attention(%x, %x, %x, window(left=6, right=0) & padding(%attention_mask) & bias(%t)) \
{heads=8, kv_heads=8, scale=1000000000000000/5656854249492381, softcap=30}
  %layers.0.attention.with.a.name.long.enough.for.two.lines = mul(%0, rsqrt(2))
  return %layers.0.attention.with.a.name.long.enough.for.two.lines
}
""".replace("\\\n", "")


@pytest.mark.parametrize("draw", [to_dot, to_mermaid])
def test_what_is_long_goes_on_in_the_next_line(draw: Callable[[Graph], str]) -> None:
    picture = draw(parse_graph(WIDE))
    for shown in (
        "window(left=6, right=0)", "padding(attention_mask)", "bias(t)", "heads=8", "kv_heads=8",
        "softcap=30", "rsqrt(2)",
    ):  # fmt: skip
        assert shown in picture.replace("#61;", "=")
    assert "…" not in picture
    lines = re.split('<[^>]*>|"', picture)
    assert "f32[batch,seq,64]" in lines  # in a line of its own, since the name is long


def test_a_long_ratio_is_rounded() -> None:
    picture = to_dot(parse_graph(WIDE))
    assert "scale=0.176777" in picture
    assert "5656854249492381" not in picture
    assert "5656854249492381" in print_graph(parse_graph(WIDE))
