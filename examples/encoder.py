"""The graph of encoder.yaml in Python, which reads like the formulas of the paper."""

from tfgraph.blocks import attention, embedding, feed_forward, layer_norm, sinusoidal
from tfgraph.ir import Fill, exact, sqrt
from tfgraph.ir.mask import padding
from tfgraph.ops import graph

LAYERS, WIDTH, HEADS, FFN, VOCABULARY, POSITIONS = 4, 256, 4, 1024, 1000, 512

with graph("encoder") as g:
    batch = g.symbol("batch", 1, 64, example=2)
    seq = g.symbol("seq", 1, POSITIONS, example=128)
    ids = g.input("input_ids", "i64", batch, seq, fill=Fill("ids", exact(VOCABULARY)))
    keep = padding(g.input("attention_mask", "i64", batch, seq, fill=Fill("prefix")))

    x = embedding(ids, VOCABULARY, WIDTH, scale=sqrt(WIDTH))
    x = g.label(x + sinusoidal(seq, WIDTH, positions=POSITIONS), "embeddings")
    for i in range(LAYERS):
        with g.scope(f"layers.{i}"):
            x = layer_norm(x + attention(x, x, x, heads=HEADS, mask=keep), name="attention_norm")
            x = layer_norm(x + feed_forward(x, FFN), name="ffn_norm")
        g.label(x, f"layers.{i}")
    g.output("last_hidden_state", x)

model = g.build()
