"""Flash attention for CUDA against the formula in float64: the emitted source runs on the CPU.

The reference goes query by query over the list of keys that the masks allow, so that what stands in
a masked slot cannot take part in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.tolerance import assert_close, assert_within, relative

from tfgraph.backends.tvm.attention_mask import (
    Alibi,
    ByDistance,
    Causal,
    Dense,
    DenseBias,
    Padding,
    Prefix,
    Segments,
    Window,
)
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.arch import parse_arch
from tfgraph.backends.tvm.cuda.attention import attention
from tfgraph.backends.tvm.cuda.attention_mask import KeyMask
from tfgraph.backends.tvm.cuda.emit import emit_kernels
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from pathlib import Path

PAST = 9


@dataclass(frozen=True)
class Case:
    """A kernel and the sizes it is tried at: (batch, queries, keys)."""

    plan: MaskPlan = MaskPlan()
    sizes: tuple[tuple[int, int, int], ...] = ((2, 70, 90),)
    heads: int = 2
    kv_heads: int = 1
    width: int = 8
    value_width: int = 8
    softcap: float | None = None

    @property
    def shape(self) -> AttentionShape:
        return AttentionShape(
            self.heads,
            self.kv_heads,
            self.width,
            self.value_width,
            self.heads * self.width,
            self.kv_heads * self.width,
            self.kv_heads * self.value_width,
        )

    def kernel(self) -> Any:
        return attention(self.shape, self.plan, scale=0.3, softcap=self.softcap)


def masked(*masks: Any, **options: Any) -> Case:
    return Case(MaskPlan(masks), **options)


LENGTHS = ((1, 1, 1), (2, 3, 32), (1, 64, 33), (2, 65, 31), (1, 130, 100))
PREFIXES = (30, 31, 32, 33)  # around the end of the first tile of 32 keys
CASES = {
    "plain": Case(sizes=LENGTHS),
    "heads_6_over_2": Case(heads=6, kv_heads=2, sizes=((2, 5, 40),)),
    "width_64": Case(width=64, value_width=64, sizes=((1, 65, 70),)),
    "width_20_values_33": Case(width=20, value_width=33),
    "width_33_values_20": Case(width=33, value_width=20),
    "width_128": Case(width=128, value_width=128, sizes=((1, 35, 50),)),
    "width_256": Case(width=256, value_width=256, sizes=((1, 18, 33),)),
    "softcap": Case(softcap=2.0),
    "causal": masked(Causal(), sizes=((2, 90, 90), (1, 40, 70))),
    "causal_past": masked(Causal("past"), sizes=((1, 1, PAST + 1), (2, 70, 70 + PAST))),
    "causal_before": masked(Causal(-5)),  # the first five queries see nothing
    "window": masked(Window(20, 7), sizes=((2, 150, 150),)),
    "window_left": masked(Window(3, None, PAST)),
    "window_right": masked(Window(None, 0, 40)),
    "window_past_the_end": masked(Window(2, 2, 85)),
    "causal_and_window": masked(Causal("past"), Window(11, None, "past"), sizes=((2, 140, 149),)),
    "prefix": masked(Prefix(), sizes=((2, 90, 90), (len(PREFIXES), 40, 40))),
    "lengths": masked(Padding("int32")),
    "key_mask": masked(KeyMask()),
    "key_mask_bool": masked(KeyMask("bool"), Causal(20)),
    "segments": masked(Segments()),
    "segments_of_two_types": masked(Segments("int64", "int32")),
    "dense": masked(Dense()),
    "dense_of_keys": masked(Dense(per_head=False, per_query=False, dtype="int32"), KeyMask()),
    "bias": Case(MaskPlan((), (DenseBias(per_batch=False),))),
    "by_distance": Case(MaskPlan((Causal(20),), (ByDistance(),)), sizes=((1, 1, 1), (2, 70, 90))),
    "alibi": Case(MaskPlan((Causal(PAST),), (Alibi(PAST), DenseBias(per_head=False)))),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> CudaOnCpu:
    functions = {name: case.kernel() for name, case in CASES.items()}
    return CudaOnCpu(functions, tmp_path_factory.mktemp("cuda"))


def arrays_of(case: Case, sizes: dict[str, int], rng: np.random.Generator) -> list[np.ndarray]:
    """The arrays of the plan: what is not all or nothing."""
    arrays = []
    for parameter in case.plan.parameters:
        shape = [sizes[s] if isinstance(s, str) else s for s in parameter.shape]
        if parameter.name == "prefix" and shape == [len(PREFIXES)]:
            values = np.array(PREFIXES)
        elif parameter.name in ("lengths", "prefix"):
            values = rng.integers(0, sizes["keys"], shape)
        elif parameter.name.endswith("segments"):
            values = rng.integers(0, 3, shape)
        elif parameter.dtype == "float32":
            values = rng.standard_normal(shape)
        else:
            values = rng.random(shape) < 0.6
            if parameter.name == "keep" and sizes["batch"] > 1:
                values[-1] = False  # nobody in this batch entry sees anything
        arrays.append(values.astype(parameter.dtype))
    return arrays


def allowed_and_bias(
    case: Case, arrays: list[np.ndarray], b: int, h: int, i: int, keys: int
) -> tuple[np.ndarray, np.ndarray]:
    """For one query: the positions of the keys it may attend to, and the bias of every key."""
    j = np.arange(keys)
    allowed, bias = np.ones(keys, bool), np.zeros(keys)
    arrays = list(arrays)
    for term in case.plan.terms:
        own = [arrays.pop(0) for _ in term.parameters]
        offset = getattr(term, "offset", 0)
        position = i + (PAST if offset == "past" else offset)
        if isinstance(term, Causal):
            allowed &= j <= position
        elif isinstance(term, Window):
            allowed &= j >= position - (10**9 if term.left is None else term.left)
            allowed &= j <= position + (10**9 if term.right is None else term.right)
        elif isinstance(term, Prefix):
            allowed &= (j < own[0][b]) | (j <= position)
        elif isinstance(term, Padding):
            allowed &= j < own[0][b]
        elif isinstance(term, KeyMask):
            allowed &= own[0][b] != 0
        elif isinstance(term, Segments):
            allowed &= own[0][b, i] == own[1][b]
        elif isinstance(term, ByDistance):
            bias += own[0][h, j - i + own[0].shape[1] - keys]
        elif isinstance(term, Alibi):
            bias += own[0][h] * (j - position)
        else:
            at = [0 if size == 1 else n for size, n in zip(own[0].shape, (b, h, i), strict=False)]
            if isinstance(term, Dense):
                allowed &= own[0][tuple(at)] != 0
            else:
                bias += own[0][tuple(at)]
    return np.flatnonzero(allowed), bias


def reference(
    case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, arrays: list[np.ndarray]
) -> np.ndarray:
    (batch, queries, _), keys = q.shape, k.shape[1]
    q = q.reshape(batch, queries, case.heads, case.width).astype(np.float64)
    k = k.reshape(batch, keys, case.kv_heads, case.width).astype(np.float64)
    v = v.reshape(batch, keys, case.kv_heads, case.value_width).astype(np.float64)
    out = np.zeros((batch, queries, case.heads, case.value_width))
    for b, i, h in np.ndindex(batch, queries, case.heads):
        group = h // (case.heads // case.kv_heads)
        seen, bias = allowed_and_bias(case, arrays, b, h, i, keys)
        if seen.size == 0:
            continue
        scores = 0.3 * (k[b, seen, group] @ q[b, i, h])
        if case.softcap is not None:
            scores = case.softcap * np.tanh(scores / case.softcap)
        scores = scores + bias[seen]
        weights = np.exp(scores - scores.max())
        out[b, i, h] = weights @ v[b, seen, group] / weights.sum()
    return out.reshape(batch, queries, -1)


def inputs_of(
    case: Case, sizes: tuple[int, int, int], rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
    """q, k, v; the plan's arrays; its scalars."""
    batch, queries, keys = sizes
    named = {"batch": batch, "heads": case.heads, "queries": queries, "keys": keys}
    named["distances"] = queries + keys - 1
    lengths = {"q_pitch": queries, "k_pitch": keys, "v_pitch": keys}
    tensors = [
        rng.standard_normal((batch, n, getattr(case.shape, pitch))).astype(np.float32)
        for pitch, n in lengths.items()
    ]
    return tensors, arrays_of(case, named, rng), [PAST] * len(case.plan.scalars)


@pytest.mark.parametrize("name", CASES)
def test_attention(kernels: CudaOnCpu, name: str) -> None:
    check(kernels, name, CASES[name])


KINDS = {
    "causal": Causal("past"),
    "window": Window(7, 3, "past"),
    "left": Window(5, None, "past"),
    "prefix": Prefix("past"),
    "lengths": Padding("int64"),
    "keys": KeyMask(),
    "segments": Segments(),
    "dense": Dense(),
}
BEHIND_PAST = tuple((1 + (n < 8), n, n + PAST) for n in (1, 2, 3, 7, 63, 64, 65, 129))
PAIRS = {
    f"{a}_{b}": masked(KINDS[a], KINDS[b], sizes=BEHIND_PAST) for a, b in combinations(KINDS, 2)
}


@pytest.mark.long
def test_every_two_masks_at_every_size(tmp_path: Path) -> None:
    kernels = CudaOnCpu({name: case.kernel() for name, case in PAIRS.items()}, tmp_path)
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
    source, kernels = emit_kernels({"attention": CASES["causal"].kernel()}, parse_arch(arch))
    assert arch in source.splitlines()[0]
    assert kernels[0].name == "attention_kernel"
