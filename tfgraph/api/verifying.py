"""The verification of an artifact while it is made, and once it is.

How far its outputs may be from the reference does not depend on them: that is found while a
compiler works. May import: verify, remembered, backends, runtime, cache, ir.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from tfgraph.api.remembered import remembered
from tfgraph.api.verify import Verification, allowed_of, budget_of, together, verify
from tfgraph.backends.base import Target
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.cache import active
from tfgraph.runtime.model import load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tfgraph.api.allowed import Allowed
    from tfgraph.backends.base import CompilingBackend, Executable, Weights
    from tfgraph.ir import Graph

NOT_ASKED = Verification("numpy", None, "not run: --no-verify")


class Verifying:
    """The functions of an artifact, `main` among them, each before and after the passes, against
    the reference with these weights; `zeroed` as `verify` takes it.

    Used in a `with` block, at whose end nothing of it runs any more.
    """

    def __init__(
        self,
        backend: CompilingBackend,
        functions: Mapping[str, tuple[Graph, Graph]],
        weights: Weights,
        target: Target,
        zeroed: Graph | None = None,
    ) -> None:
        self._backend, self._weights, self._target = backend, weights, target
        self._functions, self._zeroed = functions, zeroed
        self._unable = backend.runs_here(target)
        self._allowed: dict[str, Future[Allowed]] = {}

    def __enter__(self) -> Verifying:
        self._beside = ThreadPoolExecutor(1, "bounds")
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.shutdown(cancel_futures=True)

    def begin(self) -> None:
        """Find the bounds in a thread of its own; not where the artifact cannot run here, nor where
        the cache knew what was asked so far: then it will know the verification, too."""
        cache = active()
        if self._unable is None and not (cache and cache.found):
            for name in self._functions:
                self._allowed[name] = self._beside.submit(self._allowed_of, name)

    def outcome(self, folder: Path) -> Verification:
        """Of the artifact in `folder`, whose manifest says nothing of it yet: remembered, or run
        now. Where it cannot run here, the graphs after the passes against those before."""
        device = self._backend.device()
        return remembered(folder, self._weights, lambda: self._run(folder), device)

    def _run(self, folder: Path) -> Verification:
        if self._unable is not None:
            after = {n: NumpyExecutable(g, self._weights) for n, (_, g) in self._functions.items()}
            passes = self._against(after, Target("numpy"))
            if passes.ok is False:
                return passes
            instead = f"the graph after the passes, on numpy, at {len(passes.dims)} sizes"
            return Verification("numpy", None, f"not run: {self._unable}", instead=instead)
        with load(folder, threads=self._target.threads) as model:
            return self._against({"main": model, **model.functions}, self._target)

    def _against(self, runs: Mapping[str, Executable], target: Target) -> Verification:
        found: dict[str, Verification] = {}
        for name, (graph, _) in self._functions.items():
            zeroed = self._zeroed if name == "main" else None
            begun = self._allowed.get(name)
            allowed = None if begun is None else begun.result()
            own, budget = self._own(graph), budget_of(name)
            found[name] = verify(runs[name], graph, own, target, budget, zeroed, allowed)
        return together(found)

    def _allowed_of(self, name: str) -> Allowed:
        graph, _ = self._functions[name]
        return allowed_of(graph, self._own(graph), self._target, budget_of(name))

    def _own(self, graph: Graph) -> Weights:
        return {param.value.name: self._weights[param.value.name] for param in graph.params}
