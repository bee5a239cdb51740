"""Costs against formulas written out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.random_graphs import graphs
from hypothesis import HealthCheck, given, settings

from tfgraph.api.source import open_source
from tfgraph.blocks import Layer, embedding, encoder
from tfgraph.cost import AMOUNTS, cost, parts
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, Graph, as_dim
from tfgraph.ir.mask import padding
from tfgraph.ops import graph
from tfgraph.text import parse_graph

WIDTH, HEADS, FFN, VOCABULARY = 768, 12, 3072, 30522


def bert(layers: int = 1) -> Graph:
    with graph("bert") as g:
        g.symbol("batch", 1, 64, example=2)
        g.symbol("seq", 1, 512, example=128)
        ids = g.input("input_ids", "i64", "batch", "seq")
        keep = g.input("attention_mask", "i64", "batch", "seq")
        x = embedding(ids, VOCABULARY, WIDTH)
        layer = Layer(heads=HEADS, ffn=FFN)
        g.output("last_hidden_state", encoder(x, layers, layer, mask=padding(keep)))
    return g.build()


def test_a_layer_of_bert_base_against_the_formula() -> None:
    """Multiply-adds of one layer at length s: 4 s w^2 for Q, K, V and the output, 2 s^2 w for the
    scores and the context, 2 s w f for the feed-forward; two operations each."""
    found = {line.name: line for line in cost(bert(), {"batch": 3, "seq": 128}).ops}
    s, tokens = 128, 3 * 128
    assert found["linear"].flops == 2 * tokens * (4 * WIDTH**2 + 2 * WIDTH * FFN)
    assert found["matmul"].flops == found["weighted_sum"].flops == 2 * 3 * s * s * WIDTH
    assert found["softmax"].flops == 5 * 3 * HEADS * s * s
    assert found["layer_norm"].flops == 2 * 8 * tokens * WIDTH
    total = cost(bert(), {"batch": 3, "seq": 128}).total.flops
    products = sum(found[op].flops for op in ("linear", "matmul", "weighted_sum"))
    assert products < total < 1.05 * products


def test_parameters_of_bert_base_against_the_formula() -> None:
    """12 layers of 4 w^2 + 4 w for the attention, 2 w f + f + w for the feed-forward and 4 w for
    the norms: 85 million, as in Devlin et al. 2019 (110 million with all embeddings)."""
    by_part = {line.name: line for line in cost(bert(12), {}).parts}
    attention, ffn, norm = 4 * WIDTH**2 + 4 * WIDTH, 2 * WIDTH * FFN + FFN + WIDTH, 2 * WIDTH
    assert by_part["embeddings"].parameters == VOCABULARY * WIDTH
    assert by_part["layers.11.attention"].parameters == attention
    assert by_part["layers.11.ffn"].parameters == ffn
    assert by_part["layers.11.attention_norm"].parameters == norm
    total = cost(bert(12), {}).total
    assert total.parameters == 12 * (attention + ffn + 2 * norm) + VOCABULARY * WIDTH
    assert 12 * (attention + ffn + 2 * norm) == 85_054_464
    assert total.weight_bytes == 4 * total.parameters


def test_symbolic_costs() -> None:
    batch, seq = as_dim("batch"), as_dim("seq")
    found = {line.name: line for line in cost(bert()).ops}
    assert found["matmul"].flops == found["weighted_sum"].flops == 2 * WIDTH * batch * seq * seq
    assert found["linear"].flops == batch * seq * (8 * WIDTH**2 + 4 * WIDTH * FFN)
    assert found["matmul"].written_bytes == 4 * HEADS * batch * seq * seq
    assert found["weighted_sum"].written_bytes == 4 * WIDTH * batch * seq


def test_sizes_default_to_the_example() -> None:
    assert cost(bert(), {}) == cost(bert(), {"batch": 2, "seq": 128})
    assert cost(bert(), {"seq": 7}).sizes == {"batch": 2, "seq": 7}


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_numbers_are_the_symbolic_costs_at_those_sizes(built: Graph) -> None:
    symbolic, numbers = cost(built), cost(built, {"batch": 3})
    assert numbers.sizes is not None
    for a, b in [
        (symbolic.total, numbers.total),
        *zip(symbolic.parts, numbers.parts, strict=True),
        *zip(symbolic.ops, numbers.ops, strict=True),
    ]:
        for name in AMOUNTS:
            amount: Dim = as_dim(getattr(a, name))
            assert amount.evaluate(numbers.sizes) == getattr(b, name)
    for name in AMOUNTS:
        for lines in (numbers.parts, numbers.ops):
            assert sum(getattr(line, name) for line in lines) == getattr(numbers.total, name)


SMALL = """
graph g(%ids: i64[4], %x: f16[4,8]) {
  %0 = embedding(%ids, %embeddings.table)
  %1 = add(%x, %0)
  %2 = mul(%scale, 2)
  %a.0.ffn.up = mul(%1, %2)
  %4 = add(%a.0.ffn.up, %a.0.ffn.up)
  %5 = matmul(%4, %tied)
  return %5
}
weights {
  %embeddings.table: f16[1000,8]
  %scale: f16[8]
  %tied: f16[8,16]
  %unused: i4[3]
}
"""


def test_bytes() -> None:
    """A lookup reads the rows it returns and its ids; a value read twice is read once; what is made
    of weights alone costs nothing."""
    found = {line.name: line for line in cost(parse_graph(SMALL), {}).ops}
    assert found["embedding"].read_bytes == 4 * 8
    assert found["embedding"].written_bytes == 4 * 8 * 2
    assert found["add"].read_bytes == 2 * 64 + 64
    assert found["mul"].read_bytes == 64
    assert found["mul"].flops == 32
    assert (found["mul"].parameters, found["mul"].weight_bytes) == (8, 16)
    assert found["matmul"].weight_bytes == 8 * 16 * 2
    assert (found[""].parameters, found[""].weight_bytes) == (3, 2)


def test_a_lookup_in_weights_reads_no_activations_but_its_ids() -> None:
    found = {line.name: line for line in cost(parse_graph(SMALL), {}).ops}
    assert found["embedding"].weight_bytes == 1000 * 8 * 2


def test_parts_come_from_the_names() -> None:
    found = parts(parse_graph(SMALL))
    assert found["0"] == found["embeddings.table"] == "embeddings"
    assert found["1"] == "embeddings"  # where its latest operand belongs
    assert found["a.0.ffn.up"] == found["4"] == found["5"] == found["tied"] == "a.0.ffn"
    assert found["x"] == found["unused"] == ""


def test_the_table() -> None:
    text = str(cost(parse_graph(SMALL), {}))
    assert text.splitlines()[0].split() == [
        "part",
        "parameters",
        "weights",
        "FLOPs",
        "read",
        "written",
    ]
    assert "a.0.ffn" in text
    assert text.splitlines()[-1].startswith("total")


def test_json() -> None:
    plain = cost(bert()).to_json()
    assert plain["sizes"] is None
    total = plain["total"]
    assert isinstance(total, dict)
    assert isinstance(total["parameters"], int)
    assert "batch*seq" in total["flops"]


def test_unknown_sizes() -> None:
    with pytest.raises(TfgraphError) as caught:
        cost(bert(), {"sek": 3})
    assert caught.value.message == "the graph has no symbol 'sek'"
    assert caught.value.hint == "did you mean 'seq'?"
    for size in (0, 513, 99999):
        with pytest.raises(TfgraphError, match=f"the size of seq is {size}, expected 1 to 512"):
            cost(bert(), {"seq": size})
    assert cost(bert(), {"seq": 512}).sizes == {"batch": 2, "seq": 512}


LLAMA = 8 * (2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1376 + 2 * 512) + 512 + 2 * 32000 * 512


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert-base", 109_482_240),  # transformers' BertModel
        ("minilm", 22_713_216 - 384 * 385),  # all-MiniLM-L6-v2 without its pooler
        ("gpt2", 124_439_808),  # transformers' GPT2LMHeadModel
        ("llama-small", LLAMA),
    ],
)
def test_parameters_of_the_models_that_are_measured(name: str, parameters: int) -> None:
    model = open_source(f"{Path(__file__).parent.parent}/examples/{name}.yaml")
    assert int(as_dim(cost(model.graph).total.parameters)) == parameters
