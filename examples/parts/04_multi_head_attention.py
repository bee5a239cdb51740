"""Multi-head attention (多头注意力): every head looks at the words in its own way."""

import numpy as np
from running import I_LOVE_YOU, WORDS, Both, ids, weights_of
from showing import alike, claim, show, table

import tfgraph
from tfgraph import blocks, ops
from tfgraph.blocks import Norm, attention
from tfgraph.ir import rsqrt

WIDTH, HEADS, SIZE = 8, 2, 4
PAIRS = np.kron(np.eye(2), np.ones((2, 2)))
OTHERS = {
    "grouped": {"heads": 4, "kv_heads": 2, "softcap": 2, "scale": 1},
    "multi_query": {"heads": 4, "kv_heads": 1, "qk_norm": Norm("rms_norm")},
    "own_sizes": {"heads": 3, "head_size": 5, "value_size": 2, "bias": True},
}

with tfgraph.graph("multi_head_attention") as g:
    x = blocks.embedding(g.input("ids", "i64", "batch", "seq"), len(WORDS), WIDTH, scale=3)
    g.output("y", attention(x, x, x, heads=HEADS, bias=False))
    show(g)

    w = {part: g.param(f"attention.{part}.weight", "f32", WIDTH, WIDTH) for part in "qkv"}
    w["out"] = g.param("attention.out.weight", "f32", WIDTH, WIDTH)
    heads = []
    for h in range(HEADS):  # softmax(Q K^T / sqrt(4)) V with the head's own columns of the weights
        q, k, v = (ops.linear(x, ops.slice_(w[part], axis=1, start=h * SIZE, stop=h * SIZE + SIZE))
                   for part in "qkv")  # fmt: skip
        scores = ops.mul(ops.matmul(q, ops.transpose(k, perm=(0, 2, 1))), rsqrt(SIZE))
        heads.append(ops.matmul(ops.softmax(scores), v))
    g.output("by_head", ops.linear(ops.concat(*heads, axis=-1), w["out"]))

    g.output("edited", attention(x, x, x, heads=HEADS, bias=False, name="edited"))
    for name, options in OTHERS.items():
        g.output(name, attention(x, x, x, name=name, **{"bias": False} | options))

weights = weights_of(g)
edits = {f"edited.{p}.weight": weights[f"attention.{p}.weight"].copy() for p in (*"qkv", "out")}
edits["edited.q.weight"][:, :SIZE] *= -1  # the queries of head 0
edits["grouped.q.weight"] = np.tile(weights["grouped.q.weight"][:, :2], 4)  # 4 heads ask the same
maps = [f"{name}.probabilities" for name in ("attention", "edited", "grouped")]
found = Both(g, edits, watch=maps)(ids=ids(I_LOVE_YOU))
words = I_LOVE_YOU.split()
for h in range(HEADS):
    table(f"what each word attends to, head {h}", words, words, found[maps[0]][:, 0, h])
alike("the heads, computed apart, joined, through one linear layer", found["by_head"], found["y"])
before, after, grouped = (found[name][:, 0] for name in maps)
claim("with other weights of head 0 its map is another", (before[:, 0] != after[:, 0]).any((1, 2)))
claim("and that of head 1 the same, bit for bit", before[:, 1] == after[:, 1])
apart = abs(grouped[:, :, None] - grouped[:, None]).max((3, 4))  # [backend, head, head]
heads = [f"head {h}" for h in range(4)]
table("grouped, heads that ask the same: how far their maps are apart", heads, heads, apart)
claim("heads 0 and 1 read key head 0, and 2 and 3 key head 1", (apart == 0) == PAIRS)
for name, options in OTHERS.items():
    size = sum(w.size for key, w in weights.items() if key.startswith(f"{name}."))
    said = ", ".join(f"{key} {getattr(value, 'kind', value)}" for key, value in options.items())
    alike(f"{said}: {size} weights, NumPy and CPU agree", *found[name])
