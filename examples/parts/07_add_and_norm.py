"""Add & norm: what a sublayer makes of x is added to x, and normed, so that depth does no harm."""

import numpy as np
from running import I_LOVE_YOU, YOU_LOVE_I, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import embedding, feed_forward, layer_norm, linear, rms_norm

WIDTH, LAYERS, SHOWN = 16, 24, (1, 2, 6, 12, 24)


def f(x):
    """A sublayer."""
    return feed_forward(x, WIDTH, activation="relu", bias=False)


STACKS = {
    "no norm": lambda x: x + f(x),
    "scaled": lambda x: x + f(x) * 0.2,
    "post": lambda x: layer_norm(x + f(x)),
    "pre": lambda x: x + f(layer_norm(x)),
    "sandwich": lambda x: x + layer_norm(f(layer_norm(x))),
    "parallel": lambda x: x + f(layer_norm(x)) + f(layer_norm(x)),
    "no residual": lambda x: layer_norm(f(x)),
}

with tfgraph.graph("add_and_norm") as g:
    x = embedding(g.input("ids", "i64", "batch", "seq"), 6, WIDTH, scale=4)
    g.output("post", layer_norm(x + linear(x, WIDTH, name="zero", bias=False), scale=False))
    g.output("pre", x + linear(layer_norm(x, scale=False), WIDTH, name="zero", bias=False))
    show(g)
    g.output("x", x * 1)
    g.output("layer norm", layer_norm(x, scale=False))
    g.output("rms norm", rms_norm(x, scale=False))
    g.output("times scale", rms_norm(x, name="rms"))
    g.output("1 + scale", rms_norm(x, unit_offset=True, name="rms"))
    for name, layer in STACKS.items():
        y = x
        with g.scope(name.replace(" ", "_")):
            for i in range(1, LAYERS + 1):
                y = layer(y)
                g.output(f"{name} {i}", y)
zero = np.zeros((WIDTH, WIDTH), np.float32)
model, words = Both(g, {"zero.weight": zero, "zero_1.weight": zero}), ids(I_LOVE_YOU, YOU_LOVE_I)
found, alone = model(ids=words), model(ids=words[1:])

norms = "x", "layer norm", "rms norm", "times scale", "1 + scale"
table('"I", normed', range(6), norms, np.stack([found[n][:, 0, 0, :6] for n in norms], 1))
claim("a sublayer of zero weights, pre: x, bit for bit", found["pre"] == found["x"])
alike("a sublayer of zero weights, post: LayerNorm(x)", found["post"], found["layer norm"])
alike("norms do not depend on batch-mates", alone["post 24"], found["post 24"][:, 1:])
same = [(alone[n][1] == y[1, 1:]).all() for n, y in found.items()]
claim("on the CPU not in a bit", same)
variance = [[found[f"{n} {i}"].var((1, 2, 3)) for i in SHOWN] for n in STACKS]
deep = np.log10(variance).transpose(2, 0, 1)
table("log10 of the variance after n layers", SHOWN, STACKS, deep)
claim("without a norm it grows with every layer", np.diff(deep[:, 0]) > 0, f"{deep[0, 0, -1]:.1f}")
claim("with one it grows at most as their number does", deep[:, 2:] < np.log10(SHOWN) + 0.7)
