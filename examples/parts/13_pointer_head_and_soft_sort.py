"""Pointer head: attention over the input is the output. Soft sort: a permutation that is smooth."""

import numpy as np
from running import I_LOVE_YOU, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import embedding, pointer_head, soft_sort

TAUS, PLACES = (1, 0.25, 0.01), ("largest", "second", "third", "smallest")
S = np.array([0.25, -1, 2, 0.75])

with tfgraph.graph("pointer_head_and_soft_sort") as g:
    words, real = (g.input(name, "i64", "batch", "seq") for name in ("ids", "real"))
    x = embedding(words, 6, 8, scale=3)
    g.output("points", pointer_head(x, x, mask=tfgraph.padding(real)))
    s = g.input("s", "f32", "n")
    g.output("tau 1", soft_sort(s))
    show(g)
    for tau in TAUS[1:]:
        g.output(f"tau {tau}", soft_sort(s, tau=tau))

words = ids(I_LOVE_YOU, "you love")
found = Both(g)(ids=words, real=(words > 0).astype(np.int64), s=S.astype(np.float32))
points = found["points"]
for i, text in enumerate((I_LOVE_YOU, "you love <pad>")):
    table(f'what each word of "{text}" points at', text.split(), text.split(), points[:, i])
alike("each row is a distribution over the words of the input", points.sum(-1), 1)
claim("nothing points at padding", points[:, 1, :, 2] == 0)

i, n = np.arange(1, 5)[:, None], 4
distances = abs(S[:, None] - S).sum(0)  # A 1
for tau in TAUS:
    y = found[f"tau {tau}"]
    table(f"NeuralSort, tau {tau}", S, PLACES, y)
    alike("rows sum to 1", y.sum(-1), 1)
    scaled = ((n + 1 - 2 * i) * S - distances) / tau
    e = np.exp(scaled - scaled.max(1, keepdims=True))
    alike("softmax(((n + 1 - 2i) s - A 1) / tau)", y, e / e.sum(-1, keepdims=True))
sorting = np.eye(4)[np.argsort(-S)]
alike("as tau goes to 0 it becomes the permutation that sorts", found["tau 0.01"], sorting)
alike("which, times s, gives s in order", found["tau 0.01"] @ S, np.sort(S)[::-1])
