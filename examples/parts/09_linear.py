"""Linear (线性层): y = x W + b, for each word by itself."""

import numpy as np
from running import I_LOVE_YOU, WORDS, Both, ids, weights_of
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import embedding, layer_norm, linear, lm_head, token_table
from tfgraph.ops import gelu

SIZE = len(WORDS)

with tfgraph.graph("linear") as g:
    words = g.input("ids", "i64", "batch", "seq")
    x = embedding(words, SIZE, SIZE, name="words")  # a word is a feature of its own
    g.output("y", linear(x, 4))
    g.output("no_bias", linear(x, 4, bias=False, name="no_bias"))
    g.output("active", gelu(linear(x, 4, name="linear_1")))  # these two become one kernel
    show(g)
    y = x
    for _ in range(3):
        y = layer_norm(y + linear(gelu(linear(y, 12)), SIZE))
    g.output("stack", y)
    table_ = token_table(SIZE, SIZE, name="tied")
    g.output("tied", lm_head(embedding(words, SIZE, SIZE, table=table_), SIZE, table=table_))

weights = {**weights_of(g), "words": np.eye(SIZE, dtype=np.float32)}
both, sentence = Both(g, weights), I_LOVE_YOU.split()
found = both(ids=ids(I_LOVE_YOU))
table("x W + b", range(4), sentence, found["y"][:, 0])
w, b = weights["linear.weight"], weights["linear.bias"]
alike("a word that is feature i gets row i of W, and b", found["y"][:, 0], w[2:5] + b)
alike("without a bias the row alone", found["no_bias"][:, 0], weights["no_bias.weight"][2:5])
e = weights["tied"][2:5].astype(np.float64)
alike("tied: the weight is the embedding's, transposed", found["tied"][:, 0], e @ weights["tied"].T)

other = both(ids=ids("I love </s>"))["stack"]
same = (other == found["stack"]).all(-1)[:, 0]
claim("a stack without attention: another word 2 changes no bit of 0 and 1", same == [1, 1, 0])

w = w.copy()
w[WORDS.index("love")] = 0
edited = Both(g, weights | {"linear.weight": w})(ids=ids(I_LOVE_YOU))["y"]
table("row `love` of W set to zeros", range(4), sentence, edited[:, 0])
same = (edited == found["y"]).all(-1)[:, 0]
claim("surgery on that row changes `love`, and nothing else", same == [1, 0, 1])
alike("of which b is left", edited[:, 0, 1], b)
