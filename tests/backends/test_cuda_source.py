"""The text of CUDA kernels: TVM's expressions and statements as a person would write them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tfgraph.backends.base import Target
from tfgraph.backends.tvm.cuda.backend import CudaBackend
from tfgraph.backends.tvm.cuda.expressions import Expressions
from tfgraph.backends.tvm.cuda.statements import rewrite
from tfgraph.backends.tvm.lower import resolve
from tfgraph.text import parse_graph
from tfgraph.weights import Seeded

TYPES = {"i": "int", "n": "int64_t", "m": "int64_t", "x": "float", "y": "float", "a": "float"}


@pytest.mark.parametrize(
    ("given", "tidy"),
    [
        ("((i * 4) + i)", "i * 4 + i"),
        ("(i + (i + i))", "i + (i + i)"),  # of floats another order would give other bits
        ("(x - (y - x))", "x - (y - x)"),
        ("((x - y) - x)", "x - y - x"),
        ("((i / 4) * 4)", "(i / 4) * 4"),
        ("(((n + (int64_t)63) >> (int64_t)6) & (int64_t)1)", "((n + 63) >> 6) & 1"),
        ("(n < ((int64_t)i))", "n < i"),
        ("(((int64_t)i) * (int64_t)768)", "(int64_t)i * 768"),  # without it, an int may overflow
        ("((((int64_t)i) * (int64_t)768) + n)", "(int64_t)i * 768 + n"),
        ("((((int64_t)i) & (int64_t)15) + n)", "(i & 15) + n"),
        ("a[((int64_t)i)]", "a[i]"),
        ("max(n, (int64_t)0)", "max(n, (int64_t)0)"),  # the overload needs it
        ("(((n < m) && (i != 0)) ? x : y)", "n < m && i != 0 ? x : y"),
        ("((n < m) && ((n < m) ? (a[n] < x) : (bool)0))", "n < m && a[n] < x"),
        ("-0x1.fffffep+127f/*-3.402823e+38*/", "-3.4028235e+38f"),
        ("(x * 0x1.99999ap-4f/*1.000000e-01*/)", "x * 0.1f"),
        ("__shfl_xor_sync((uint)4294967295, x, 8, 16)", "__shfl_xor_sync(0xffffffff, x, 8, 16)"),
        ("((float)(n - m))", "(float)(n - m)"),
        ("x @ y", "x @ y"),  # what it does not know stays
    ],
)
def test_expressions(given: str, tidy: str) -> None:
    assert Expressions(TYPES).tidy(given) == tidy


def test_float_literals_keep_their_bits() -> None:
    rng = np.random.default_rng(0)
    for bits in rng.integers(1, 0x7F7FFFFF, 500, dtype=np.uint32):
        value = bits.view(np.float32)
        text = Expressions({}).tidy(f"{float(value).hex()}f/*{value:e}*/")
        assert np.float32(text.removesuffix("f")) == value


def test_statements() -> None:
    given = (
        """\
  alignas(64) int64_t row_ptr[1];
  row_ptr[0] = (((int64_t)blockIdx.x) * (int64_t)64);
  alignas(64) int64_t unused_ptr[1];
  unused_ptr[0] = row_ptr[0];
  alignas(64) float sum_ptr[1];
  sum_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int i = 0; i < 4; ++i) {
    float condval;
    if ((row_ptr[0] + ((int64_t)i)) < m) {
      condval = x[(row_ptr[0] + ((int64_t)((int)threadIdx.x)))];
    } else {
      condval = 0x0p+0f/*0.000000e+00*/;
    }
    sum_ptr[0] = (sum_ptr[0] + condval);
  }
  REMARK("i is free again");
  for (int i_1 = 0; i_1 < 4; ++i_1) {
    for (int i_2 = 0; i_2 < 4; ++i_2) {
      y[((i_1 * 4) + i_2)] = sum_ptr[0];
    }
  }
""".replace("row_ptr", "row")
        .replace("unused_ptr", "unused")
        .replace("sum_ptr", "sum")
    )
    assert rewrite([("float", "x"), ("float", "y"), ("int64_t", "m")], given.splitlines()) == [
        "  const int thread = threadIdx.x;",
        "  const int64_t row = (int64_t)blockIdx.x * 64;",
        "  float sum = 0.0f;",
        "  for (int i = 0; i < 4; ++i) {",
        "    sum += row + i < m ? x[row + thread] : 0.0f;",
        "  }",
        "  // i is free again",
        "  for (int i = 0; i < 4; ++i) {",
        "    for (int i_2 = 0; i_2 < 4; ++i_2) {",
        "      y[i * 4 + i_2] = sum;",
        "    }",
        "  }",
    ]


ATTENTION = """\
graph attend(%x: f32[batch,seq,{width}], %keep: i64[batch,seq]) {{
  %y = attention(%x, %x, %x, padding(%keep)) {{heads=1, kv_heads=1, scale=1}} : \
f32[batch,seq,{width}]
  return %y
}}
"""


def test_a_kernel_says_what_it_computes_and_for_which_line() -> None:
    graph = parse_graph(ATTENTION.format(width=32))
    built = CudaBackend().build(graph, Seeded(()), Target("cuda", "sm_80"))
    source = built.files["kernels/kernels.cu"].decode()
    head, _, body = source.partition('extern "C"')
    comment = head.rstrip().split("\n\n")[-1].splitlines()
    assert comment[0].startswith("// attention: softmax")
    line = "%y = attention(%x, %x, %x, padding(%keep)) {heads=1, kv_heads=1, scale=1}"
    assert comment[-1] == f"//   {line} : f32[batch,seq,32]"
    # It reads like the algorithm: names, no numbered ones but where two are in sight.
    assert "scores[r * 2 + c] += q_tile[row * 33 + e] * kv_tile[key * 33 + e];" in body
    assert "total[r] = total[r] * shrink + tile_total;" in body
    assert not re.search(r"_ptr\b|alignas|condval|\(int64_t\)\(", body)
    counts = {name: built.manifest["cuda"][name] for name in ("kernels", "launches")}
    assert counts == {"kernels": 1, "launches": 1}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_runs_as_its_parts_is_told(target: str) -> None:
    graph, told = resolve(parse_graph(ATTENTION.format(width=512)), target)
    assert [node.op for node in graph.nodes if node.op == "attention"] == []
    (item,) = told
    assert (item.rule, item.at) == ("attention", "%y = attention")
    assert item.reason == "heads of 512 are wider than the kernel's 256: runs as its parts"
    assert item.location is not None
    assert resolve(parse_graph(ATTENTION.format(width=256)), target)[1] == ()
