"""Planted faults: each rule that the emulator keeps, broken in a kernel that is right without."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulator.launch import Emulated, KernelFault, Order
from cuda_emulator.sources import kernels

ORDERS: tuple[Order, ...] = ("ascending", "descending", 1, 2)


def floats(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal(count).astype(np.float32)


@dataclass
class Launch:
    """Arguments of a kernel, the output first, and what the output then is."""

    arguments: list[Any]
    want: np.ndarray
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (64,)
    dynamic_shared: int = 0


def launches() -> dict[str, Launch]:
    x, small = floats(192), np.arange(-32, 32, dtype=np.int8)
    in_warps = x[:64].reshape(2, 32)[:, ::-1].reshape(-1, 2)
    lanes = x[:64].reshape(2, 4, 8).sum(1)
    first = (lanes[:, 0] + lanes[:, 4]).repeat(32)
    staged = x.reshape(3, 64)[:, ::-1].sum(0)
    ones = np.full(256, 1.0, np.float16).view(np.uint32)
    return {
        "reversed": Launch(
            [np.zeros(192, "f4"), x], x.reshape(3, 64)[:, ::-1].reshape(-1), grid=(3,)
        ),
        "reversed_in_warps": Launch(
            [np.zeros(64, "f4"), x[:64]], (in_warps + in_warps[:, ::-1]).reshape(-1)
        ),
        "counted": Launch([np.zeros(1, "i4"), np.arange(128, dtype="i4")], np.array([8128]), (2,)),
        "bytes": Launch([np.zeros(64, "i1"), small], small.reshape(-1, 2)[:, ::-1].reshape(-1)),
        "vectors": Launch([np.zeros(64, "f4"), x[:64]], x[:64]),
        "staged": Launch([np.zeros(64, "f4"), x, np.int32(3)], staged, dynamic_shared=512),
        "summed": Launch([np.zeros(64, "f4"), x[:64]], first),
        "fragments": Launch(
            [np.zeros(128, "u4"), ones], np.full(128, 16.0, "f4").view("u4"), block=(32,)
        ),
    }


def run(
    source: str, name: str, folder: Path, order: Order = "ascending", *, checked: bool = True
) -> np.ndarray:
    launch = launches()[name]
    Emulated(source, folder, checked=checked)(
        name,
        launch.arguments,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared=launch.dynamic_shared,
        order=order,
        names=("out", "x", "stages")[: len(launch.arguments)],
    )
    return np.asarray(launch.arguments[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


def kernel(name: str) -> str:
    """The file with that kernel alone, so that each of many is built soon."""
    head, *rest = re.split(r'(?=extern "C" __global__)', kernels("faults"))
    return head + next(text for text in rest if re.search(rf"void {name}\(", text))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", launches())
def test_right_kernels(name: str, order: Order, folder: Path) -> None:
    want = launches()[name].want
    np.testing.assert_allclose(run(kernel(name), name, folder, order), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", launches())
def test_numbers_alone(name: str, folder: Path) -> None:
    got = run(kernel(name), name, folder, "descending", checked=False)
    np.testing.assert_allclose(got, launches()[name].want, rtol=1e-6, atol=1e-6)


def test_unchecked_writes_outside_are_seen_in_the_margins(folder: Path) -> None:
    broken = kernel("reversed").replace("out[blockIdx.x", "out[1 + blockIdx.x")
    with pytest.raises(KernelFault, match="wrote outside of out"):
        run(broken, "reversed", folder, checked=False)


GONE = ""
FAULTS = [
    # (kernel, what stands in it, what is put there, what is said)
    ("reversed", ("__syncthreads();", GONE, 1), "race on tile.*no __syncthreads between"),
    (
        "reversed",
        ("__syncthreads();", GONE, 2),
        "race on tile.*no __syncthreads between|race on tile",
    ),
    (
        "reversed",
        ("__syncthreads();", "__syncwarp();", 1),
        "race on tile.*no __syncthreads between",
    ),
    ("reversed", ("tile[threadIdx.x] = other", "tile[threadIdx.x / 2] = other"), "race on tile"),
    ("reversed", ("out[blockIdx.x * 64 +", "out["), "race on out.*nothing orders blocks"),
    (
        "reversed",
        ("out[blockIdx.x * 64 + threadIdx.x]", "out[0]"),
        r"race on out\[0\].*writes.*wrote",
    ),
    (
        "reversed",
        ("out[blockIdx.x", "out[1 + blockIdx.x"),
        "out of bounds.*writes 4 bytes at 0 bytes past the end of out",
    ),
    (
        "reversed",
        ("= x[blockIdx.x", "= x[-1 + (int64_t)blockIdx.x"),
        "reads 4 bytes at 4 bytes before the start of x of 768",
    ),
    (
        "reversed",
        ("tile[63 -", "tile[64 -"),
        "out of bounds.*reads 4 bytes.*end of tile of 256 bytes",
    ),
    ("reversed", ("tile[threadIdx.x] = x[", "tile[threadIdx.x & ~1] = x["), "race on tile"),
    (
        "reversed",
        ("tile[threadIdx.x] = x[", "if (threadIdx.x) tile[threadIdx.x] = x["),
        r"uninitialised.*\(63, 0, 0\).*tile.0",
    ),
    (
        "reversed_in_warps",
        ("__syncwarp();", GONE, 1),
        "race on tile.*no __syncwarp or __syncthreads",
    ),
    (
        "reversed_in_warps",
        ("__syncwarp();", GONE, 2),
        "race on tile.*no __syncwarp or __syncthreads",
    ),
    (
        "reversed_in_warps",
        ("__syncwarp();", "__shfl_sync(0xffffffff, lane, 0);", 1),
        "race on tile",
    ),
    (
        "reversed_in_warps",
        ("__syncwarp();", "if (lane > 3) __syncwarp();", 2),
        "divergence.*waits at a shuffle.*waits at __syncwarp",
    ),
    (
        "reversed_in_warps",
        ("first + 31 - lane", "63 - threadIdx.x"),
        "race on tile.*no __syncthreads between",
    ),
    (
        "counted",
        ("atomicAdd(total, x[blockIdx.x * 64 + threadIdx.x])", "*total += x[threadIdx.x]"),
        r"race on out\[0\]",
    ),
    (
        "counted",
        ("atomicAdd(total,", "if (*total < 9) atomicAdd(total,"),
        r"race on out\[0\].*reads what .*wrote",
    ),
    (
        "counted",
        ("atomicAdd(total,", "if (threadIdx.x == 9) *total = 0; else atomicAdd(total,"),
        "race on out",
    ),
    (
        "counted",
        ("atomicAdd(total,", "atomicAdd(total + threadIdx.x / 63,"),
        "out of bounds.*end of out",
    ),
    (
        "bytes",
        ("tile[threadIdx.x] =", "tile[threadIdx.x ^ (threadIdx.x == 7)] ="),
        r"race on tile\[6\]",
    ),
    ("bytes", ("__syncthreads();", GONE), "race on tile"),
    (
        "vectors",
        ("alignas(16) __shared__", "__shared__"),
        "misaligned.*writes 16 bytes at once at tile.*declared with an alignment of 4",
    ),
    (
        "vectors",
        ("&x[4 * threadIdx.x]", "&x[2 * threadIdx.x]"),
        r"misaligned.*reads 16 bytes at once at x\[\d*[26]\]",
    ),
    ("vectors", ("< 16", "< 17"), "out of bounds"),
    ("vectors", ("threadIdx.x < 16", "threadIdx.x < 15"), "uninitialised.*tile.6[0-3]"),
    ("staged", ("__syncthreads();  // landed", GONE), "too early|race on tiles"),
    ("staged", ("__syncthreads();  // used", GONE), "too early|race on tiles"),
    ("staged", ("cp_async_wait<1>();", GONE), "too early: .* reads tiles.*copied: "),
    ("staged", ("cp_async_wait<1>();", "cp_async_wait<2>();"), "too early"),
    ("staged", ("cp_async_commit();", GONE, 2), "too early"),
    ("staged", ("__syncthreads();  // landed", "__syncwarp();"), "too early|race on tiles"),
    ("staged", ("next < stages ? 16 : 0", "16"), "out of bounds.*end of x"),
    ("staged", ("next < stages ? 16 : 0", "20"), "cp.async of 20 bytes of 16"),
    (  # a barrier before the wait: what lands behind it is ordered for nobody else
        "staged",
        (
            "cp_async_wait<1>();\n    __syncthreads();  // landed\n    sum",
            "__syncthreads();\n    cp_async_wait<1>();\n    if (thread > 31) sum",
        ),
        "race on tiles|too early",
    ),
    ("staged", ("__align__(16) ", GONE), "misaligned"),
    ("staged", ("next % 2 * 64", "next % 2 * 62"), "misaligned"),
    ("staged", ("next % 2 * 64", "next * 64"), "out of bounds.*end of tiles"),
    (
        "summed",
        ("__syncthreads();", "if (threadIdx.x != 5) __syncthreads();"),
        r"divergence.*\(5, 0, 0\)",
    ),
    (
        "summed",
        ("__syncthreads();", "if (threadIdx.x < 32) __syncthreads();\nelse __syncthreads();"),
        "divergence.*__syncthreads.*waits at __syncthreads",
    ),
    ("summed", ("0xff, sum, 4, 8", "0xffffffff, sum, 4, 8"), "divergence.*shuffle.*__syncthreads"),
    (
        "summed",
        ("0xff, sum, 4, 8", "0xff, sum, 8"),
        "a shuffle reads from lane 8, which takes no part",
    ),
    ("summed", ("0xff, sum, 4, 8", "0xfe, sum, 4, 8"), "not in its own mask"),
    ("summed", ("  __syncthreads();", "  if (threadIdx.x == 3) return;"), "divergence.*has ended"),
    ("fragments", ("__syncwarp();", GONE), "race on tile"),
    ("fragments", ("alignas(16) ", GONE), "misaligned"),
    (
        "fragments",
        ("ldmatrix_x4(&a[0], &tile[4 *", "ldmatrix_x4(&a[0], &tile[2 *"),
        "misaligned: ldmatrix",
    ),
    ("fragments", ("&a[0], &tile[4 * lane]", "&a[0], &tile[4 * lane + 4]"), "out of bounds"),
    (
        "fragments",
        ("&a[0], &tile[4 * lane]", "&a[0], &tile[lane % 4 * 32]"),
        "bank conflict: ldmatrix of rows 0 and 1",
    ),
    (
        "fragments",
        ("  mma_f16(&c", "  if (lane > 7) mma_f16(&c"),
        r"divergence.*mma \(f16\).*has ended",
    ),
    (
        "fragments",
        ("  mma_f16(&c", "  if (lane > 7) mma_bf16(c, a, a);\n  else mma_f16(&c"),
        "divergence.*mma",
    ),
]


@pytest.mark.parametrize(("name", "edit", "message"), FAULTS)
@pytest.mark.parametrize("order", ["ascending", 1])
def test_faults(name: str, edit: tuple[Any, ...], message: str, order: Order, folder: Path) -> None:
    old, new, nth = (*edit, 1)[:3]
    parts = kernel(name).split(old)
    assert len(parts) > nth, f"{old} is not in the kernel"
    broken = old.join(parts[:nth]) + new + old.join(parts[nth:])
    with pytest.raises(KernelFault) as caught:
        run(broken, name, folder, order)
    assert re.search(message, str(caught.value), re.DOTALL), caught.value


def test_a_race_names_both_lines(folder: Path) -> None:
    broken = kernel("reversed").replace("__syncthreads();", "", 1)
    with pytest.raises(KernelFault) as caught:
        run(broken, "reversed", folder, "descending")
    lines = broken.splitlines()
    told = re.findall(r"\n  (wrote|reads|read|writes): \w+\.cu:(\d+): (.*)", str(caught.value))
    assert len(told) == 2
    for verb, number, text in told:
        assert lines[int(number) - 1].strip() == text
        assert "tile[" in text
        assert text.startswith("tile[") == verb.startswith("wr")
