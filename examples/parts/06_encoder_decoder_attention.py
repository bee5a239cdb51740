"""Encoder-decoder attention: each target word looks at the source words, the memory."""

import numpy as np
from running import WORDS, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import attention, embedding

SIZE = len(WORDS)

with tfgraph.graph("encoder_decoder_attention") as g:
    source, keep = (g.input(name, "i64", "batch", "seq") for name in ("source", "keep"))
    target = g.input("target", "i64", "batch", "length")
    memory = embedding(source, SIZE, SIZE, name="source_words")
    x = embedding(target, SIZE, SIZE, name="target_words")
    y = attention(x, memory, memory, heads=1, mask=tfgraph.padding(keep), bias=False)
    g.output("y", y)
show(g)

words = np.eye(SIZE, dtype=np.float32)  # each word its own feature: q k^T compares words
weights = {"source_words": words.copy(), "target_words": words, "attention.q.weight": 10 * words}
weights |= {f"attention.{part}.weight": words for part in ("k", "v", "out")}
weights["source_words"][0] = np.nan  # <pad>, which must not matter
model = Both(g, weights, watch=["attention.probabilities"])

sources, targets = ("I love you", "you I"), ("you love I you", "I you </s> <s>")
given = {"source": ids(*sources), "target": ids(*targets)}
given["keep"] = (given["source"] != 0).astype(np.int64)
found = model(**given)
maps = found["attention.probabilities"][:, :, 0]
for i, text in enumerate(sources):
    columns = (text + " <pad>").split()[:3]
    table(f'"{targets[i]}" attends to "{text}"', columns, targets[i].split(), maps[:, i])
claim("lengths differ: 3 words of source, 4 of target", maps.shape == (2, 2, 4, 3))
best = [[WORDS[given["source"][i, j]] for j in maps[0, i].argmax(-1)] for i in range(2)]
claim(f"the maps align: {targets[0]} -> {' '.join(best[0])}", " ".join(best[0]) == targets[0])
claim("padding of the source has weight 0, exactly", maps[:, 1, :, 2] == 0)

claim("its vectors are NaN here, and reach no result", np.isfinite(found["y"]))
alone = model(**{name: array[:1] for name, array in given.items()})["y"]
alike("the first pair has the same result without the second", alone, found["y"][:, :1])
claim("on the CPU bit for bit", alone[1] == found["y"][1, :1])
