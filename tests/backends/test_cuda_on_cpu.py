"""The runner that the CUDA kernels' tests rest on: does it see a kernel that is wrong?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cuda_on_cpu import CudaOnCpu

from tfgraph.backends.tvm.attention_mask import Causal
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.attention import attention
from tfgraph.backends.tvm.cuda.gemm import linear
from tfgraph.backends.tvm.cuda.norm import layer_norm
from tfgraph.backends.tvm.cuda.softmax import softmax
from tfgraph.backends.tvm.kernels import AttentionShape

BARRIER = "__syncthreads();"


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kernel_and_inputs(name: str) -> tuple[Any, list[np.ndarray]]:
    if name == "linear":
        return linear(("m",), 50, 70), [normal(70, 50), normal(50, 70)]
    if name == "layer_norm":
        return layer_norm(("m",), 300, eps=1e-5), [normal(3, 300), normal(300), normal(300)]
    if name == "softmax":
        return softmax(("m",), 300), [normal(3, 300)]
    shape = AttentionShape(1, 1, 12, 12, 12, 12, 12)
    q, k, v = normal(1, 70, 12), normal(1, 90, 12, seed=2), normal(1, 90, 12, seed=3)
    return attention(shape, MaskPlan((Causal(20),)), scale=0.3), [q, k, v]


def without(nth: int) -> Callable[[str], str]:
    """An edit that takes the nth barrier away."""

    def edit(source: str) -> str:
        before, after = source.split(BARRIER)[: nth + 1], source.split(BARRIER)[nth + 1 :]
        return BARRIER.join(before) + BARRIER.join(after)

    return edit


def gives(run: CudaOnCpu, name: str, inputs: list[np.ndarray], want: np.ndarray) -> bool:
    """Whether the kernel gives this result, whatever the order of threads."""
    try:
        (got,) = run(name, *inputs)
    except AssertionError as error:
        if "depends on the order of threads" in str(error):
            return False
        raise
    return np.array_equal(got, want)


@pytest.mark.parametrize("name", ["linear", "layer_norm", "softmax", "attention"])
def test_every_barrier_is_needed_and_its_loss_is_seen(name: str, tmp_path: Path) -> None:
    function, inputs = kernel_and_inputs(name)
    right = CudaOnCpu({name: function}, tmp_path)
    (want,) = right(name, *inputs)
    count = right.source.count(BARRIER)
    assert count >= 2
    assert gives(right, name, inputs, want)
    for nth in range(count):
        broken = CudaOnCpu({name: function}, tmp_path, without(nth))
        assert broken.source.count(BARRIER) == count - 1
        assert not gives(broken, name, inputs, want), f"barrier {nth} makes no difference"


def test_a_write_outside_of_an_array_is_seen(tmp_path: Path) -> None:
    function, inputs = kernel_and_inputs("softmax")
    run = CudaOnCpu({"softmax": function}, tmp_path, lambda s: re.sub(r"\bout\[", "out[1 + ", s))
    with pytest.raises(AssertionError, match="wrote outside"):
        run("softmax", *inputs)


def test_a_read_outside_of_an_array_is_seen(tmp_path: Path) -> None:
    function, inputs = kernel_and_inputs("softmax")
    run = CudaOnCpu({"softmax": function}, tmp_path, lambda s: re.sub(r"\bx\[", "x[1 + ", s))
    (got,) = run("softmax", *inputs)
    assert np.isnan(got[-1]).any()


def test_a_barrier_that_some_threads_miss_is_seen(tmp_path: Path) -> None:
    function, inputs = kernel_and_inputs("softmax")
    some = f"if (threadIdx.x != 5) {BARRIER}"
    run = CudaOnCpu({"softmax": function}, tmp_path, lambda s: s.replace(BARRIER, some, 1))
    with pytest.raises(AssertionError, match="wait at a barrier"):
        run("softmax", *inputs)
