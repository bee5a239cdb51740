"""The graph of a seed: nodes drawn from the ops' own schemas, blocks of Transformers among them, or
a whole small model. Everything follows from the seed, and from the float types that are allowed.

May import: ops, ir, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfgraph.fuzz.draft import Draft
from tfgraph.fuzz.inputs import Case
from tfgraph.fuzz.models import random_model
from tfgraph.fuzz.recipes import RECIPES
from tfgraph.fuzz.schema import schema_node
from tfgraph.fuzz.swarm import Swarm
from tfgraph.ir import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FLOAT32 = (DType.float32,)
KINDS = ("schemas", "blocks", "models")
"""Kinds of graphs: ops by their schemas alone, blocks among them, whole models."""

SYMBOLS = {"batch": 64, "seq": 512, "memory": 512, "past": 512, "target": 512}
_RECIPES = 3  # of a family
_SHARES = (0.47, 0.47, 0.06)  # a model has as many nodes as ten other graphs


def random_case(seed: int, dtypes: Sequence[DType] = FLOAT32, kind: str | None = None) -> Case:
    """The graph of a seed, of any of `KINDS` or of the one given.

    Most are in the first of the float types `dtypes`, some in another one.
    """
    rng = np.random.default_rng(seed)
    chosen = str(rng.choice(KINDS, p=_SHARES))
    chosen = kind or chosen
    others = dtypes[1:] if rng.random() < 0.25 else ()
    dtype = others[int(rng.integers(len(others)))] if others else dtypes[0]
    if chosen == "models":
        return random_model(seed, rng, dtype)
    swarm = Swarm.of(seed)
    recipes = swarm.some(RECIPES, _RECIPES) if chosen == "blocks" else ()
    return _drawn(seed, Draft(rng, swarm, dtype), recipes)


def _drawn(seed: int, f: Draft, recipes: Sequence[Callable[[Draft], None]]) -> Case:
    """Two to five draws of `recipes` and of ops by their schemas."""
    for name, high in SYMBOLS.items():
        f.builder.symbol(name, 1, high)
    width = f.width()
    with f.builder:
        f.floats("batch", "seq", width)
        if f.chance(0.5):
            f.floats(*f.pick(("batch", "seq"), ("seq",), (), ("batch", "seq", width)))
        if f.chance(0.15):
            f.floats("batch", "seq", width, kind=f.pick("denormal", "edges", "special"))
        for _ in range(int(f.rng.integers(2, 6))):
            if recipes and f.chance(0.35):
                f.pick(*recipes)(f)
            else:
                schema_node(f)
        _outputs(f)
    return Case(seed, f.builder.build(), f.fills)


def _outputs(f: Draft) -> None:
    """What no node reads, and some of what others read; an input now and then."""
    read = {value for node in f.builder.nodes for value in node.inputs}
    results = [e.x for e in f.pool if e.x.value.name.isdigit()]
    chosen = [x for x in results if x.value not in read or f.chance(0.2)]
    if not chosen or f.chance(0.05):
        chosen.append(f.pool[0].x)
    for i, x in enumerate(chosen):
        f.builder.output(f"y{i}", x)
