"""The CPU's matrix products against float64 NumPy, and the promises they make about bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.elf import needed_symbols
from helpers.kernels import objects_of
from helpers.tolerance import UNIT, assert_within

from tfgraph.backends.tvm.cpu.gemm import FEW, GROUP, SLAB, gemm, pack_weight
from tfgraph.backends.tvm.cpu.gemm_tile import TILES, Tile, tile_for
from tfgraph.backends.tvm.cpu.matmul import matmul
from tfgraph.backends.tvm.cpu.schedule import Schedule
from tfgraph.backends.tvm.kernels import LinearShape
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.errors import TfgraphError
from tfgraph.runtime.cores import available_cores
from tfgraph.runtime.jit import Program

Array = np.ndarray[Any, np.dtype[Any]]

ROWS = [1, 2, 3, 7, 8, 63, 64, 65, 129]
U = UNIT["float32"]

erf = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS = {
    None: lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "relu2": lambda z: np.maximum(z, 0) ** 2,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "tanh": np.tanh,
    "silu": lambda z: z / (1 + np.exp(-z)),
    "gelu": lambda z: z * (1 + erf(z / math.sqrt(2))) / 2,
    "gelu_tanh": lambda z: z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "quick_gelu": lambda z: z / (1 + np.exp(-1.702 * z)),
}


@dataclass(frozen=True)
class Case:
    k: int
    n: int
    bias: bool = False
    activation: str | None = None
    gate: bool = False
    mcpu: str | None = None

    @property
    def name(self) -> str:
        fields = (self.k, self.n, self.bias, self.activation, self.gate, self.mcpu or "host")
        return "_".join(str(field).replace("-", "") for field in fields)

    def kernel(self) -> Any:
        shape = LinearShape(self.k, self.n, self.bias, self.activation, self.gate)
        return gemm(shape, Schedule(self.tile))

    @property
    def tile(self) -> Tile:
        return tile_for(cpu_machine(self.mcpu), self.n)

    def arguments(self, m: int) -> dict[str, Array]:
        """x, w, bias, gate as float32, from a generator seeded the same for every m."""
        shapes = {"x": (m, self.k), "w": (self.k, self.n), "bias": (self.n,)}
        arrays = {}
        for seed, (name, shape) in enumerate({**shapes, "gate": (m, self.n)}.items()):
            arrays[name] = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
        return arrays

    def run(self, program: Program, arrays: dict[str, Array]) -> Array:
        args = [arrays["x"], pack_weight(arrays["w"], self.tile)]
        args += [arrays["bias"]] if self.bias else []
        args += [arrays["gate"]] if self.gate else []
        (out,) = program.call(self.name, args)
        return out


CASES = [
    *[Case(37, 50, bias=True, activation=a, gate=True) for a in ACTIVATIONS],
    *[Case(37, 96, activation=a) for a in ("relu2", "gelu", "silu")],
    Case(1, 1),
    Case(1, 1, bias=True, activation="tanh", gate=True),
    Case(64, 48),
    Case(300, 131, bias=True),
    Case(300, 160, gate=True),
    # Tiles for AVX2, which every CPU with AVX-512 runs too.
    Case(37, 50, bias=True, activation="gelu", gate=True, mcpu="x86-64-v3"),
    Case(64, 24, mcpu="x86-64-v3"),
    Case(300, 131, bias=True, mcpu="x86-64-v3"),
]


@cache
def objects() -> list[bytes]:
    return objects_of({case.name: case.kernel() for case in CASES})


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(objects(), threads=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gemm_matches_float64(case: Case, program: Program) -> None:
    for m in ROWS:
        arrays = case.arguments(m)
        x, w, bias, gate = (arrays[name].astype(np.float64) for name in arrays)
        z = x @ w + (bias if case.bias else 0)
        activate = ACTIVATIONS[case.activation]
        factor = gate if case.gate else np.ones(())
        want = activate(z) * factor
        # The sum's error bound, k + 2 roundings of sum |x| |w|, through the activation's slope,
        # and 16 roundings for the activation itself and the gate.
        sum_error = (case.k + 2) * U * (np.abs(x) @ np.abs(w) + np.abs(bias))
        slope = 2 * np.abs(z) + 2 if case.activation == "relu2" else 1.2
        bound = slope * sum_error + 16 * U * (np.abs(activate(z)) + np.abs(z))
        bound = bound * np.abs(factor)
        got = case.run(program, arrays)
        assert_within(got, want, bound, f"m={m}")


@pytest.mark.parametrize("case", [CASES[6], CASES[9], CASES[-1]], ids=lambda case: case.name)
def test_a_row_has_the_same_bits_wherever_it_stands(case: Case, program: Program) -> None:
    arrays = case.arguments(129)
    whole = case.run(program, arrays)
    for m in ROWS:
        for first in {0, 129 - m}:
            rows = slice(first, first + m)
            part = {**arrays, "x": arrays["x"][rows], "gate": arrays["gate"][rows]}
            assert np.array_equal(case.run(program, part), whole[rows]), (m, first)
    order = np.random.default_rng(7).permutation(129)
    mixed = {**arrays, "x": arrays["x"][order], "gate": arrays["gate"][order]}
    assert np.array_equal(case.run(program, mixed), whole[order])


@pytest.mark.parametrize("k", [SLAB, SLAB + 1, 2 * SLAB + 900])
@pytest.mark.parametrize("threads", [1, 2])
def test_groups_of_rows_and_slabs_of_k_change_no_bit(k: int, threads: int) -> None:
    """Around each number of rows at which there are more groups, of unequal size too, or slabs."""
    case = Case(k, 100, bias=True, activation="relu")
    most = 4 * GROUP + 17
    arrays = case.arguments(most)
    with Program(objects_of({case.name: case.kernel()}), threads=threads) as program:
        parts = [{**arrays, "x": arrays["x"][i : i + 16]} for i in range(0, most, 16)]
        want = np.concatenate([case.run(program, part) for part in parts])
        groups = [n * GROUP + more for n in (1, 2, 4) for more in (-1, 0, 1)]
        for m in (FEW // k, FEW // k + 1, *groups, most):
            got = case.run(program, {**arrays, "x": arrays["x"][:m]})
            assert np.array_equal(got, want[:m]), m


def test_a_result_has_the_same_bits_in_every_tile() -> None:
    machines = [cpu_machine(level) for level in ("x86-64-v3", "x86-64-v4")]
    tiles = [Tile(*sizes, m.lanes) for m in machines for sizes in TILES[m.registers]]
    names = {f"t{i}": tile for i, tile in enumerate(tiles)}
    shape = LinearShape(150, 131, bias=True, activation="gelu", gate=True)
    kernels = {name: gemm(shape, Schedule(tile)) for name, tile in names.items()}
    arrays = Case(150, 131).arguments(31)
    with Program(objects_of(kernels), threads=2) as program:
        results = []
        for name, tile in names.items():
            packed = {**arrays, "w": pack_weight(arrays["w"], tile)}
            results += program.call(name, list(packed.values()))
    assert len(results) == 4
    assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize(
    ("mcpu", "n", "columns"),
    [
        ("x86-64-v4", 768, 48),  # both fit
        ("x86-64-v4", 512, 64),
        ("x86-64-v4", 1376, 48),  # 16 columns too many, not 32
        ("x86-64-v4", 50257, 48),  # 47 too many, either way
        ("x86-64-v4", "n", 48),
        ("x86-64-v3", 768, 24),
        ("x86-64-v3", 512, 16),
        ("x86-64-v3", 1376, 16),
    ],
)
def test_the_tile_that_pads_least_is_chosen(mcpu: str, n: int | str, columns: int) -> None:
    assert tile_for(cpu_machine(mcpu), n).columns == columns


def test_every_thread_count_gives_the_same_bits(program: Program) -> None:
    for case in CASES:
        arrays = case.arguments(129)
        want = case.run(program, arrays)
        for threads in {1, min(3, len(available_cores()))}:
            with Program(objects(), threads=threads) as other:
                assert np.array_equal(case.run(other, arrays), want), (case.name, threads)


def test_gemm_objects_need_nothing_but_the_thread_pool() -> None:
    # No BLAS, no libm, no Python callback, and no workspace on the heap for accumulators.
    assert set.union(*map(needed_symbols, objects())) == {"__TVMBackendParallelLaunch"}


def test_an_unknown_activation_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(TfgraphError, match=r"(?s)'gelu_than'.*did you mean 'gelu_tanh'"):
        Case(4, 4, activation="gelu_than").kernel()


MATMULS: dict[str, tuple[tuple[int | str, ...], tuple[int | str, ...], list[dict[str, int]]]] = {
    "scores": (
        ("b", 3, "s", 20),
        ("b", 3, 20, "t"),
        [{"b": 1, "s": 1, "t": 49}, {"b": 2, "s": 65, "t": 48}, {"b": 1, "s": 129, "t": 7}],
    ),
    "values": (
        ("b", 3, "s", "t"),
        ("b", 3, "t", 17),
        [{"b": 2, "s": 7, "t": 33}, {"b": 1, "s": 9, "t": 1}],
    ),
    "broadcast": ((1, "h", "s", 5), ("b", 1, 5, 70), [{"h": 4, "s": 9, "b": 3}]),
    "shared_right": ((3, "s", 7), (7, "n"), [{"s": 11, "n": 1}, {"s": 2, "n": 97}]),
    "matrices": ((5, 4), (4, 96), [{}]),
}


@cache
def matmul_program() -> Program:
    kernels = {
        name: matmul(a, b, tile_for(cpu_machine(), b[-1])) for name, (a, b, _) in MATMULS.items()
    }
    return Program(objects_of(kernels), threads=2)


@pytest.mark.parametrize("name", MATMULS)
def test_matmul_matches_float64(name: str) -> None:
    a, b, sizes = MATMULS[name]
    rng = np.random.default_rng(0)
    for size in sizes:
        x, y = (
            rng.standard_normal([size.get(str(dim), dim) for dim in shape], dtype=np.float32)
            for shape in (a, b)
        )
        want = np.matmul(x.astype(np.float64), y)
        bound = x.shape[-1] * U * np.matmul(np.abs(x), np.abs(y)).astype(np.float64)
        (got,) = matmul_program().call(name, [x, y])
        assert_within(got, want, 1.01 * bound)


def test_matmul_rows_have_the_same_bits_in_every_batch() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 65, 20), dtype=np.float32)
    y = rng.standard_normal((2, 3, 20, 131), dtype=np.float32)
    (whole,) = matmul_program().call("scores", [x, y])
    for m in (1, 7, 8, 64):
        (part,) = matmul_program().call("scores", [x[1:, :, -m:], y[1:]])
        assert np.array_equal(part, whole[1:, :, -m:])


def test_matmul_refuses_shapes_that_do_not_multiply() -> None:
    with pytest.raises(TfgraphError, match="do not multiply"):
        matmul((2, 3), (4, 5), tile_for(cpu_machine(), 5))
    with pytest.raises(TfgraphError, match="batch dimensions"):
        matmul(("b", 2, 3), ("c", 3, 5), tile_for(cpu_machine(), 5))
