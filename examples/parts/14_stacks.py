"""Stacks: layers upon layers, as an encoder, as a decoder, and as both."""

from pathlib import Path

import numpy as np
from running import I_LOVE_YOU, YOU_LOVE_I, Both, ids
from showing import claim, show, table

import tfgraph
from tfgraph.blocks import Layer, decoder, embedding, encoder, lm_head, shift_right, token_table

ORIGINAL = Layer(heads=2, ffn=32, activation="relu")  # norms behind, as in 2017
RECENT = Layer(heads=2, ffn=32, activation="relu", norm="rms_norm", placement="pre")
# 37,000 words of 512; 6 + 6 layers: attention, feed-forward, two vectors a norm; 6 memories.
ATTENTION, FFN, NORM = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
BASE = 37000 * 512 + 12 * (ATTENTION + FFN + 2 * NORM) + 6 * (ATTENTION + NORM)
TRIANGLE, ALL = np.tri(3), np.ones((3, 3))
SHOWN = (  # of each stack, with words of which sentence its rows change
    ("encoder", "source", ALL, "each word sees every word"),
    ("decoder", "target", TRIANGLE, "each word sees itself and those before, of others no bit"),
    ("both", "source", ALL, "each target sees the whole source"),
    ("both", "target", np.tri(3, k=-1), "the logits for a target see those before it, no other"),
)

with tfgraph.graph("stacks") as g:
    words, target = token_table(6, 8, name="words"), g.input("target", "i64", "batch", "length")
    x = embedding(target, 6, 8, scale=3, table=words)
    g.output("decoder", lm_head(decoder(x, 1, RECENT), 6, table=words))
    show(g)
    source = g.input("source", "i64", "batch", "seq")
    x = embedding(source, 6, 8, scale=3, table=words)
    with g.scope("encoder"):
        g.output("encoder", memory := encoder(x, 2, ORIGINAL))
    x = embedding(shift_right(target, start=1), 6, 8, scale=3, table=words)
    with g.scope("decoder"):
        x = decoder(x, 2, ORIGINAL, memory=memory)
    g.output("both", lm_head(x, 6, table=words))

both, sentences = Both(g), {"source": I_LOVE_YOU, "target": YOU_LOVE_I}
given = {name: ids(sentence) for name, sentence in sentences.items()}
found = both(**given)
for stack, name, wanted, said in SHOWN:
    changed = np.zeros((2, 3, 3))
    for j in range(3):
        other = given[name].copy()
        other[0, j] = 5
        changed[..., j] = (both(**given | {name: other})[stack] != found[stack]).any(-1)[:, 0]
    rows = sentences["source" if stack == "encoder" else "target"].split()
    title = f"{stack}: rows that change, 1, with a word of the {name}"
    table(title, sentences[name].split(), rows, changed, digits=0)
    claim(said, changed == wanted)

base = tfgraph.load_source(Path(__file__).resolve().parents[1] / "transformer-base.yaml").graph
learned = [p.value.type for p in base.params if p.fill.kind != "sinusoidal"]
size = sum(np.prod(tuple(map(int, made.shape))) for made in learned)
claim("weights of examples/transformer-base.yaml; the paper: 65 million", size == BASE, f"{size:,}")
