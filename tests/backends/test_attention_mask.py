"""A mask that is described once works in the kernels of both targets; an unknown one is refused.

Attention with a sink (Xiao et al., arXiv 2309.17453): the first keys, and those of a window. It has
both parts of a `Positional` mask, and a lower bound behind which keys are still seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.kernels import compile_kernels
from helpers.tolerance import assert_close

from tfgraph.backends.tvm.attention_mask import Bias, Mask, Operands, Parameter, Positional
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cpu.attention import attention as cpu_attention
from tfgraph.backends.tvm.cuda.attention import attention as cuda_attention
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from pathlib import Path

    NDArray = np.ndarray[Any, Any]
    Run = Callable[..., NDArray]

WIDTH, HEADS, SCALE = 16, 2, 0.3
SHAPE = AttentionShape(HEADS, HEADS, WIDTH, WIDTH, *[HEADS * WIDTH] * 3)


@dataclass(frozen=True)
class Sink(Positional):
    """j < sinks[batch], or i - left <= j <= i + right; an open side if None."""

    left: int | None
    right: int | None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("sinks", ("batch",), "int64"),)

    def length(self, batch: Any, operands: Operands) -> Any:
        return operands.buffers[0][batch]

    def band(self, operands: Operands) -> tuple[int | None, int | None]:
        return None if self.left is None else -self.left, self.right


MASKS = {"both": Sink(20, 3), "left": Sink(20, None), "right": Sink(None, 3)}


def kernel(target: str, plan: MaskPlan) -> Any:
    if target == "cpu":
        return cpu_attention("attention", SHAPE, plan, cpu_machine(), scale=SCALE)
    return cuda_attention(SHAPE, plan, scale=SCALE)


def run(target: str, mask: Mask, arguments: list[NDArray], directory: Path) -> NDArray:
    functions = {"attention": kernel(target, MaskPlan((mask,)))}
    if target == "cuda":
        return CudaOnCpu(functions, directory)("attention", *arguments)[0]
    with compile_kernels(functions, threads=2) as program:
        return program.call("attention", arguments)[0]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", MASKS)
def test_a_new_mask_by_position_needs_no_emitter(target: str, name: str, tmp_path: Path) -> None:
    mask, queries, keys = MASKS[name], 150, 170
    random = np.random.default_rng(1)
    q, k, v = (
        random.standard_normal((2, n, HEADS * WIDTH)).astype(np.float32)
        for n in (queries, keys, keys)
    )
    sinks = np.array([3, 70])
    i, j = np.arange(queries)[:, None], np.arange(keys)
    seen = np.ones((2, queries, keys), bool)
    seen &= True if mask.left is None else j >= i - mask.left
    seen &= True if mask.right is None else j <= i + mask.right
    seen |= j < sinks[:, None, None]

    out = run(target, mask, [q, k, v, sinks], tmp_path)
    want = reference(q, k, v, seen)
    assert_close(out, want, length=keys, scale=float(np.abs(want).max()))

    k[:, 40] = v[:, 40] = np.nan
    poisoned = run(target, mask, [q, k, v, sinks], tmp_path)
    sees = seen[:, :, 40]
    assert np.isnan(poisoned[sees]).all()
    assert poisoned[~sees].size
    assert poisoned[~sees].tobytes() == out[~sees].tobytes()


def reference(q: NDArray, k: NDArray, v: NDArray, seen: NDArray) -> NDArray:
    """The formula in float64, query by query, over the keys that it sees."""
    q, k, v = (x.astype(np.float64).reshape(*x.shape[:2], HEADS, WIDTH) for x in (q, k, v))
    out = np.zeros_like(q)
    for b, i, h in np.ndindex(q.shape[:3]):
        keys = np.flatnonzero(seen[b, i])
        scores = SCALE * (k[b, keys, h] @ q[b, i, h])
        weights = np.exp(scores - scores.max())
        out[b, i, h] = weights @ v[b, keys, h] / weights.sum()
    return out.reshape(*out.shape[:2], -1)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", ["mask", "bias"])
def test_a_term_without_an_emitter_is_refused_by_name(target: str, kind: str) -> None:
    class Unknown(Mask if kind == "mask" else Bias):  # type: ignore[misc]
        def __str__(self) -> str:
            return "Unknown()"

    plan = MaskPlan((Unknown(),)) if kind == "mask" else MaskPlan((), (Unknown(),))
    message = rf"the {target.upper()} attention kernel does not know the {kind} Unknown\(\)"
    with pytest.raises(TfgraphError, match=message):
        kernel(target, plan)
