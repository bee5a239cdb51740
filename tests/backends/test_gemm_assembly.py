"""The machine code of matrix products: their sums stay in registers.

Speed hangs on it: sums on the heap, or spilled to the stack, cost two thirds of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.kernels import assembly_of

from tfgraph.backends.tvm.cpu import gemm_tile
from tfgraph.backends.tvm.cpu.gemm import gemm
from tfgraph.backends.tvm.cpu.gemm_tile import Tile
from tfgraph.backends.tvm.cpu.matmul import matmul
from tfgraph.backends.tvm.cpu.schedule import Schedule
from tfgraph.backends.tvm.kernels import LinearShape
from tfgraph.backends.tvm.target import cpu_machine

MACHINES = {"avx512": cpu_machine("x86-64-v4"), "avx2": cpu_machine("x86-64-v3")}


def linear(tile: Tile) -> Any:
    return gemm(LinearShape(768, 2304, bias=True), Schedule(tile))


def linear_gelu(tile: Tile) -> Any:
    return gemm(LinearShape(768, 3072, bias=True, activation="gelu", gate=True), Schedule(tile))


def narrow_linear(tile: Tile) -> Any:
    return gemm(LinearShape(100, 131), Schedule(tile))


def scores(tile: Tile) -> Any:
    return matmul(("b", "h", "s", 64), ("b", "h", 64, "t"), tile)


TILES = {
    f"{name} {rows} x {vectors}": (machine, Tile(rows, vectors, machine.lanes))
    for name, machine in MACHINES.items()
    for rows, vectors in gemm_tile.TILES[machine.registers]
}
CASES = [(name, kernel) for name in TILES for kernel in (linear, linear_gelu, narrow_linear)]
# With AVX2 LLVM moves one of the 12 sums of matmul through the stack: 3 vectors and a broadcast
# beside them fill its 16 registers.
CASES += [(name, scores) for name in TILES if name != "avx2 4 x 3"]


@dataclass(frozen=True)
class Loop:
    """An innermost loop: how many vectors of products it adds, and its vector instructions that
    read or write the stack."""

    products: int
    spills: tuple[str, ...]


def product_loops(assembly: str) -> list[Loop]:
    """The innermost loops that multiply and add vectors: from a label to the jump back to it."""
    # Where %rbp is not set to the stack's frame, it may point anywhere.
    stack = r"\(%r[sb]p\b" if "movq\t%rsp, %rbp" in assembly else r"\(%rsp\b"
    loops: list[Loop] = []
    label, block = "none", list[str]()
    for line in map(str.strip, assembly.splitlines()):
        if found := re.match(r"(\.LBB\w+):", line):
            label, block = found[1], []
        elif line and not line.startswith((".", "#")):
            block.append(line)
            if re.match(rf"j\w+\s+{re.escape(label)}$", line):
                products = sum(re.match(r"vfn?m\w+ps\s", i) is not None for i in block)
                spills = [i for i in block if i.startswith("v") and re.search(stack, i)]
                loops.append(Loop(products, tuple(spills)))
    return [loop for loop in loops if loop.products]


@pytest.mark.parametrize(
    ("name", "kernel"), CASES, ids=lambda case: getattr(case, "__name__", case)
)
def test_sums_stay_in_registers(name: str, kernel: Any) -> None:
    machine, tile = TILES[name]
    assembly = assembly_of(kernel(tile), machine)
    assert "TVMBackendAllocWorkspace" not in assembly
    loops = product_loops(assembly)
    whole = tile.rows * tile.vectors  # LLVM unrolls the loop over k some times
    assert {whole, 2 * whole, 4 * whole}.intersection(loop.products for loop in loops)
    for loop in loops:
        assert not loop.spills


@pytest.mark.parametrize(
    ("name", "kernel"), [("avx512 8 x 3", linear), ("avx2 6 x 2", linear), ("avx512 6 x 4", scores)]
)
def test_a_tile_that_does_not_fit_the_registers_is_seen(name: str, kernel: Any) -> None:
    machine, tile = TILES[name]
    large = Tile(2 * tile.rows, tile.vectors, tile.lanes)
    loops = product_loops(assembly_of(kernel(large), machine))
    assert any(loop.spills for loop in loops)
