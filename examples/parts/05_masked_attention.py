"""Masked attention (带掩码的多头注意力): a word sees what its mask allows, often nothing later."""

import numpy as np
from running import Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import alibi_slopes, attention, cross_entropy, embedding, learned, lm_head
from tfgraph.ops import mask, softmax

READ, NEXT, WORDS = ids("<s> I love you"), ids("I love you </s>"), ["I", "love", "you", "</s>"]

with tfgraph.graph("masked_attention") as g:
    words, labels = (g.input(name, "i64", "batch", "seq") for name in ("ids", "labels"))
    x = embedding(words, 6, 8, scale=3)
    y = x + attention(x, x, x, heads=2, bias=False, mask=tfgraph.causal())
    g.output("logits", logits := lm_head(y, 6))
    show(g)
    g.output("loss", cross_entropy(logits, labels))
both = Both(g)
found, other = (both(ids=i, labels=NEXT) for i in (READ, ids("<s> I </s> </s>")))
same = (found["logits"] == other["logits"]).all(-1)[:, 0]
claim("with other words at 2 and 3 the logits at 0 and 1 keep every bit", same == [1, 1, 0, 0])
steps = [both(ids=READ[:, :n], labels=NEXT[:, :n])["loss"][..., -1] for n in (1, 2, 3, 4)]
losses = np.concatenate([found["loss"], np.stack(steps, -1)], 1)
table("-log p of the next word", WORDS, ("in one pass", "word by word"), losses)
alike("teacher forcing: one pass gives all losses", losses[:, 0], losses[:, 1])

with tfgraph.graph("copying") as g:
    words, labels = (g.input(name, "i64", 1, 4) for name in ("ids", "labels"))
    x = embedding(words, 6, 10, name="words") + learned(4, 10, positions=4, name="places")
    for name, hides in (("without", None), ("with", tfgraph.causal())):
        with g.scope(name, "copy"):  # the same weights for both
            y = attention(x, x, x, heads=1, head_size=4, value_size=6, bias=False, mask=hides)
            g.output(name, cross_entropy(lm_head(y, 6), labels))
    scores, two = g.input("scores", "f32", 1, 1, 4, 4), g.input("two", "i64", 1)
    masks = {"causal": tfgraph.causal(), "window": tfgraph.window(1, 0)}
    masks |= {"padding": tfgraph.padding(two), "prefix": tfgraph.prefix(two)}
    masks |= {"segments": tfgraph.segments(words), "dense": tfgraph.dense(scores > 0)}
    masks["causal & padding"] = tfgraph.causal() & tfgraph.padding(two)
    g.output("alibi", mask(scores, tfgraph.alibi(alibi_slopes(1, scale=64))))  # a slope of 64/256
    for name, hides in masks.items():
        g.output(name, softmax(mask(scores, hides)))
one = np.eye(10, dtype=np.float32)  # a word is one of six features, its place one of four more
copy = {"q": 80 * one[:, 5:9], "k": one[:, 6:], "v": one[:, :6], "out": one[:6]}
weights = {f"copy.attention.{part}.weight": w for part, w in copy.items()}
weights |= {"words": one[:6], "places": one[6:], "copy.lm_head.weight": 20 * one[:, :6]}
diagonal, two = np.eye(4, dtype=np.float32)[None, None], np.array([2])
found = Both(g, weights)(ids=READ, labels=NEXT, scores=diagonal, two=two)
losses = np.stack([found[name][:, 0, :3] for name in ("without", "with")], 1)
table("losses of a head that copies the next word", WORDS[:3], ("no mask", "causal"), losses)
claim("near 0 where it sees the next word", losses[:, 0] < 1e-6)
claim("not where a mask hides that", losses[:, 1] > 1)
for name in masks:
    seen = found[name][:, 0, 0] > 0
    rows = " ".join("".join(".x"[v] for v in row) for row in seen[0].astype(int))
    claim(f"{name:16} rows of queries, x may be seen: {rows}", seen[0] == seen[1])
want = np.eye(4) + (np.arange(4) - np.arange(4)[:, None]) / 4
alike("a bias, ALiBi, adds 1/4 of the distance to each score", found["alibi"][:, 0, 0], want)
