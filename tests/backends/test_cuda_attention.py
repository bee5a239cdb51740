"""Flash attention for CUDA against the formula in float64: the emitted source runs on the CPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.attention_cases import (
    CASES,
    PAIRS,
    SCALE,
    Case,
    allowed_and_bias,
    inputs_of,
    reference,
)
from helpers.tolerance import assert_close, assert_within, relative

from tfgraph.backends.tvm.cuda.arch import parse_arch
from tfgraph.backends.tvm.cuda.attention import attention
from tfgraph.backends.tvm.cuda.emit import emit_kernels
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from pathlib import Path


def kernel_of(case: Case) -> Any:
    return attention(case.shape, case.plan, scale=SCALE, softcap=case.softcap)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> CudaOnCpu:
    functions = {name: kernel_of(case) for name, case in CASES.items()}
    return CudaOnCpu(functions, tmp_path_factory.mktemp("cuda"))


@pytest.mark.parametrize("name", CASES)
def test_attention(kernels: CudaOnCpu, name: str) -> None:
    check(kernels, name, CASES[name])


@pytest.mark.long
def test_every_two_masks_at_every_size(tmp_path: Path) -> None:
    kernels = CudaOnCpu({name: kernel_of(case) for name, case in PAIRS.items()}, tmp_path)
    for name, case in PAIRS.items():
        check(kernels, name, case)


def check(kernels: CudaOnCpu, name: str, case: Case) -> None:
    """The kernel of that name against the reference, at all sizes of the case."""
    rng = np.random.default_rng(3)
    for sizes in case.sizes:
        tensors, arrays, scalars = inputs_of(case, sizes, rng)
        (got,) = kernels(name, *tensors, *arrays, *scalars)
        want = reference(case, *tensors, arrays)
        # Scores are of size 0.3 sqrt(width), and their rounding errors are relative to that; in a
        # weight, exp of a score, they are relative to 1. The other errors are those of the sums.
        share = (1 + 0.3 * case.width**0.5) * relative("float32", case.width + sizes[2])
        assert_within(got, want, share * np.sqrt(np.mean(want[np.isfinite(want)] ** 2)), str(sizes))
        empty = ~want.any(-1)
        assert not got[empty].any(), "a row that may attend to nothing is zeros"


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["nan", "inf"])
@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if case.plan.masks and "dense_of" not in n]
)
def test_masked_slots_change_no_bit(kernels: CudaOnCpu, name: str, bad: float) -> None:
    """A key whose key and value are NaN or inf is seen by those only that may attend to it."""
    case, rng = CASES[name], np.random.default_rng(4)
    (q, k, v), arrays, scalars = inputs_of(case, case.sizes[-1], rng)
    (clean,) = kernels(name, q, k, v, *arrays, *scalars)
    batch, queries, keys = case.sizes[-1]
    untouched = 0
    for broken in ([0, 1], [keys - 2, keys - 1], *([[31]] if name == "prefix" else [])):
        broken_k, broken_v = k.copy(), v.copy()
        broken_k[:, broken], broken_v[:, broken] = bad, bad
        (got,) = kernels(name, q, broken_k, broken_v, *arrays, *scalars)
        for b, i, h in np.ndindex(batch, queries, case.heads):
            seen, _ = allowed_and_bias(case, arrays, b, h, i, keys)
            columns = slice(h * case.value_width, (h + 1) * case.value_width)
            if np.isin(broken, seen).any():
                assert not np.isfinite(got[b, i, columns]).any(), "a broken value was hidden"
            else:
                untouched += 1
                assert got[b, i, columns].tobytes() == clean[b, i, columns].tobytes()
    assert untouched > 0


def test_a_merged_projection(tmp_path: Path) -> None:
    """q, k and v as slices of one tensor, in any order, and one symbol for both lengths."""
    shape = AttentionShape(4, 2, 8, 8, 70, 70, 70, q_offset=20, k_offset=53, v_offset=2)
    run = CudaOnCpu({"merged": attention(shape, scale=0.3, queries="n", keys="n")}, tmp_path)
    merged = np.random.default_rng(5).standard_normal((2, 37, 70)).astype(np.float32)
    (got,) = run("merged", merged, merged, merged)
    case = Case(heads=4, kv_heads=2)
    want = reference(case, merged[..., 20:52], merged[..., 53:69], merged[..., 2:18], [])
    assert_close(got, want, length=8 + 37)


def test_large_scores_do_not_overflow(kernels: CudaOnCpu) -> None:
    rng = np.random.default_rng(6)
    tensors, arrays, _ = inputs_of(CASES["plain"], (1, 5, 40), rng)
    tensors[0] *= 1000
    (got,) = kernels("plain", *tensors)
    want = reference(CASES["plain"], *tensors, arrays)
    # Scores reach 4,000; what rounds them is a relative error of the weights.
    assert_within(got, want, 4000 * relative("float32", 8))
    assert np.isfinite(got).all()


def test_a_bias_may_be_as_large_as_floats_go(kernels: CudaOnCpu) -> None:
    case, rng = CASES["bias"], np.random.default_rng(8)
    tensors, (bias,), _ = inputs_of(case, (2, 10, 70), rng)
    for value in (np.finfo(np.float32).min, 2.5e38, -np.inf):
        bias[:] = 0
        bias[0, 1, 3:6, 5:] = value  # some keys of these queries
        bias[0, 0, 7:9] = value  # all keys of these: no score is left beside a finite one
        (got,) = kernels("bias", *tensors, bias)
        with np.errstate(invalid="ignore"):  # -inf - -inf, in rows that are set below
            want = reference(case, *tensors, [bias]).reshape(2, 10, 2, -1)
        values = tensors[2].reshape(2, 70, 1, -1).mean(1, keepdims=True)
        want[:, 7:9, :1] = values if np.isfinite(value) else 0
        assert_close(got, want.reshape(got.shape), length=8 + 70, scale=1.0, name=str(value))


def test_no_array_grows_with_the_square_of_the_length(kernels: CudaOnCpu) -> None:
    """One kernel, whose only memory is that of its arguments and of its tiles, of known size."""
    for name, case in CASES.items():
        kernel = kernels.kernels[f"{name}_kernel"]
        tensors = [p for p, kind in kernel.parameters if kind.endswith("*")]
        assert len(tensors) == 4 + len(case.plan.parameters)
        assert kernel.dynamic_shared_bytes == 0
        assert kernel.static_shared_bytes <= 48 * 1024
        assert kernel.block == (256, 1, 1)
    assert len(kernels.kernels) == len(CASES)
    sizes = re.findall(r"^ *(?:__shared__ )?\w+ \w+\[(.*?)\];", kernels.source, re.M)
    assert sizes
    assert all(size.isdigit() for size in sizes)
    assert "malloc" not in kernels.source


@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        # Tiles are 64 queries by 32 keys; 130 queries are 3 tiles of rows, 150 keys 5 of columns.
        ("plain", 3 * 5),
        ("causal", 2 + 4 + 5),  # rows ..63 see keys ..63, ..127 see ..127, ..129 see ..129
        ("window", 3 + 4 + 2),  # 20 to the left, 7 to the right: keys ..70, 44..134, 108..136
        ("window_past_the_end", 3 + 1 + 0),  # keys 83..150, 147..149, none
    ],
)
def test_key_tiles_that_are_masked_wholly_are_skipped(
    kernels: CudaOnCpu, name: str, tiles: int
) -> None:
    tensors, _, _ = inputs_of(CASES[name], (1, 130, 150), np.random.default_rng(7))
    kernels(name, *tensors)
    assert kernels.barriers == 4 * tiles * CASES[name].heads  # four barriers a tile


def test_a_head_that_is_too_wide_is_refused() -> None:
    with pytest.raises(TfgraphError, match="256 wide"):
        attention(AttentionShape(1, 1, 257, 8, 257, 257, 8), scale=1.0)
    with pytest.raises(TfgraphError, match="multiple"):
        attention(AttentionShape(3, 2, 8, 8, 24, 16, 16), scale=1.0)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_the_same_kernel_on_every_architecture(arch: str) -> None:
    source, kernels = emit_kernels({"attention": kernel_of(CASES["causal"])}, parse_arch(arch))
    assert arch in source.splitlines()[0]
    assert kernels[0].name == "attention_kernel"
