"""Positional encoding (位置编码): without it, self-attention knows no order of the words."""

import numpy as np
from running import WORDS, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph import blocks, ops
from tfgraph.blocks import LinearScaling, attention, rotary_tables, sinusoidal

WIDTH, MAX, SINES = 16, 6, ("sinusoidal", "halves")
SENTENCE, ORDER = "you love you I", [3, 0, 1, 2]
TURNS = {
    "rotary": {},
    "interleaved": {"interleaved": True},
    "partial": {"size": 4},
    "scaled": {"scaling": LinearScaling(2)},
}


def every_kind():
    """What is added to x, and what turns the heads or is added to the scores."""
    yield "sinusoidal", sinusoidal("seq", WIDTH, positions=MAX, name="sines"), {}
    yield "halves", sinusoidal("seq", WIDTH, positions=MAX, halves=True, name="halves"), {}
    yield "learned", blocks.learned("seq", WIDTH, positions=MAX, name="learned"), {}
    for kind, options in TURNS.items():
        turns = rotary_tables(**{"size": 8, "positions": MAX, "name": kind} | options)
        yield kind, None, {"rotary": turns.rows("seq")}
    yield "alibi", None, {"mask": tfgraph.alibi(blocks.alibi_slopes(2))}
    yield "relative", None, {"mask": tfgraph.relative(blocks.relative_table(2, buckets=8))}
    yield "none", None, {}


kinds = []
with tfgraph.graph("positional_encoding") as g:
    x = blocks.embedding(g.input("ids", "i64", "batch", "seq"), len(WORDS), WIDTH, scale=4)
    for kind, added, options in every_kind():
        y = x if added is None else x + added
        g.output(kind, attention(y, y, y, heads=2, bias=False, **options))
        if not kinds:
            show(g)  # of the first kind; the others are much the same
        if kind in SINES:
            g.output(f"dots {kind}", ops.matmul(added, ops.transpose(added, perm=(1, 0))))
        kinds.append(kind)

maps = [f"attention{f'_{i}' * (i > 0)}.probabilities" for i in range(len(kinds))]
both = Both(g, watch=maps)
y, moved = both(ids=ids(SENTENCE)), both(ids=ids(SENTENCE)[:, ORDER])
order = [abs(moved[kind] - y[kind][:, :, ORDER]).max((1, 2, 3)) for kind in kinds]
twice = [abs(y[name][..., 0] - y[name][..., 2]).max((1, 2, 3)) for name in maps]
found = np.stack([order, twice]).transpose(2, 1, 0)
table("change by order, difference of the weights of two `you`", ["order", "you"], kinds, found)
claim("none: the words in another order give the results in that order", found[:, -1, 0] < 1e-5)
claim("none: a word that stands twice gets equal scores, and so equal weights", found[:, -1] < 1e-5)
claim("with any other kind neither is so", found[:, :-1] > 0.01)
for kind in SINES:
    dots = y[f"dots {kind}"]
    table(f"dot products of encodings, {kind}", range(4), range(4), dots)
    alike("they depend on the distance alone", dots[:, 1:, 1:], dots[:, :-1, :-1])
