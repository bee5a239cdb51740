"""Mixture of experts: a router sends each word to a few of several feed-forward networks."""

import numpy as np
from running import I_LOVE_YOU, YOU_LOVE_I, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import Experts, embedding, mixture_of_experts

COUNT = 3
OTHERS = {
    "raw": Experts(COUNT, 2, normalise=False),  # their probabilities as they are
    "one": Experts(COUNT, 1, shared=4),  # and a small expert that serves every word
}

with tfgraph.graph("mixture_of_experts") as g:
    x = embedding(g.input("ids", "i64", "batch", "seq"), 6, 8, scale=3)
    g.output("moe", mixture_of_experts(x, 16, Experts(COUNT, active=2), name="moe"))
    show(g)
    for name, experts in OTHERS.items():
        g.output(name, mixture_of_experts(x, 16, experts, name=name))
    kinds = ("moe", *OTHERS)
    parts = [f"{kind}.{what}" for kind in kinds for what in ("probabilities", "weights")]
    experts = [f"experts.{i}" for i in range(COUNT)]
    parts += [f"{kind}.{expert}" for kind in kinds for expert in (*experts, "shared")]

both = Both(g, watch=parts)
words = ids(I_LOVE_YOU, YOU_LOVE_I)
found = both(ids=words)
names = [f"expert {i}" for i in range(COUNT)]
for kind, title in zip(kinds, ("2 of 3", "2 of 3, not normalised", "1 of 3"), strict=True):
    p, w = (found[f"{kind}.{what}"] for what in ("probabilities", "weights"))
    if kind == "moe":
        table("the router's probabilities", names, I_LOVE_YOU.split(), p[:, 0])
    table(f"weights, {title}", names, I_LOVE_YOU.split(), w[:, 0])
    best = np.argsort(-p, -1)[..., : 1 if kind == "one" else 2]
    claim(
        "above 0 for the likeliest experts alone",
        ((w > 0).sum(-1) == best.shape[-1]) & (w.argmax(-1) == p.argmax(-1)),
    )
    if kind == "raw":
        alike("they are the probabilities themselves", w, np.where(w > 0, p, 0))
    else:
        alike("they sum to 1", w.sum(-1), 1)
    y = sum(w[..., i, None] * found[f"{kind}.{expert}"] for i, expert in enumerate(experts))
    y = y + (found["one.shared"] if kind == "one" else 0)
    alike("the result is the weighted sum of the experts'", found[kind], y)

alone = both(ids=words[1:, :1])
claim(
    '"you" alone has the bits that it has among others, on the CPU',
    [alone[kind][1, 0] == found[kind][1, 1, :1] for kind in kinds],
)
alike(
    "and the same numbers on NumPy",
    *(np.stack([f[kind][0, -1, 0] for kind in kinds]) for f in (alone, found)),
)
