"""Forty faults of a seed: five of each kind, and five more of any."""

from __future__ import annotations

import numpy as np
from faults.fault import Fault
from faults.importers import importer_fault
from faults.kernels import kernel_fault
from faults.rules import rule_fault
from faults.weights import weight_fault

KINDS = ("gemm", "attention", "norm", "masks", "rules", "importers", "weights")
COUNT, OF_EACH = 40, 5


def fault(seed: int, number: int) -> Fault:
    """The fault of that number, 0 to 39."""
    rng = np.random.default_rng([seed, number])
    last = OF_EACH * len(KINDS)
    kind = KINDS[number % len(KINDS) if number < last else rng.integers(len(KINDS))]
    others = {"rules": rule_fault, "importers": importer_fault, "weights": weight_fault}
    return others[kind](rng) if kind in others else kernel_fault(kind, rng)
