"""What the parts run on: six words, weights from a seed, NumPy and the CPU side by side."""

from dataclasses import replace

import numpy as np

import tfgraph
from tfgraph.ir import Output
from tfgraph.weights import Seeded

WORDS = ("<pad>", "<s>", "I", "love", "you", "</s>")
I_LOVE_YOU, YOU_LOVE_I = "I love you", "you love I"


def ids(*sentences):
    """Their words as i64 [sentences, longest], padded at the end."""
    rows = [[WORDS.index(word) for word in text.split()] for text in sentences]
    return np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])


def weights_of(builder):
    """The graph's weights by name, made from a seed, the same on every machine."""
    return Seeded(builder.build().params)


class Both:
    """A graph on both backends: Both(g)(x=...)["y"] is [2, ...], of NumPy and of the CPU.

    Values named in `watch` are results too. Weights not given are seeded.
    """

    def __init__(self, builder, weights=None, watch=()):
        graph = builder.build()
        watched = tuple(Output(v.name, v) for v in graph.values() if v.name in watch)
        graph = replace(graph, outputs=graph.outputs + watched)
        weights = {**weights_of(builder), **(weights or {})}
        self.models = [tfgraph.compile(graph, name, weights=weights) for name in ("numpy", "cpu")]

    def __call__(self, **inputs):
        numpy, cpu = (model(**inputs) for model in self.models)
        return {name: np.stack([numpy[name], cpu[name]]) for name in numpy}
