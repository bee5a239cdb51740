"""The machine code of matrix products: their sums stay in registers.

Speed hangs on it: sums on the heap, or spilled to the stack, cost two thirds of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from helpers.kernels import assembly_of

from tfgraph.backends.tvm.cpu import gemm as gemm_module
from tfgraph.backends.tvm.cpu import matmul as matmul_module
from tfgraph.backends.tvm.cpu.gemm_tile import Tile, tile_for
from tfgraph.backends.tvm.kernels import LinearShape
from tfgraph.backends.tvm.target import cpu_machine

if TYPE_CHECKING:
    from tfgraph.backends.tvm.target import CpuMachine

MACHINES = {"avx512": cpu_machine("x86-64-v4"), "avx2": cpu_machine("x86-64-v3")}


def linear(machine: CpuMachine) -> Any:
    return gemm_module.gemm(LinearShape(768, 2304, bias=True), machine)


def linear_gelu(machine: CpuMachine) -> Any:
    return gemm_module.gemm(
        LinearShape(768, 3072, bias=True, activation="gelu", gate=True), machine
    )


def narrow_linear(machine: CpuMachine) -> Any:
    return gemm_module.gemm(LinearShape(100, 131), machine)


def matmul(machine: CpuMachine) -> Any:
    return matmul_module.matmul(("b", "h", "s", 64), ("b", "h", 64, "t"), machine)


LINEARS = [linear, linear_gelu, narrow_linear]
CASES = [(name, kernel) for name in MACHINES for kernel in LINEARS]
# With AVX2 LLVM moves one of the 12 sums of matmul through the stack: 3 vectors and a broadcast
# beside them fill its 16 registers.
CASES += [("avx512", matmul)]


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
    machine = MACHINES[name]
    assembly = assembly_of(kernel(machine), machine)
    assert "TVMBackendAllocWorkspace" not in assembly
    loops = product_loops(assembly)
    tile = tile_for(machine)
    whole = tile.rows * tile.columns // tile.lanes  # LLVM unrolls the loop over k some times
    assert {whole, 2 * whole, 4 * whole}.intersection(loop.products for loop in loops)
    for loop in loops:
        assert not loop.spills


@pytest.mark.parametrize(
    ("name", "kernel"), [("avx512", linear), ("avx2", linear), ("avx512", matmul)]
)
def test_a_tile_that_does_not_fit_the_registers_is_seen(
    name: str, kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MACHINES[name]
    tile = tile_for(machine)
    large = Tile(2 * tile.rows, tile.vectors, tile.lanes)
    for module in (gemm_module, matmul_module):
        monkeypatch.setattr(module, "tile_for", lambda *_: large)
    loops = product_loops(assembly_of(kernel(machine), machine))
    assert any(loop.spills for loop in loops)
