"""ONNX's own tests of every operator that the importer has: all pass, or are outside for a reason
that is named."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tfgraph.onnx import operators

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "onnx_conformance.py"
WITHOUT_TESTS = {"Constant", "HardSigmoid", "Softsign"}


def load() -> Any:
    spec = importlib.util.spec_from_file_location("onnx_conformance", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["onnx_conformance"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_all_pass() -> None:
    found = list(load().outcomes())
    assert [f"{o.name}: {o.reason}" for o in found if o.kind == "fail"] == []
    count = Counter(o.kind for o in found)
    assert count["pass"] >= 950
    assert all(o.reason for o in found if o.kind == "outside")
    passed = {o.operator for o in found if o.kind == "pass"}
    assert set(operators()) - passed <= WITHOUT_TESTS
