"""What all tests share: registries that are put back, golden files, and a closing table of what was
not run and why."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cuda_emulator.build import require_host_compiler
from cuda_emulator.driver.build import fake_cuda as build_fake_cuda
from helpers.fuzz_seeds import seeds_that_ran

from tfgraph import plugins
from tfgraph.backends import base
from tfgraph.hf.architecture import architectures
from tfgraph.ops import REGISTRY
from tfgraph.passes import PASSES, RulePass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

os.environ["TFGRAPH_CACHE"] = ""  # no test finds what another run of the tests has left
gc.set_threshold(10_000)  # at 700, a quarter of the time in which tests are collected
GOLDEN_DIR = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files in tests/golden with what the code gives now",
    )
    parser.addoption(
        "--fault-seed",
        type=int,
        default=0,
        help="the seed of the faults that tests/faults plants (make faults)",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """That of `--dist loadfile`."""
    if config.getoption("dist") != "loadfile":
        return None
    from helpers.scheduling import ByFile

    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """The garbage collector no longer looks at what was imported and collected: it stays."""
    gc.freeze()


LAZY = (("tfgraph.onnx.registry", "_TABLE"),)
"""Registries of packages that not every test imports."""


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What a test registers is gone when it is over, so that the order of tests does not matter."""
    stores: list[Any] = [REGISTRY, PASSES, base._REGISTERED, plugins._loaded, architectures()]
    stores += [sys.modules[m].__dict__[name] for m, name in LAZY if m in sys.modules]
    stores += [cls.rules for cls in PASSES.values() if issubclass(cls, RulePass)]
    before = [store.copy() for store in stores]
    yield
    for store, kept in zip(stores, before, strict=True):
        if store != kept:
            store.clear()
            (store.extend if isinstance(store, list) else store.update)(kept)


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver, a CUDA runtime and an nvcc that emulate a GPU; see its `build`."""
    require_host_compiler()
    return build_fake_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def fault_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the faults."""
    return int(request.config.getoption("--fault-seed"))


class Golden:
    """Compares text with a file in tests/golden, or rewrites the file on --update-golden."""

    def __init__(self, directory: Path, update: bool) -> None:
        self.directory = directory
        self.update = update

    def __call__(self, name: str, text: str) -> None:
        """Fail, with a diff, unless `text` is what the file `name` holds."""
        path = self.directory / name
        if not text.endswith("\n"):
            text += "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.exists():
            pytest.fail(f"tests/golden/{name} is missing; `make golden` writes it", pytrace=False)
        want = path.read_text(encoding="utf-8")
        if text != want:
            diff = unified_diff(want.splitlines(), text.splitlines(), name, "now", lineterm="")
            advice = "if the change is meant, run `make golden` and read the diff"
            pytest.fail("\n".join([*diff, advice]), pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Call it as `golden("name.txt", text)`."""
    return Golden(GOLDEN_DIR, bool(request.config.getoption("--update-golden")))


class NotRun:
    """Counts skipped and deselected tests, in one process or over the workers of pytest-xdist."""

    def __init__(self) -> None:
        self.deselected: Counter[str] = Counter()
        self.expression = ""

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.expression = items[0].config.option.markexpr if items else ""
        self.deselected.update(item.nodeid for item in items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # On a worker: what it left out travels to the controller. Every worker collects all tests
        # and so leaves out the same ones.
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["not_run"] = [self.expression, list(self.deselected)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.expression, names = getattr(node, "workeroutput", {}).get("not_run", ["", []])
        self.deselected |= Counter(names)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        stats = terminalreporter.stats
        ran = [r.nodeid for kind in ("passed", "failed") for r in stats.get(kind, [])]
        if seeds := seeds_that_ran(ran):
            terminalreporter.section("fuzzed", sep="-")
            for line in seeds:
                terminalreporter.write_line(line)
            terminalreporter.write_line("TFGRAPH_FUZZ_SEED and TFGRAPH_FUZZ_GRAPHS set others")
        reasons = Counter(skip_reasons(terminalreporter.stats.get("skipped", [])))
        if self.deselected and self.expression:
            reasons[f"left out by -m '{self.expression}'"] = len(self.deselected)
        if reasons:
            terminalreporter.section("not run, and why", sep="-")
            width = len(str(max(reasons.values())))
            for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
                terminalreporter.write_line(f"{count:>{width}}  {reason}")


def skip_reasons(reports: Iterable[Any]) -> Iterable[str]:
    """The reason of each skipped test, as its author gave it."""
    for report in reports:
        _path, _line, reason = report.longrepr
        yield reason.removeprefix("Skipped: ")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NotRun())
