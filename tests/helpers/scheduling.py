"""Which tests a worker of pytest-xdist takes in one piece, and in which order."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

_STEPS = "models that generate, compiled once for all that run them"
TOGETHER = {
    "tests/generate/test_generate.py": _STEPS,
    "tests/generate/test_step.py": _STEPS,
    "tests/backends/test_functions.py": _STEPS,
    "tests/backends/test_kept.py": _STEPS,
    "tests/cli/test_generate.py": _STEPS,
}
"""Files whose tests share what `helpers.generating.compiled` keeps, which is a process's own."""

FIRST = (
    "tests/fuzz/test_blocks.py",
    "tests/backends/test_cuda_runtime.py",
    "tests/benchmarks/test_cuda.py",
    "tests/cli/test_cuda.py",
    "tests/backends/test_tails_and_twins.py",
    "tests/fuzz/test_verb.py",
    "tests/backends/test_staging.py",
    "tests/backends/test_cuda_missing.py",
    "tests/model/test_features.py",
    "tests/hf/test_forwards.py",
    "tests/rounding/test_cuda_end_to_end.py",
)
"""Few tests that take long: xdist gives out the files with most tests first, and with these at the
end one worker would wait for the other."""


class ByFile(LoadFileScheduling):
    """A file is one piece, or a few that share what they compile."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)

    def schedule(self) -> None:
        """Give out the files with most tests, then FIRST, then all others."""
        super().schedule()
        for file in reversed(FIRST):
            if file in self.workqueue:
                self.workqueue.move_to_end(file, last=False)
