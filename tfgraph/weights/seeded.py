"""Parameters made from a seed, the same on every machine.

May import: ops.floats, runtime.cores, runtime.memory, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from math import prod
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.ir import Exact
from tfgraph.ops.floats import numpy_dtype
from tfgraph.runtime.cores import default_threads
from tfgraph.runtime.memory import refuse_absurd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgraph.ir import Param

    NDArray = np.ndarray[Any, Any]


_STEP = 1 << 15  # numbers at a time, so that what is computed of them stays in the cache
_EVEN_PARTS = np.uint64(0x0000FFFF0000FFFF)


class Seeded(Mapping[str, "NDArray"]):
    """Parameters made from a seed, each the same whatever the others are, and made once."""

    def __init__(self, params: Iterable[Param], seed: int = 0) -> None:
        self.seed = seed
        self._params = {param.value.name: param for param in params}
        self._made: dict[str, NDArray] = {}
        self._making = {name: Lock() for name in self._params}
        self._ahead = iter(self._params)  # what no thread has begun

    def __getitem__(self, name: str) -> NDArray:
        with self._making[name]:
            if name not in self._made:
                self._made[name] = seeded(self._params[name], self.seed)
            return self._made[name]

    def make_ahead(self) -> None:
        """Make all of them in other threads while this one, which keeps a core, has other work.
        What is wrong with one is told to whoever asks for it."""

        def make() -> None:
            for name in self._ahead:
                with suppress(Exception):
                    self[name]

        for _ in range(max(1, default_threads() - 1)):
            Thread(target=make, name="seeded weights", daemon=True).start()

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)


def seeded(param: Param, seed: int = 0) -> NDArray:
    """The array of a parameter's fill, in its dtype. The same bits on every machine: the key of
    the generator is a hash of name and seed, and nothing but exact arithmetic and correctly rounded
    operations follows (`sinusoidal`: within an ulp of float64, before rounding)."""
    shape = tuple(map(int, param.value.type.shape))
    target = numpy_dtype(param.value.type.dtype)
    refuse_absurd(prod(shape) * target.itemsize, f"parameter '{param.value.name}'", {})
    fill = param.fill
    if fill.kind == "zeros":
        return np.zeros(shape, target)
    if fill.kind == "ones" and fill.argument is None:
        return np.ones(shape, target)
    if fill.kind in ("sinusoidal", "sinusoidal_halves"):
        return sinusoidal_table(*shape, halves=fill.kind != "sinusoidal").astype(target)
    if fill.kind not in ("normal", "ones"):
        raise TfgraphError(f"parameter '{param.value.name}': no way to fill it with {fill}")
    key = sha256(f"{seed}:{param.value.name}".encode()).digest()[:16]
    words = np.random.RandomState(np.random.Philox(key=np.frombuffer(key, "<u8")))
    std = float(fill.argument) if isinstance(fill.argument, Exact) else 1.0
    mean = float(fill.kind == "ones")
    out: NDArray = np.empty(int(np.prod(shape, dtype=np.int64)), target)
    for start in range(0, out.size, _STEP):
        part = out[start : start + _STEP]
        # The words of Philox as they come: RandomState never changes what it makes of them, and
        # leaves the interpreter to other threads meanwhile; `random_raw` asks for it after each.
        values = _bell(words.randint(0, 1 << 64, part.size, np.uint64))
        values *= std
        values += mean
        part[...] = values
    return out.reshape(shape)


def _bell(words: NDArray) -> NDArray:
    """From each u64 the sum of its four 16-bit parts, centred and scaled to variance 1: close to
    normal (Irwin-Hall of order 4, within 3.5 deviations), without a function that libms round
    differently. Overwrites the words."""
    upper = words >> np.uint64(16)
    words &= _EVEN_PARTS
    upper &= _EVEN_PARTS
    words += upper  # two sums of two parts, which cannot carry into each other
    np.right_shift(words, np.uint64(32), out=upper)
    words += upper
    words &= np.uint64(0xFFFFFFFF)
    centred = words.view(np.int64)
    centred *= 2
    centred -= 4 * 0xFFFF
    deviation = np.sqrt(4 * (2.0**32 - 1) / 3)  # of twice the sum; sqrt rounds correctly
    scaled: NDArray = centred / deviation
    return scaled


def sinusoidal_table(positions: int, width: int, *, halves: bool = False) -> NDArray:
    """sin(p / 10000^(2i/width)) in column 2i, cos of the same in column 2i + 1, as float64
    [positions, width]; with `halves` the even columns first. Vaswani et al. 2017, section 3.5."""
    columns = np.arange(width)
    angles = np.arange(positions)[:, None] / 10000.0 ** (columns // 2 * 2 / width)
    table: NDArray = np.where(columns % 2 == 0, np.sin(angles), np.cos(angles))
    return np.concatenate([table[:, ::2], table[:, 1::2]], 1) if halves else table
