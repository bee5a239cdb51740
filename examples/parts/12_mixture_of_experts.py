"""Mixture of experts: a router sends each word to a few of several feed-forward networks."""

import numpy as np
from running import I_LOVE_YOU, YOU_LOVE_I, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import Experts, embedding, mixture_of_experts

COUNT = 3
TWO = Experts(COUNT, active=2)
ONE = Experts(COUNT, active=1, normalise=False, shared=16)  # one more serves every word

with tfgraph.graph("mixture_of_experts") as g:
    x = embedding(g.input("ids", "i64", "batch", "seq"), 6, 8, scale=3)
    g.output("two", mixture_of_experts(x, 16, TWO, name="moe"))
    show(g)
    g.output("one", mixture_of_experts(x, 16, ONE, name="one_of_three"))

watched = ["probabilities", "weights", "shared", *(f"experts.{i}" for i in range(COUNT))]
both = Both(g, watch=[f"{moe}.{part}" for moe in ("moe", "one_of_three") for part in watched])
words = ids(I_LOVE_YOU, YOU_LOVE_I)
found, alone = both(ids=words), both(ids=words[1:, :1])
columns, rows = [f"expert {i}" for i in range(COUNT)], I_LOVE_YOU.split()

for name, moe, experts in (("two", "moe", TWO), ("one", "one_of_three", ONE)):
    p, w = found[f"{moe}.probabilities"], found[f"{moe}.weights"]
    table(f"the router of `{name}`", columns, rows, p[:, 0])
    table(f"weights in `{name}`", columns, rows, w[:, 0])
    likeliest = np.argsort(np.argsort(-p, -1), -1) < experts.active
    claim(f"above 0 for the likeliest {experts.active}, exactly 0 for others", (w > 0) == likeliest)
    if experts.normalise:
        alike("and they sum to 1", w.sum(-1), 1)
    else:
        alike("and as probable as the router says", w[w > 0], p[w > 0])
    y = sum(w[..., i, None] * found[f"{moe}.experts.{i}"] for i in range(COUNT))
    y += found[f"{moe}.shared"] if experts.shared else 0
    alike("the result is the weighted sum of the experts' results", found[name], y)
    alike(
        "a word alone has the result that it has among others",
        alone[name][:, 0, 0],
        found[name][:, 1, 0],
    )
    claim("on the CPU bit for bit", alone[name][1, 0, 0] == found[name][1, 1, 0])
