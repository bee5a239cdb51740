"""Tune a model's kernels: measure on this machine which way of doing their work is fastest.

May import: compile, fuse, source, backends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tfgraph.api.fuse import fuse
from tfgraph.api.source import open_source
from tfgraph.backends.base import CompilingBackend, Target, find_backend
from tfgraph.backends.tuning import Tuned, Tuning
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.api.source import Source


def tune(
    source: Source,
    target: Target,
    *,
    passes: str | None = None,
    seconds: float = 60,
    heard: Callable[[Tuned], None] = lambda tuned: None,
) -> Tuning:
    """Measure the kernels of a model, of all its functions, for about so many seconds.

    What is found is written into the file `target.schedules`, where `build` for the same target
    finds it. It says how kernels go through their work: what they compute stays the same bit by
    bit. `heard` hears of each kernel. Raises TfgraphError for a target whose kernels leave nothing
    to choose, MissingTool where they do not run here.
    """
    opened = open_source(source)
    backend = find_backend(target.name)
    if not isinstance(backend, CompilingBackend):
        raise TfgraphError(f"target '{target.name}' has no kernels to tune")
    target, passes = backend.settle(target), passes or opened.passes
    graphs = [opened.graph, *(opened.functions.values() if backend.has_functions else ())]
    fused = [fuse(graph, target, passes).compiled for graph in graphs]
    return backend.tune(fused, target, seconds, heard)
