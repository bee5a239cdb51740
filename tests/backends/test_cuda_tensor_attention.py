"""Attention on tensor cores against the formula in float64: the emitted source runs on the CPU."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_emulator.launch import KernelFault
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.attention_cases import (
    CASES,
    PAST,
    SCALE,
    Case,
    allowed_and_bias,
    inputs_of,
    masked,
)
from helpers.tensor_attention import DTYPES, TensorAttention, bounded_reference
from helpers.tolerance import assert_close, assert_within

from tfgraph.backends.tvm.attention_mask import Alibi, Causal, Dense, Segments, Window
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.attention_mask import KeyMask
from tfgraph.backends.tvm.cuda.kernels import SHARED_BYTES
from tfgraph.backends.tvm.cuda.tensor_attention import attention
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from pathlib import Path

# Many queries: tiles of 128 rows by 64 keys; heads of 65 to 128 with two masks and biases at most,
# by 32. Few: at most 64 rows before 256 keys or more; a block takes 128 of the keys, a warp 16 of
# each 64.
MANY = {
    **CASES,
    "width_40": Case(width=40, value_width=40, sizes=((1, 70, 70),)),
    "width_72": Case(width=72, value_width=72, heads=3, kv_heads=3, sizes=((2, 20, 40),)),
    "width_80_values_96": Case(width=80, value_width=96, sizes=((1, 33, 50),)),
    "all": Case(
        MaskPlan((Causal("past"), KeyMask(), Segments()), (Alibi("past"),)),
        ((2, 130, 130 + PAST),),
        softcap=3.0,
        width=96,
        value_width=32,
        heads=4,
        kv_heads=2,
    ),
}
Kernels = Callable[[str, bool], TensorAttention]
FAR = ((1, 5, 300), (2, 1, 257))
FEW = {
    "plain": Case(sizes=((1, 1, 256), (2, 3, 300), (1, 32, 290))),
    "group_of_8": Case(heads=16, kv_heads=2, width=40, value_width=24, sizes=((1, 3, 270),)),
    "width_20_values_33": Case(width=20, value_width=33, sizes=FAR),
    "width_128": Case(width=128, value_width=128, sizes=FAR),
    "width_256": Case(width=256, value_width=256, sizes=FAR),
    "softcap": Case(softcap=2.0, sizes=FAR),
    "causal": masked(Causal(254), sizes=FAR),
    "causal_before": masked(Causal(-2), sizes=FAR),
    "window": masked(Window(100, 2, 260), sizes=FAR),
    "key_mask": masked(KeyMask(), sizes=FAR),
    "segments": masked(Segments(), sizes=FAR),
    "dense_and_alibi": Case(MaskPlan((Dense(),), (Alibi("past"),)), FAR),
}
IN_BFLOAT16 = ("plain", "width_128", "softcap", "causal", "window", "key_mask", "all")
"""What differs between the two is the instruction, the packing, and the test for NaN."""


def cases(dtype: str, *, few: bool) -> dict[str, Case]:
    found = FEW if few else MANY
    return {n: c for n, c in found.items() if dtype == "float16" or n in IN_BFLOAT16}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The kernels of a dtype, built when a test asks for them."""
    built: dict[tuple[str, bool], TensorAttention] = {}

    def get(dtype: str, few: bool) -> TensorAttention:
        if (dtype, few) not in built:
            folder = tmp_path_factory.mktemp("cuda")
            built[dtype, few] = TensorAttention(cases(dtype, few=few), dtype, folder)
        return built[dtype, few]

    return get


def narrow(
    case: Case, sizes: tuple[int, int, int], dtype: str, seed: int = 3
) -> tuple[list[Any], list[Any]]:
    """q, k, v in that dtype and the arrays of the plan, then its scalars."""
    tensors, arrays, scalars = inputs_of(case, sizes, np.random.default_rng(seed))
    return [x.astype(DTYPES[dtype]) for x in tensors], [*arrays, *scalars]


ALL = [
    pytest.param(dtype, few, name, id=f"{dtype}-{'few' if few else 'many'}-{name}")
    for dtype in DTYPES
    for few in (False, True)
    for name in cases(dtype, few=few)
]


@pytest.mark.parametrize(("dtype", "few", "name"), ALL)
def test_attention(kernels: Kernels, dtype: str, few: bool, name: str) -> None:
    case, run = cases(dtype, few=few)[name], kernels(dtype, few)
    for sizes in case.sizes:
        tensors, rest = narrow(case, sizes, dtype)
        (got,) = run(name, *tensors, *rest)
        assert run.split == few
        want, bound = bounded_reference(case, *tensors, rest)
        assert_within(got, want, bound, str(sizes))
        assert not got[~want.any(-1)].any(), "a row that may attend to nothing is zeros"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("dtype", "few", "name"),
    [p for p in ALL if cases(p.values[0], few=p.values[1])[p.values[2]].plan.masks],
)
def test_masked_slots_change_no_bit(
    kernels: Kernels, dtype: str, few: bool, name: str, bad: float
) -> None:
    """A value that is NaN or infinite shows in its own column of those rows alone that may attend
    to its key; so does a key, in all columns."""
    case, run = cases(dtype, few=few)[name], kernels(dtype, few)
    sizes = max(case.sizes, key=math.prod)
    (q, k, v), rest = narrow(case, sizes, dtype, seed=4)
    (clean,) = run(name, q, k, v, *rest)
    batch, queries, keys = sizes
    column, hidden = min(3, case.value_width - 1), 0
    seen = [set(allowed_and_bias(case, rest, 0, 0, i, keys)[0]) for i in range(queries)]
    mixed = sorted(set.union(*seen) - set.intersection(*seen))  # in tiles that mask pairs singly
    for broken in {0, 4, keys // 2, keys - 2, *mixed[:1], *mixed[-1:]}:
        bad_k, bad_v = k.copy(), v.copy()
        bad_k[:, broken] = bad
        bad_v[:, broken, column] = bad
        (of_keys,) = run(name, q, bad_k, v, *rest)
        (of_values,) = run(name, q, k, bad_v, *rest)
        for b, i, h in np.ndindex(batch, queries, case.heads):
            allowed, _ = allowed_and_bias(case, rest, b, h, i, keys)
            row = (b, i, slice(h * case.value_width, (h + 1) * case.value_width))
            spoilt = np.zeros(case.value_width, bool)
            if broken not in allowed:
                hidden += 1
                assert of_keys[row].tobytes() == clean[row].tobytes()
            elif np.isnan(bad):
                assert np.isnan(of_keys[row].astype(np.float64)).all()
            if broken in allowed and h < case.heads // case.kv_heads:
                spoilt[column] = True  # a column of the first key/value head
            shown = of_values[row][spoilt].astype(np.float64)
            assert (np.isnan(shown) | (shown == bad)).all()  # NaN where a weight rounds to 0
            assert of_values[row][~spoilt].tobytes() == clean[row][~spoilt].tobytes()
    assert hidden > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_merged_projection(dtype: str, tmp_path: Path) -> None:
    """q, k and v as slices of one tensor, whose heads start anywhere, and one symbol for both."""
    shape = AttentionShape(4, 2, 8, 8, 70, 70, 70, 20, 53, 2, dtype)
    function = attention(shape, shared_bytes=SHARED_BYTES, scale=SCALE, queries="n", keys="n")
    merged = np.random.default_rng(5).standard_normal((2, 37, 70)).astype(DTYPES[dtype])
    (got,) = CudaOnCpu({"merged": function}, tmp_path)("merged", merged, merged, merged)
    parts = merged[..., 20:52], merged[..., 53:69], merged[..., 2:18]
    assert_within(got, *bounded_reference(Case(heads=4, kv_heads=2), *parts, []))


@pytest.mark.parametrize("few", [False, True])
def test_large_scores_do_not_overflow(kernels: Kernels, few: bool) -> None:
    case, run = cases("float16", few=few)["plain"], kernels("float16", few)
    tensors, _ = narrow(case, case.sizes[-1], "float16", seed=6)
    tensors[0] *= np.float16(1000)
    (got,) = run("plain", *tensors)
    assert_within(got, *bounded_reference(case, *tensors, []))


def test_a_bias_may_be_as_large_as_floats_go(kernels: Kernels) -> None:
    case, run = CASES["bias"], kernels("float16", False)
    tensors, (bias,) = narrow(case, (2, 10, 70), "float16", seed=8)
    for value in (np.finfo(np.float32).min, 2.5e38, -np.inf):
        bias[:] = 0
        bias[0, 1, 3:6, 5:] = value  # some keys of these queries
        bias[0, 0, 7:9] = value  # all keys of these: no score is left beside a finite one
        (got,) = run("bias", *tensors, bias)
        with np.errstate(invalid="ignore"):  # -inf - -inf, in rows that are set below
            want, _ = bounded_reference(case, *tensors, [bias])
        want = want.reshape(2, 10, 2, -1)
        values = tensors[2].reshape(2, 70, 1, -1).astype(np.float64).mean(1, keepdims=True)
        want[:, 7:9, :1] = values if np.isfinite(value) else 0
        assert_close(got, want.reshape(got.shape), length=4, scale=1.0, name=str(value))


@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        # Tiles are 128 rows by 64 keys, two rows a query: 130 queries are 3 tiles, 150 keys 3.
        ("plain", 3 * 3),
        ("causal", 1 + 2 + 3),  # queries ..63 see keys ..63, ..127 see ..127, ..129 see ..129
        ("window", 2 + 3 + 2),  # 20 to the left, 7 to the right: keys ..70, 44..134, 108..136
        ("window_past_the_end", 2 + 1 + 0),  # keys 83..150, 147..149, none
    ],
)
def test_key_tiles_that_are_masked_wholly_are_skipped(
    kernels: Kernels, name: str, tiles: int
) -> None:
    tensors, _ = narrow(CASES[name], (1, 130, 150), "float16", seed=7)
    run = kernels("float16", False)
    run(name, *tensors)
    assert run.barriers == 2 * tiles  # two barriers a tile


SYNCHRONISATION = re.compile(r"(?:__syncthreads|cp_async_wait<0>|cp_async_commit)\(\);")


@pytest.mark.parametrize("few", [False, True])
def test_every_barrier_and_wait_is_needed_and_its_loss_is_seen(few: bool, tmp_path: Path) -> None:
    case = masked(KeyMask(), Causal("past"), sizes=((1, 4, 600),) if few else ((1, 70, 150),))
    tensors, rest = narrow(case, case.sizes[0], "float16")
    rest[-1] = case.sizes[0][2] - 4
    run = TensorAttention({"attention": case}, "float16", tmp_path)
    head, split, combine, many = run.source.split('extern "C"')
    own = 'extern "C"'.join([head, split, combine] if few else [head, many])
    run("attention", *tensors, *rest)
    assert run.split == few
    found = SYNCHRONISATION.findall(own)
    assert len(found) == (9 if few else 8)  # three barriers, one more to combine; two waits
    for broken in run.without_each(SYNCHRONISATION, own):
        with pytest.raises(KernelFault):
            broken("attention", *tensors, *rest)


def test_a_head_that_is_too_wide_is_refused() -> None:
    for shape, message in (
        (AttentionShape(1, 1, 257, 8, 257, 257, 8), "256 wide"),
        (AttentionShape(3, 2, 8, 8, 24, 16, 16), "multiple"),
    ):
        with pytest.raises(TfgraphError, match=message):
            attention(shape, shared_bytes=SHARED_BYTES, scale=1.0)
