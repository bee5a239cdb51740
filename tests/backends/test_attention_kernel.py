"""The CPU attention kernel against the formula in float64, written row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.kernels import compile_kernels
from helpers.tolerance import assert_close

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
from tfgraph.backends.tvm.cpu.attention import attention, compact_keys
from tfgraph.backends.tvm.cpu.attention_mask import KeyList
from tfgraph.backends.tvm.kernels import AttentionShape
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.runtime.jit import Program

LENGTH = 256  # scores are sums of up to 256 products; values are of size 1
SIZES = [(1, 1), (1, 129), (2, 3), (3, 2), (7, 31), (9, 40), (31, 33), (32, 64), (33, 63), (64, 65)]
SIZES += [(129, 129), (65, 7), (1, 300), (70, 200)]


@dataclass(frozen=True)
class Case:
    """A kernel to compile: its widths, mask and score."""

    plan: MaskPlan
    heads: int = 2
    kv_heads: int = 2
    width: int = 16
    value_width: int = 16
    softcap: float | None = None
    scale: float = 0.3

    @property
    def shape(self) -> AttentionShape:
        q, k, v = (
            self.heads * self.width,
            self.kv_heads * self.width,
            self.kv_heads * self.value_width,
        )
        return AttentionShape(self.heads, self.kv_heads, self.width, self.value_width, q, k, v)


CASES = {
    "plain": Case(MaskPlan(), width=64, value_width=64),
    "grouped": Case(MaskPlan((Causal("past"),)), heads=6, kv_heads=2, width=20, value_width=20),
    "one_number": Case(MaskPlan(), width=1, value_width=7, kv_heads=1),
    "widest": Case(
        MaskPlan((Padding(), Padding("int32"))), heads=1, kv_heads=1, width=256, value_width=131
    ),
    "causal": Case(MaskPlan((Causal(),)), width=8, value_width=8),
    "window": Case(MaskPlan((Window(5, 2),))),
    "left_window": Case(MaskPlan((Window(9, None, "past"), Causal("past")))),
    "padding": Case(MaskPlan((Padding("int32"),)), width=80, value_width=80),
    "keys": Case(MaskPlan((KeyList(),))),
    "keys_causal": Case(MaskPlan((KeyList(), Causal("past")))),
    "padding_causal_window": Case(MaskPlan((Padding(), Causal(2), Window(40, None, 2)))),
    "prefix": Case(MaskPlan((Prefix(0),))),
    "segments": Case(MaskPlan((Segments(), Causal(-3)))),
    "dense": Case(MaskPlan((Dense(),))),
    "dense_shared": Case(MaskPlan((Dense(False, True, False, "int32"), Dense(True, False, True)))),
    "everything": Case(
        MaskPlan(
            (
                KeyList(),
                Padding(),
                Segments("int32", "int64"),
                Window(50, 20),
                Dense(per_head=False),
            ),
            (Alibi("past"), DenseBias(per_batch=False)),
        ),
        heads=4,
        softcap=2.0,
    ),
    "alibi": Case(MaskPlan((Causal(),), (Alibi(),)), heads=6, kv_heads=1),
    "by_distance": Case(MaskPlan((Causal("past"),), (ByDistance(),)), heads=6, kv_heads=2),
    "bias": Case(MaskPlan((), (DenseBias(False, True, False), DenseBias())), heads=4, kv_heads=1),
}


@pytest.fixture(scope="module")
def kernels() -> Iterator[Program]:
    """All cases in one program, and the kernel that lists keys."""
    machine = cpu_machine()
    functions = {
        name: attention(
            name, case.shape, case.plan, machine, scale=case.scale, softcap=case.softcap
        )
        for name, case in CASES.items()
    }
    with compile_kernels(functions, threads=2) as program:
        yield program


@pytest.fixture(scope="module")
def lists() -> Iterator[Program]:
    functions = {"compact": compact_keys("compact"), "compact_int": compact_keys("c", "int64")}
    with compile_kernels(functions, threads=2, outputs=2) as program:
        yield program


class Inputs:
    """Seeded arrays for one case and size, and what they allow: `allowed`, `bias` are [b,h,s,t]."""

    def __init__(self, case: Case, batch: int, s: int, t: int, seed: int) -> None:
        self.case, self.batch, self.s, self.t = case, batch, s, t
        self.random = np.random.default_rng(seed)
        shape = case.shape
        self.q = self._normal(batch, s, shape.q_pitch)
        self.k = self._normal(batch, t, shape.k_pitch)
        self.v = self._normal(batch, t, shape.v_pitch)
        self.past = max(t - s, 0)
        self.allowed = np.ones((batch, case.heads, s, t), bool)
        self.bias = np.zeros((batch, case.heads, s, t))
        self.masks: list[Any] = []
        for term in (*case.plan.masks, *case.plan.biases):
            arrays = getattr(self, f"_{type(term).__name__.lower()}")(term)
            self.masks.extend(arrays)

    @property
    def arguments(self) -> list[Any]:
        return [
            self.q,
            self.k,
            self.v,
            *self.masks,
            *([self.past] if self.case.plan.scalars else []),
        ]

    def _normal(self, *shape: int) -> Any:
        return self.random.standard_normal(shape).astype(np.float32)

    def _distance(self, offset: int | str) -> Any:
        """[s, t]: how far key j lies behind query i."""
        start = self.past if isinstance(offset, str) else offset
        return np.arange(self.s)[:, None] + start - np.arange(self.t)[None, :]

    def _causal(self, mask: Causal) -> list[Any]:
        self.allowed &= self._distance(mask.offset) >= 0
        return []

    def _window(self, mask: Window) -> list[Any]:
        distance = self._distance(mask.offset)
        if mask.left is not None:
            self.allowed &= distance <= mask.left
        if mask.right is not None:
            self.allowed &= -distance <= mask.right
        return []

    def _lengths(self, dtype: str) -> Any:
        lengths = self.random.integers(0, self.t + 1, self.batch)
        lengths[0] = 0 if self.batch == 3 else self.t
        return lengths.astype(dtype)

    def _padding(self, mask: Padding) -> list[Any]:
        lengths = self._lengths(mask.dtype)
        self.allowed &= (np.arange(self.t) < lengths[:, None])[:, None, None, :]
        return [lengths]

    def _prefix(self, mask: Prefix) -> list[Any]:
        lengths = self._lengths(mask.dtype)
        early = (np.arange(self.t) < lengths[:, None])[:, None, None, :]
        self.allowed &= early | (self._distance(mask.offset) >= 0)
        return [lengths]

    def _keylist(self, mask: KeyList) -> list[Any]:
        keep = self.random.random((self.batch, self.t)) < 0.6
        if self.batch == 3:
            keep[1] = False
        self.allowed &= keep[:, None, None, :]
        keys = np.zeros((self.batch, self.t), np.int32)
        for b in range(self.batch):
            found = np.flatnonzero(keep[b])
            keys[b, : len(found)] = found
        return [keys, keep.sum(1).astype(np.int32)]

    def _segments(self, mask: Segments) -> list[Any]:
        queries = np.sort(self.random.integers(0, 4, (self.batch, self.s)), axis=1)
        keys = np.sort(self.random.integers(0, 3, (self.batch, self.t)), axis=1)
        queries[:, self.s // 2] = 9  # a row in the middle that no key belongs to
        self.allowed &= (queries[:, :, None] == keys[:, None, :])[:, None]
        return [queries.astype(mask.dtype), keys.astype(mask.key_dtype)]

    def _dense_shape(self, term: Dense | DenseBias) -> tuple[int, ...]:
        return (
            self.batch if term.per_batch else 1,
            self.case.heads if term.per_head else 1,
            self.s if term.per_query else 1,
            self.t,
        )

    def _dense(self, mask: Dense) -> list[Any]:
        array = self.random.random(self._dense_shape(mask)) < 0.7
        if mask.per_query:
            array[..., self.s // 3, :] = False
        self.allowed &= array
        return [array if mask.dtype == "bool" else array.astype(mask.dtype) * -5]

    def _densebias(self, bias: DenseBias) -> list[Any]:
        array = self._normal(*self._dense_shape(bias))
        self.bias += array
        return [array]

    def _bydistance(self, bias: ByDistance) -> list[Any]:
        array = self._normal(self.case.heads, self.s + self.t - 1)
        places = np.arange(self.t) - np.arange(self.s)[:, None] + self.s - 1
        self.bias += array[:, places]
        return [array]

    def _alibi(self, bias: Alibi) -> list[Any]:
        slopes = (2.0 ** -np.arange(1, self.case.heads + 1)).astype(np.float32)
        self.bias -= slopes[:, None, None] * self._distance(bias.offset)
        return [slopes]


def reference(x: Inputs, scores: Any = np.float64) -> Any:
    """Attention in float64, its scores rounded to `scores`; masked keys are left out of sums."""
    case = x.case
    q = x.q.astype(np.float64).reshape(x.batch, x.s, case.heads, case.width)
    k = x.k.astype(np.float64).reshape(x.batch, x.t, case.kv_heads, case.width)
    v = x.v.astype(np.float64).reshape(x.batch, x.t, case.kv_heads, case.value_width)
    out = np.zeros((x.batch, x.s, case.heads, case.value_width))
    for b, i, h in np.ndindex(out.shape[:3]):
        keys = np.flatnonzero(x.allowed[b, h, i])
        if not len(keys):
            continue
        shared = h // (case.heads // case.kv_heads)
        score = k[b, keys, shared] @ q[b, i, h] * case.scale
        if case.softcap is not None:
            score = case.softcap * np.tanh(score / case.softcap)
        score = (score + x.bias[b, h, i, keys]).astype(scores).astype(np.float64)
        weight = np.exp(score - score.max())
        out[b, i, h] = weight @ v[b, keys, shared] / weight.sum()
    return out.reshape(x.batch, x.s, -1)


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.int32)


@pytest.mark.parametrize("name", CASES)
def test_matches_formula_at_every_size(kernels: Program, name: str) -> None:
    for number, (s, t) in enumerate(SIZES):
        x = Inputs(CASES[name], batch=1 + number % 3, s=s, t=t, seed=number)
        (out,) = kernels.call(name, x.arguments)
        want = reference(x)
        scale = max(float(np.abs(want).max()), 1.0)
        assert_close(out, want, length=LENGTH, scale=scale, name=f"{s}, {t}")
        empty = ~x.allowed.any(-1).transpose(0, 2, 1).repeat(CASES[name].value_width, -1)
        assert not out[empty].any(), (s, t)


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].plan.masks])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_masked_slots_do_not_reach_the_output(kernels: Program, name: str, poison: float) -> None:
    for number, (s, t) in enumerate([(2, 3), (1, 130), (33, 63), (70, 130)]):
        x = Inputs(CASES[name], batch=3, s=s, t=t, seed=number)
        clean = kernels.call(name, x.arguments)[0]
        bad = x.random.random((3, t)) < 0.05
        bad |= ~x.allowed.any((1, 2))  # keys that no query sees, all of them
        x.k[bad] = x.v[bad] = poison
        out = kernels.call(name, x.arguments)[0].reshape(3, s, CASES[name].heads, -1)
        sees = (x.allowed & bad[:, None, None, :]).any(-1).transpose(0, 2, 1)
        assert np.array_equal(bits(out[~sees]), bits(clean.reshape(out.shape)[~sees])), (s, t)
        if np.isnan(poison):
            assert np.isnan(out[sees]).all(), (s, t)


@pytest.mark.parametrize("name", CASES)
def test_rows_do_not_depend_on_the_batch(kernels: Program, name: str) -> None:
    x = Inputs(CASES[name], batch=3, s=37, t=70, seed=5)
    together = kernels.call(name, x.arguments)[0]
    for b in range(3):
        alone = [
            a[b : b + 1] if isinstance(a, np.ndarray) and len(a) == 3 else a for a in x.arguments
        ]
        assert np.array_equal(bits(kernels.call(name, alone)[0]), bits(together[b : b + 1]))


def test_rows_do_not_depend_on_their_place(kernels: Program) -> None:
    x = Inputs(CASES["grouped"], batch=1, s=129, t=200, seed=6)
    together = kernels.call("grouped", x.arguments)[0]
    for start, stop in [(0, 1), (5, 38), (63, 65), (100, 129), (128, 129)]:
        part = [x.q[:, start:stop], x.k, x.v, x.past + start]
        assert np.array_equal(bits(kernels.call("grouped", part)[0]), bits(together[:, start:stop]))


@pytest.mark.parametrize("name", CASES)
def test_the_first_query_has_the_same_bits_alone(kernels: Program, name: str) -> None:
    """One query, few and many go different ways through a kernel."""
    for seed, t in enumerate((1, 17, 64, 150)):
        x = Inputs(CASES[name], batch=2, s=9, t=t, seed=seed)
        together = kernels.call(name, x.arguments)[0]
        for count in (1, 2):
            out = kernels.call(name, first_queries(x, count))[0]
            assert np.array_equal(bits(out), bits(together[:, :count])), (t, count)


def first_queries(x: Inputs, count: int) -> list[Any]:
    """The arguments with the first queries alone, where they stood."""
    arrays = iter(x.masks)
    masks: list[Any] = []
    for term in (*x.case.plan.masks, *x.case.plan.biases):
        own = [next(arrays) for _ in term.parameters]
        match term:
            case Segments():
                own[0] = own[0][:, :count]
            case Dense(per_query=True) | DenseBias(per_query=True):
                own = [own[0][:, :, :count]]
            case ByDistance():
                own = [own[0][:, x.s - count :]]
            case _:
                pass
        masks += own
    return [x.q[:, :count], x.k, x.v, *masks, *([x.past] if x.case.plan.scalars else [])]


def test_rows_do_not_depend_on_padding(kernels: Program) -> None:
    random = np.random.default_rng(7)
    for name in ("padding", "keys"):
        x = Inputs(CASES[name], batch=2, s=20, t=100, seed=8)
        longer = Inputs(CASES[name], batch=2, s=20, t=171, seed=9)
        longer.k[:, :100], longer.v[:, :100], longer.q = x.k, x.v, x.q
        longer.k[:, 100:] = random.choice([np.nan, np.inf], (2, 71, 1))
        if name == "padding":
            longer.masks = x.masks
        else:
            longer.masks = [np.pad(x.masks[0], ((0, 0), (0, 71))), x.masks[1]]
        expected, out = kernels.call(name, x.arguments)[0], kernels.call(name, longer.arguments)[0]
        assert np.array_equal(bits(out), bits(expected))


def test_the_same_bits_on_one_thread_and_two() -> None:
    case = CASES["grouped"]
    kernel = attention("grouped", case.shape, case.plan, cpu_machine(), scale=case.scale)
    x = Inputs(case, batch=2, s=129, t=140, seed=10)
    results = []
    for threads in (1, 2):
        with compile_kernels({"grouped": kernel}, threads=threads) as program:
            results.append(program.call("grouped", x.arguments)[0])
    assert np.array_equal(bits(results[0]), bits(results[1]))


def test_windows_of_one_merged_array() -> None:
    heads, width = 3, 16
    shape = AttentionShape(heads, 1, width, width, 80, 80, 80, 0, 48, 64)
    kernel = attention("merged", shape, MaskPlan((Causal(),)), cpu_machine(), scale=0.3)
    case = Case(MaskPlan((Causal(),)), heads=heads, kv_heads=1)
    x = Inputs(case, batch=2, s=45, t=45, seed=11)
    merged = np.concatenate([x.q, x.k, x.v], -1)
    with compile_kernels({"merged": kernel}, threads=2) as program:
        out = program.call("merged", [merged, merged, merged])[0]
    assert_close(out, reference(x), length=LENGTH, scale=1.0)


@pytest.mark.parametrize("name", ["grouped", "everything"])
def test_code_for_avx2(name: str) -> None:
    case, machine = CASES[name], cpu_machine("x86-64-v3")
    kernel = attention(name, case.shape, case.plan, machine, scale=case.scale, softcap=case.softcap)
    with compile_kernels({name: kernel}, threads=2, machine=machine) as program:
        for s, t in [(1, 65), (17, 50), (33, 129)]:
            x = Inputs(case, batch=2, s=s, t=t, seed=s)
            (out,) = program.call(name, x.arguments)
            assert_close(out, reference(x), length=LENGTH, scale=1.0)


def test_two_lists_of_keys_are_refused() -> None:
    case = Case(MaskPlan((KeyList(), Causal(), KeyList())))
    with pytest.raises(TfgraphError, match="one list of keys"):
        attention("two", case.shape, case.plan, cpu_machine(), scale=case.scale)


def test_large_scores_do_not_overflow(kernels: Program) -> None:
    x = Inputs(CASES["plain"], batch=1, s=33, t=65, seed=12)
    x.q *= 1e3
    x.k *= 1e3
    (out,) = kernels.call("plain", x.arguments)
    assert np.isfinite(out).all()
    # Each row is the value of its best key, where the best is ahead by more than rounding.
    q, k, v = (a.reshape(1, -1, 2, 64).astype(np.float64) for a in (x.q, x.k, x.v))
    score = np.einsum("bihc,bjhc->bhij", q, k) * 0.3
    ranked = np.sort(score, -1)
    clear = ranked[..., -1] - ranked[..., -2] > 1e3
    best = np.take_along_axis(v.transpose(0, 2, 1, 3), score.argmax(-1)[..., None], 2)
    got = out.reshape(1, 33, 2, 64).transpose(0, 2, 1, 3)
    assert clear.any()
    assert_close(got[clear], best[clear])


def test_a_bias_may_be_as_large_as_floats_go(kernels: Program) -> None:
    """As in masks that other systems add: their lowest number is a score like any other."""
    case, lowest = CASES["bias"], np.finfo(np.float32).min
    for value in (lowest, -2.5e38, -1e38, 2.5e38, -np.inf):
        x = Inputs(case, batch=2, s=40, t=70, seed=14)
        shared, own = x.masks
        shared[:], own[:] = 0, 0
        own[0, 1, 3:30, 5:] = value  # some keys of these queries
        own[1, 2, 7:11] = value  # all keys of these
        x.bias = np.broadcast_to(own.astype(np.float64), x.bias.shape)
        x.allowed &= x.bias != -np.inf
        (out,) = kernels.call("bias", x.arguments)
        want = reference(x, scores=np.float32)  # where the score beside such a bias is lost
        assert_close(out, want, length=LENGTH, scale=1.0, name=str(value))


@pytest.mark.parametrize("dtype", ["bool", "int64"])
def test_compact_keys(lists: Program, dtype: str) -> None:
    random = np.random.default_rng(13)
    for t in (1, 2, 31, 64, 129):
        keep = (random.random((4, t)) < 0.5).astype(dtype) * (1 if dtype == "bool" else 7)
        keep = keep.astype(dtype)
        keep[0], keep[1] = False, True
        keys, count = lists.call("compact" if dtype == "bool" else "compact_int", [keep])
        for b in range(4):
            found = np.flatnonzero(keep[b])
            assert count[b] == len(found)
            assert np.array_equal(keys[b], np.pad(found, (0, t - len(found))))
