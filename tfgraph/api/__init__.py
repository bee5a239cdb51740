"""What one does with a graph: compile, compare, verify. Imports all below; `cli` imports this."""

from tfgraph.api.change import Change, compare_models
from tfgraph.api.compare import Comparison, compare
from tfgraph.api.compile import CompileReport, VerificationFailed, build, compile
from tfgraph.api.verify import Verification, verify

__all__ = [
    "Change",
    "Comparison",
    "CompileReport",
    "Verification",
    "VerificationFailed",
    "build",
    "compare",
    "compare_models",
    "compile",
    "verify",
]
