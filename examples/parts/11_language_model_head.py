"""Language-model head: the vector of a word becomes a probability for each word that may follow."""

import numpy as np
from running import I_LOVE_YOU, WORDS, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph import ops
from tfgraph.blocks import embedding, lm_head, token_table
from tfgraph.runtime.sampling import GREEDY, Sampling, draw, probabilities

SIZE, DRAWS = len(WORDS), 1000

with tfgraph.graph("language_model_head") as g:
    tokens = g.input("ids", "i64", "batch", "seq")
    x = embedding(tokens, SIZE, 8, scale=3, name="words")
    head = token_table(SIZE, 8, name="head")  # a table of words: the other heads are tied to it
    g.output("logits", logits := lm_head(x, SIZE, table=head))
    g.output("p", ops.softmax(logits))
    show(g)
    g.output("scaled", lm_head(x, SIZE, table=head, scale=0.5))
    g.output("capped", lm_head(x, SIZE, table=head, softcap=1))

found = Both(g)(ids=ids(I_LOVE_YOU))
logits, p = found["logits"][:, 0], found["p"][:, 0]
table("logits", WORDS, I_LOVE_YOU.split(), logits)
table("probabilities of the next word", WORDS, I_LOVE_YOU.split(), p)
table("logits capped at 1: tanh(logit)", WORDS, I_LOVE_YOU.split(), found["capped"][:, 0])
alike("probabilities sum to 1", p.sum(-1), 1)
alike("scaled by 1/2", found["scaled"][:, 0], logits / 2)
alike("capped at 1", found["capped"][:, 0], np.tanh(logits))

behind = logits[0, -1].astype(np.float64)  # of NumPy; the formulas from here on are Python's
best = draw(probabilities(behind, (), GREEDY), np.random.default_rng(0))
claim(f'greedy, behind "{I_LOVE_YOU}": {WORDS[best]}', logits[:, -1].argmax(-1) == best)
ways = {"as it is": Sampling(), "temperature 2": Sampling(2), "top_k 2": Sampling(top_k=2)}
ways |= {"top_p 0.7": Sampling(top_p=0.7), "min_p 0.2": Sampling(min_p=0.2)}
random, want, drawn = np.random.default_rng(1), [], []
for how in ways.values():
    want.append(probabilities(behind, (), how))
    tokens = [draw(want[-1], random) for _ in range(DRAWS)]
    drawn.append(np.bincount(tokens, minlength=SIZE) / DRAWS)
table("the next word is drawn from", WORDS, ways, want)
table(f"shares of {DRAWS} draws", WORDS, ways, drawn)
claim("words are drawn as often as they are likely", abs(np.subtract(drawn, want)) < 0.04)
