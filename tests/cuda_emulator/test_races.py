"""What the emulator calls a race is what the memory model does: a proof by random programs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from cuda_emulator.launch import Emulated, KernelFault
from cuda_emulator.sources import kernels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("races")


@pytest.mark.parametrize("seed", range(240))
def test_races_are_those_of_the_definition(seed: int, folder: Path) -> None:
    """Random accesses and barriers: there is a race exactly if two accesses of one word, a write
    among them and not both atomic, have no barrier between them that both threads passed."""
    rng = np.random.default_rng(seed)
    blocks, warps, steps = 1 + seed % 2, 1 + seed % 3, 6
    share, words = ((0.006, 2), (0.015, 6), (0.1, 40))[seed // 6 % 3]
    shape = (blocks, steps, warps * 32)
    busy = rng.random(shape) < share
    kinds = np.where(busy, rng.choice([1, 1, 1, 2, 3], shape), 0).astype(np.int32)
    targets = rng.integers(0, words, shape, dtype=np.int32)
    if seed % 4 == 0:
        targets = np.where(kinds == 2, targets, words - 1).astype(np.int32)
        words += words
    barriers = np.zeros(shape, np.int32)
    barriers[:] = 2 * (rng.random((blocks, steps, 1)) < 0.4)
    of_warps = rng.random((blocks, steps, warps)) < 0.6
    barriers[(barriers == 0) & of_warps.repeat(32, 2)] = 1
    sink = np.zeros(shape, np.int32)
    arguments = [np.zeros(words, np.int32), sink, kinds, targets, barriers, np.int32(steps)]
    emulated = Emulated(kernels("interpreted"), folder)
    racy = any_race(kinds, targets, barriers)
    with pytest.raises(KernelFault, match="race on words") if racy else nullcontext():
        emulated(
            "interpreted",
            arguments,
            grid=(blocks,),
            block=(warps * 32,),
            order="ascending" if seed % 5 else seed,
            names=("words", "sink", "kinds", "targets", "barriers", "steps"),
        )


def test_a_reader_in_another_warp_is_not_forgotten(folder: Path) -> None:
    kinds, targets = np.zeros((2, 1, 2, 64), np.int32)
    kinds[0, 0, [0, 32, 33]] = 1  # all read; then, behind a barrier of its warp alone,
    kinds[0, 1, 40] = 2  # one writes
    barriers = np.ones_like(kinds)
    assert any_race(kinds, targets, barriers)
    arguments = [np.zeros(1, np.int32), kinds.copy(), kinds, targets, barriers, np.int32(2)]
    with pytest.raises(KernelFault, match=r"\(40, 0, 0\).* writes what thread \(0, 0, 0\)"):
        Emulated(kernels("interpreted"), folder)("interpreted", arguments, grid=(1,), block=(64,))


def any_race(kinds: np.ndarray, targets: np.ndarray, barriers: np.ndarray) -> bool:
    accesses = np.argwhere(kinds)
    for n, (block, step, thread) in enumerate(accesses):
        kind, target = kinds[block, step, thread], targets[block, step, thread]
        for other_block, later, other in accesses[n + 1 :]:
            if targets[other_block, later, other] != target:
                continue
            both = {kind, kinds[other_block, later, other]}
            if both in ({1}, {3}) or (block, thread) == (other_block, other):
                continue
            between = barriers[block, min(step, later) : max(step, later), thread]
            enough = 1 if thread // 32 == other // 32 else 2
            if block != other_block or not (between >= enough).any():
                return True
    return False
