"""Output embedding (输出嵌入): the decoder reads the target, shifted right behind a start token."""

import numpy as np
from running import I_LOVE_YOU, WORDS, YOU_LOVE_I, Both, ids, weights_of
from showing import claim, show, table

import tfgraph
from tfgraph.blocks import attention, embedding, lm_head, shift_right, token_table
from tfgraph.ir import sqrt

WIDTH = 8  # and the words are <pad> 0, <s> 1, I 2, love 3, you 4, </s> 5

with tfgraph.graph("output_embedding") as g:
    source = g.input("source", "i64", "batch", "seq")
    target = g.input("target", "i64", "batch", "length")
    words = token_table(len(WORDS), WIDTH, name="words")  # one table for input, output and head
    memory = embedding(source, len(WORDS), WIDTH, scale=sqrt(WIDTH), table=words)
    shifted = g.label(shift_right(target, start=1), "shifted")
    x = embedding(shifted, len(WORDS), WIDTH, scale=sqrt(WIDTH), table=words)
    x = x + attention(x, x, x, heads=1, mask=tfgraph.causal(), bias=False, name="self")
    x = x + attention(x, memory, memory, heads=1, bias=False, name="cross")
    g.output("logits", lm_head(x, len(WORDS), table=words))
show(g)

model = Both(g, watch=["shifted"])
english, target = ids(I_LOVE_YOU), ids(YOU_LOVE_I)
found = model(source=english, target=target)
read = " ".join(WORDS[i] for i in found["shifted"][0, 0])
claim(f'the target "{YOU_LOVE_I}" is read as "{read}"', read == "<s> you love")
table("logits for each target", WORDS, YOU_LOVE_I.split(), found["logits"][:, 0])

changed = np.zeros((2, 3, 3))
for j in range(3):
    other = target.copy()
    other[0, j] = 5
    logits = model(source=english, target=other)["logits"]
    changed[:, j] = (logits != found["logits"]).any(-1)[:, 0]
names = [f"for {word}" for word in YOU_LOVE_I.split()]
table("logits that change, 1, with a target", names, YOU_LOVE_I.split(), changed, digits=0)
claim("the logits for target n depend on targets before n", changed[:, 0, 1:] == 1)
claim("and never, not in a bit, on n itself or later ones", np.tril(changed) == 0)

tables = [name for name, w in weights_of(g).items() if w.shape == (len(WORDS), WIDTH)]
claim("input embedding, output embedding and head share one table", tables == ["words"])
