"""What one does with a graph: compile, compare, verify. Imports all below; `cli` imports this."""

from tfgraph.api.bisect import Bisection, bisect
from tfgraph.api.change import Change, compare_models
from tfgraph.api.compare import compare
from tfgraph.api.comparison import Comparison
from tfgraph.api.compile import CompileReport, VerificationFailed, build, compile
from tfgraph.api.verify import Verification, verify

__all__ = [
    "Bisection",
    "Change",
    "Comparison",
    "CompileReport",
    "Verification",
    "VerificationFailed",
    "bisect",
    "build",
    "compare",
    "compare_models",
    "compile",
    "verify",
]
