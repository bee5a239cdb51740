"""Input embedding (输入嵌入): ids become rows of a table, scaled by sqrt(d), here factorised."""

import numpy as np
from running import I_LOVE_YOU, WORDS, YOU_LOVE_I, Both, ids, weights_of
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import embedding, linear
from tfgraph.ir import sqrt

SIZE, WIDTH = 4, 6  # rows of 4, then a linear layer to 6, as in ALBERT

with tfgraph.graph("input_embedding") as g:
    words = g.input("ids", "i64", "batch", "seq")
    types = g.input("types", "i64", "batch", "seq")
    x = embedding(words, len(WORDS), SIZE, scale=sqrt(SIZE), name="words")
    x = x + embedding(types, 2, SIZE, name="word_types")
    g.output("x", linear(x, WIDTH, bias=False, name="projection"))
show(g)

embed, w = Both(g), weights_of(g)
given = {"ids": ids(I_LOVE_YOU, YOU_LOVE_I), "types": np.array([[0, 0, 0], [0, 0, 1]])}
x = embed(**given)["x"]
for i, sentence in enumerate((I_LOVE_YOU, YOU_LOVE_I)):
    table(f'"{sentence}" as vectors', range(WIDTH), sentence.split(), x[:, i])

rows = np.sqrt(SIZE) * w["words"][given["ids"]] + w["word_types"][given["types"]]
want = rows @ w["projection.weight"]
alike("x = (sqrt(4) words[id] + word_types[type]) W", x, want)
claim("a word has the same vector wherever it stands: love, love", x[:, 0, 1] == x[:, 1, 1])
claim("but another one with another type: I, I", (x[:, 0, 0] != x[:, 1, 2]).any(-1))

for wrong in (len(WORDS), -1):
    messages = []
    for model in embed.models:
        try:
            model(ids=np.array([[wrong]]), types=np.array([[0]]))
        except tfgraph.TfgraphError as error:
            messages.append(error.message)
    claim(f"error on both: {messages[0]}", len(messages) == 2 and messages[0] == messages[1])

whole, parts = 30000 * 768, 30000 * 128 + 128 * 768
saved = f"30,000 words of width 768 are {whole:,} weights, by way of width 128"
claim(saved, parts < whole / 5, f"{parts:,}")
