"""Feed-forward (前馈网络): two linear layers with an activation between, for each word alone."""

import numpy as np
from running import I_LOVE_YOU, Both, ids, weights_of
from showing import alike, claim, show, table

import tfgraph
from tfgraph import ops
from tfgraph.blocks import Layer, embedding, encoder_layer, feed_forward

ACTIVATIONS = ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu")

with tfgraph.graph("feed_forward") as g:
    x = embedding(g.input("ids", "i64", 1, "seq"), 6, 8, scale=3)
    g.output("plain", feed_forward(x, 32, activation="relu"))
    g.output("gated", feed_forward(x, 32, activation="silu", gated=True, name="gated"))
    show(g)
    g.output("x", x * 1)
    g.output("linear", feed_forward(x, 32, activation="none", bias=False, name="linear"))
    t = g.input("t", "f32", 5)
    for name in ACTIVATIONS:
        g.output(name, ops.activation(name)(t))
    wide = g.input("wide", "f32", 7, 768)
    g.output("back", feed_forward(wide, 3072, bias=False, name="wide"))

t = np.array([-2, -1, 0, 1, 2], np.float32)
found = Both(g)(ids=ids(I_LOVE_YOU), t=t, wide=np.ones((7, 768), np.float32))
table("activations", t, ACTIVATIONS, np.stack([found[name] for name in ACTIVATIONS], 1))
table("ReLU, 8 to 32 and back", range(8), I_LOVE_YOU.split(), found["plain"][:, 0])
table("SiLU, gated", range(8), I_LOVE_YOU.split(), found["gated"][:, 0])
up, down = (weights_of(g)[f"linear.{part}.weight"].astype(np.float64) for part in ("up", "down"))
alike("activation none: x (W1 W2), one linear layer", found["linear"], found["x"] @ (up @ down))
claim("7 x 768 to 7 x 3072 and back", found["back"].shape == (2, 7, 768))

with tfgraph.graph("one_layer") as g:  # counted, not run
    g.output("y", encoder_layer(g.input("x", "f32", "batch", "seq", 768), Layer(ffn=4 * 768)))
sizes = {"attention": 0, "ffn": 0, "norms": 0}
for param in g.build().params:
    _, part, *_ = param.value.name.split(".")
    sizes[part if part in sizes else "norms"] += np.prod(tuple(map(int, param.value.type.shape)))
share = {part: size / sum(sizes.values()) for part, size in sizes.items()}
for part, size in sizes.items():
    claim(f"{part}: {size:,} of a layer's weights at width 768, 4x", size > 0, f"{share[part]:.1%}")
claim("the feed-forward network has about two thirds", abs(share["ffn"] - 2 / 3) < 0.01)
