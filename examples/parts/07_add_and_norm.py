"""Add & norm: what a sublayer makes of x is added to x, and normed, so that depth does no harm."""

import numpy as np
from running import I_LOVE_YOU, YOU_LOVE_I, Both, ids
from showing import alike, claim, show, table

import tfgraph
from tfgraph.blocks import Layer, embedding, encoder_states, layer_norm, linear, rms_norm

WIDTH, LAYERS, SHOWN = 16, 24, (1, 2, 6, 12, 24)
SMALL = {"heads": 2, "ffn": 32, "activation": "relu", "bias": False}
STACKS = {  # as keys of a model file: norm: none, residual_scale: 0.2, residual: false, ...
    "norm none": Layer(norm="none", **SMALL),
    "scaled": Layer(norm="none", residual_scale=0.2, **SMALL),
    "post": Layer(placement="post", **SMALL),
    "no residual": Layer(residual=False, **SMALL),
    "pre": Layer(placement="pre", **SMALL),
    "sandwich": Layer(placement="sandwich", **SMALL),
    "parallel": Layer(placement="parallel", **SMALL),
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
        with g.scope(name.replace(" ", "_")):
            states = encoder_states(x, LAYERS, layer, final_norm=False)
        for i in SHOWN:
            g.output(f"{name} {i}", states[i])
zero = np.zeros((WIDTH, WIDTH), np.float32)
model, words = Both(g, {"zero.weight": zero, "zero_1.weight": zero}), ids(I_LOVE_YOU, YOU_LOVE_I)
found, alone = model(ids=words), model(ids=words[1:])

norms = "x", "layer norm", "rms norm", "times scale", "1 + scale"
table('"I", normed', range(6), norms, np.stack([found[n][:, 0, 0, :6] for n in norms], 1))
claim("a sublayer of zero weights, pre: x, bit for bit", found["pre"] == found["x"])
alike("a sublayer of zero weights, post: LayerNorm(x)", found["post"], found["layer norm"])
alike("norms do not depend on batch-mates", alone["post 24"], found["post 24"][:, 1:])
claim("on the CPU not in a bit", [(alone[n][1] == y[1, 1:]).all() for n, y in found.items()])
variance = [[found[f"{n} {i}"].var((1, 2, 3)) for i in SHOWN] for n in STACKS]
variance = np.array(variance).transpose(2, 0, 1)
table("log10 of the variance after n layers", SHOWN, STACKS, np.log10(variance))
none, scaled, ended, begun = variance[:, 0], variance[:, 1], variance[:, 2:4], variance[:, 4:]
grows = "without a norm the variance grows with every layer, by"
claim(grows, np.diff(none) > 0, f"{none[0, -1] / none[0, 0]:.0e}")
times = scaled[:, -1] / scaled[:, 0]
claim("scaled by 0.2 it grows too, but little: by", times < 10, f"{times[0]:.1f}")
claim("post, residual or not: a norm ends each layer, it stays near 1", abs(ended - 1) < 0.3)
step = (begun[..., -1] - begun[..., -2]) / 12
grows = "pre, sandwich, parallel: it grows linearly, each layer adds at most"
claim(grows, step < 2.5, f"{step.max():.1f}")
