"""Verifications that the cache remembers: of exactly these files, against exactly these weights.

What an artifact computes is told by its bytes, and what the reference does by the graph, which is
among them, and by the weights as they were given. So where all of that was verified before, by the
same tfgraph on the same kind of CPU and the same GPU, it need not run again; the report says so.
Only what passed is kept. May import: verify, bounds, weights, runtime, cache.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import Difference
from tfgraph.api.verify import Verification
from tfgraph.api.weights import as_seeded
from tfgraph.cache import active
from tfgraph.runtime import format as layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfgraph.backends.base import Weights

_KIND = "verifications"


def remembered(
    folder: Path, weights: Weights, verify: Callable[[], Verification], device: str = ""
) -> Verification:
    """The verification of the artifact in `folder`, whose manifest says nothing of one yet: an
    earlier one, on that `device` besides the CPU, or what `verify` finds."""
    cache = active()
    if cache is None:
        return verify()
    key = (folder / layout.MANIFEST).read_bytes(), _identity(weights), device
    known = cache.get(_KIND, *key)
    if known is not None:
        return _read(known)
    found = verify()
    if found.ok:
        cache.put(_KIND, json.dumps(asdict(found)).encode(), *key)
    return found


def _read(text: bytes) -> Verification:
    found: dict[str, Any] = json.loads(text)
    found["dims"], found["worst_at"] = tuple(found["dims"]), tuple(found["worst_at"])
    for given in found["outputs"]:
        given["worst_index"] = tuple(given["worst_index"])
    found["outputs"] = tuple(Difference(**given) for given in found["outputs"])
    found["remembered"] = True
    return Verification(**found)


def _identity(weights: Weights) -> bytes:
    """A hash of all weights; of seeded ones the seed, since the graph says how they are filled."""
    seeded = as_seeded(weights)
    if seeded is not None:
        return f"seeded {seeded.seed}".encode()
    digest = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name])
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest()
