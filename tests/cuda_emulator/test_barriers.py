"""Each barrier of the kernels is needed: without it the emulator sees a race."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulator.launch import KernelFault
from cuda_emulator.prim_funcs import CudaOnCpu

from tfgraph.backends.tvm.attention_mask import Causal
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.attention import attention
from tfgraph.backends.tvm.cuda.attention_mask import KeyMask
from tfgraph.backends.tvm.cuda.linear import linear
from tfgraph.backends.tvm.cuda.matmul import matmul
from tfgraph.backends.tvm.cuda.norm import layer_norm, rms_norm
from tfgraph.backends.tvm.cuda.softmax import softmax
from tfgraph.backends.tvm.kernels import AttentionShape

BARRIER = re.compile(r"(?:__sync(?:threads|warp)|cp_async_wait<\d+>|cp_async_commit)\(\);")


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention_inputs() -> list[Any]:
    return [normal(1, 70, 12), normal(1, 90, 12, seed=2), normal(1, 90, 12, seed=3)]


SHAPE = AttentionShape(1, 1, 12, 12, 12, 12, 12)
CASES: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    # Deeper than what is kept of the operands: else the last steps of a pipeline are not needed.
    "linear": lambda: (linear(("m",), 100, 70), [normal(70, 100), normal(70, 100)]),
    "linear_float16": lambda: (
        linear(("m",), 328, 70, dtype="float16"),
        [normal(70, 328).astype(np.float16), normal(70, 328).astype(np.float16)],
    ),
    "matmul": lambda: (
        matmul(("b",), ("b",), "m", "n", 100, transpose_b=True, skip_zeros=True),
        [normal(1, 9, 100), normal(1, 8, 100)],
    ),
    "matmul_float16": lambda: (
        matmul((1,), (1,), 70, 72, 328, dtype="float16"),
        [normal(1, 70, 328).astype(np.float16), normal(1, 328, 72).astype(np.float16)],
    ),
    "layer_norm": lambda: (
        layer_norm(("m",), 300, eps=1e-5, add=True, keep_sum=True),
        [normal(3, 300), normal(3, 300, seed=2), normal(300), normal(300)],
    ),
    "rms_norm": lambda: (rms_norm(("m",), 300, eps=1e-5), [normal(3, 300), normal(300)]),
    "softmax": lambda: (softmax(("m",), 300), [normal(3, 300)]),
    "attention": lambda: (attention(SHAPE, scale=0.3), attention_inputs()),
    "attention_masked": lambda: (
        attention(SHAPE, MaskPlan((Causal(20), KeyMask())), scale=0.3),
        [*attention_inputs(), np.ones((1, 90), np.int64)],
    ),
}


def run_all(run: CudaOnCpu, name: str, inputs: list[Any]) -> None:
    for kernel in run.variants(name):
        run(name, *inputs, kernel=kernel)


@pytest.mark.parametrize("name", CASES)
def test_every_barrier_is_needed_and_its_loss_is_seen(name: str, tmp_path: Path) -> None:
    function, inputs = CASES[name]()
    right = CudaOnCpu({name: function}, tmp_path)
    run_all(right, name, inputs)
    assert BARRIER.search(right.source)
    for broken in right.without_each(BARRIER):
        with pytest.raises(KernelFault, match=r"race|too early"):
            run_all(broken, name, inputs)
