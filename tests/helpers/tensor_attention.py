"""Runs the attention kernels of tensor cores on the CPU, those that the host chooses.

run = TensorAttention({"causal": case}, "float16", folder)
(out,) = run("causal", q, k, v, *arrays, *scalars)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.attention_cases import SCALE, Case, rows
from helpers.tolerance import UNIT

from tfgraph.backends.tvm.cuda.arch import parse_arch
from tfgraph.backends.tvm.cuda.tensor_attention import attention

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
ARCH = "sm_80"


def kernel_of(case: Case, dtype: str, arch: str = ARCH) -> Any:
    """The PrimFunc of a case."""
    return attention(
        replace(case.shape, dtype=dtype),
        case.plan,
        shared_bytes=parse_arch(arch).shared_bytes_per_block,
        scale=SCALE,
        softcap=case.softcap,
    )


class TensorAttention(CudaOnCpu):
    """Cases by name, of one dtype."""

    def __init__(self, cases: Mapping[str, Case], dtype: str, directory: Path) -> None:
        super().__init__({n: kernel_of(case, dtype) for n, case in cases.items()}, directory)
        self.split = False
        """Whether blocks shared the keys of a head in the last run."""
        self._workspace: dict[str, np.ndarray] = {}

    def launch(self, name: str, arguments: Mapping[str, np.ndarray | int]) -> None:
        """A launch; that of a part of the keys makes the workspace, which the next reads."""
        kernel = self.kernels[name]
        self.split = bool(kernel.when)
        if self.split and kernel.number == 0:
            sizes = {key: value for key, value in arguments.items() if isinstance(value, int)}
            parts = eval(kernel.grid[2], {"min": min, "max": max}, sizes) * kernel.threads // 32
            out, heads = arguments["out_ptr"], int(self.kernels[f"{name}_1"].grid[1])
            assert isinstance(out, np.ndarray)
            shape = parts, out.shape[0] * out.shape[1] * heads
            self._workspace = {
                "partial_sums_ptr": np.full((*shape, out.shape[2] // heads), np.nan, np.float32),
                "partial_state_ptr": np.full((*shape, 2), np.nan, np.float32),
            }
        super().launch(name, {**arguments, **self._workspace})


def bounded_reference(
    case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, arrays: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The result in float64, and how far the kernel may be from it, to first order.

    A product on tensor cores drops bits of each term rather than rounding, so that a sum of n is
    within 2 n u of the sum of its terms' sizes, u being float32's. A weight errs by twice the error
    of a score (its own and that of the sum), by that of exp2, 2^-22, and by a rounding to 16 bits.
    """
    batch, queries, _ = q.shape
    unit, narrow = UNIT["float32"], UNIT[str(q.dtype)]
    smallest = 2.0**-25 if q.dtype == np.float16 else 0.0  # half of the least of the weights
    want = np.zeros((batch, queries, case.heads, case.value_width))
    bound = np.zeros_like(want)
    for row in rows(case, q, k, v, arrays):
        largest = np.abs(row.scores).max() + abs(case.softcap or 0)
        of_score = 2 * (case.width + 16) * unit * row.sizes.max() + 8 * unit * largest
        count = len(row.scores)
        of_weight = 2 * of_score + 2.0**-21 + narrow + 4 * (count + 16) * unit
        want[row.at] = row.weights @ row.values
        sizes = row.weights @ np.abs(row.values)
        bound[row.at] = of_weight * sizes + narrow * (np.abs(want[row.at]) + smallest)
        bound[row.at] += smallest * np.abs(row.values).sum(0)
    return want.reshape(batch, queries, -1), bound.reshape(batch, queries, -1)
