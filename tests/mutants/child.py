"""Runs tests with a changed module: in a child process, which ends with it."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.machinery
import importlib.metadata
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[2]
# Whatever rules are made of, and tests but not rules: it is imported once, by the parent.
_WARM = (
    "numpy", "onnx", "networkx", "ruamel.yaml", "pydantic", "safetensors", "hypothesis.strategies",
    "tfgraph.ops", "tfgraph.text", "tfgraph.blocks", "tfgraph.model", "tfgraph.onnx", "tfgraph.hf",
)  # fmt: skip
_NAMES = [ast.alias(name) for name in ("const", "opt", "var")]
"""What mutants of patterns are made of."""
_MEMORY = 16 << 30
_OPTIONS = (
    "-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider",
    "--hypothesis-profile=mutants",
)  # fmt: skip


def warm_up() -> None:
    """Import what every child needs, but no rule."""
    # Seeded, so that a verdict stays; a failing case need not be small.
    settings.register_profile(
        "mutants",
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for name in _WARM:
        importlib.import_module(name)
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()
    _quietly(lambda: pytest.main(["--version"]))
    known = [name for name in sys.modules if name.startswith("tfgraph.passes")]
    assert not known, f"rules are imported already: {known}"
    gc.freeze()


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from a tree in place of its source."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self.tree = tree

    def get_code(self, fullname: str) -> types.CodeType:
        names = ast.ImportFrom("tfgraph.passes.pattern", _NAMES, 0)
        first = next(i for i, top in enumerate(self.tree.body) if isinstance(top, ast.ImportFrom))
        self.tree.body.insert(first + 1, ast.fix_missing_locations(names))
        return compile(self.tree, self.path, "exec")


class _Finder:
    """Finds the one module that is changed."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self.name, self.loader = name, _Changed(name, str(path), tree)

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        spec = importlib.machinery.ModuleSpec(name, self.loader, origin=self.loader.path)
        spec.has_location = True
        return spec


class _Failed:
    """Remembers the first test that failed."""

    test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid


def run(
    module: str,
    path: Path,
    tree: ast.Module,
    first: Sequence[str],
    stages: Sequence[Sequence[str]],
    seconds: int,
) -> dict[str, Any]:
    """Import the module from its tree, and run the tests that are tried first, which may be gone,
    and stages of tests until one fails. What ends the process, as too much CPU time does, has no
    result."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.meta_path.insert(0, _Finder(module, path, tree))  # type: ignore[arg-type]
    try:
        importlib.import_module(module)
    except BaseException as error:
        return {"fate": "stillborn", "by": f"{type(error).__name__}: {error}"}
    os.chdir(ROOT)
    if first:
        failed = _Failed()
        if pytest.main([*_OPTIONS, *first], plugins=[failed]) == pytest.ExitCode.TESTS_FAILED:
            return {"fate": "killed", "by": failed.test}
    for stage in stages:
        failed = _Failed()
        code = pytest.main([*_OPTIONS, *stage], plugins=[failed])
        if code not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.INTERRUPTED,
        ):
            return {"fate": "error", "by": f"pytest {' '.join(stage)} ended with {code!r}"}
        if code != pytest.ExitCode.OK:
            return {"fate": "killed", "by": failed.test}
    return {"fate": "survived", "by": ""}


def fork(work: Callable[[], dict[str, Any]], result: Path) -> int:
    """A child that writes what `work` returns to `result`, as JSON; its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with result.with_suffix(".log").open("w") as log:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
        found = work()
        used = resource.getrusage(resource.RUSAGE_SELF)
        found["cpu"] = used.ru_utime + used.ru_stime
        result.write_text(json.dumps(found))
    finally:
        os._exit(0)


def _quietly(work: Callable[[], Any]) -> None:
    kept = [os.dup(stream) for stream in (1, 2)]
    with Path(os.devnull).open("w") as nothing:
        for stream in (1, 2):
            os.dup2(nothing.fileno(), stream)
        try:
            work()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for stream, old in zip((1, 2), kept, strict=True):
                os.dup2(old, stream)
                os.close(old)
