"""The parts of a Transformer, as functions on values of the graph being built.

    with graph("block") as g:
        x = g.input("x", "f32", "batch", "seq", 256)
        y = layer_norm(x + attention(x, x, x, mask=causal()))
        g.output("y", layer_norm(y + feed_forward(y, 1024)))

Each block makes its parameters under its own name in the current scope; a second block of the same
name takes `name_1`. Imports ops, ir and errors.
"""

from tfgraph.blocks.attention import attention
from tfgraph.blocks.basic import Norm, feed_forward, layer_norm, linear, norm, rms_norm
from tfgraph.blocks.cache import Cache
from tfgraph.blocks.disentangled import Disentangled, distance_table
from tfgraph.blocks.embeddings import (
    embedding,
    learned,
    positions_kept,
    positions_of,
    shift_right,
    sinusoidal,
    token_table,
)
from tfgraph.blocks.experts import Experts, mixture_of_experts
from tfgraph.blocks.heads import (
    classifier,
    end_token,
    first_token,
    last_token,
    lm_head,
    mean_token,
    pointer_head,
    pooler,
    span_ends,
    vocabulary_transform,
)
from tfgraph.blocks.layers import Layer, decoder_layer, encoder_layer
from tfgraph.blocks.measures import cross_entropy, soft_sort
from tfgraph.blocks.positions import (
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    Rotary,
    YarnScaling,
    alibi_slopes,
    relative_table,
    rotary_tables,
)
from tfgraph.blocks.stacks import (
    decoder,
    decoder_states,
    encoder,
    encoder_states,
    project_memory,
)
from tfgraph.blocks.stems import audio_stem, convolution, image_stem

__all__ = [
    "Cache",
    "Disentangled",
    "Experts",
    "Layer",
    "LinearScaling",
    "Llama3Scaling",
    "LongScaling",
    "Norm",
    "Rotary",
    "YarnScaling",
    "alibi_slopes",
    "attention",
    "audio_stem",
    "classifier",
    "convolution",
    "cross_entropy",
    "decoder",
    "decoder_layer",
    "decoder_states",
    "distance_table",
    "embedding",
    "encoder",
    "encoder_layer",
    "encoder_states",
    "end_token",
    "feed_forward",
    "first_token",
    "image_stem",
    "last_token",
    "layer_norm",
    "learned",
    "linear",
    "lm_head",
    "mean_token",
    "mixture_of_experts",
    "norm",
    "pointer_head",
    "pooler",
    "positions_kept",
    "positions_of",
    "project_memory",
    "relative_table",
    "rms_norm",
    "rotary_tables",
    "shift_right",
    "sinusoidal",
    "soft_sort",
    "span_ends",
    "token_table",
    "vocabulary_transform",
]
