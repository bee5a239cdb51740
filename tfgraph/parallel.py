"""Independent work on NumPy arrays, side by side on the cores that this process may use.

BLAS spreads a single product over the cores, and its threads spin between products, while all else
that NumPy computes runs on one of them. So where there is independent work, each piece of it gets a
core, and BLAS none but the one that calls it. May import: runtime.cores.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tfgraph.runtime.cores import default_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

A = TypeVar("A")
B = TypeVar("B")

# OpenBLAS as NumPy's wheels bring it, and as others build it.
_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "")

_lock = threading.Lock()  # of the two that follow, which are those of the process
_inside = 0
_outside = 1


class Each(Protocol):
    """The results of a function for each of some items, in their order."""

    def __call__(self, f: Callable[[A], B], items: Iterable[A], /) -> list[B]: ...


@contextmanager
def side_by_side(at_most: int) -> Generator[Each]:
    """A function that calls another for each of some items, as many at once as there are cores, but
    not more than `at_most`; one after another where NumPy's BLAS takes threads that it cannot be
    told to leave."""
    with one_blas_thread() as alone:
        threads = min(at_most, default_threads()) if alone else 1
        if threads <= 1:
            yield _one_by_one
            return
        with ThreadPoolExecutor(threads, "tfgraph") as pool:

            def each(f: Callable[[A], B], items: Iterable[A], /) -> list[B]:
                return [*pool.map(f, items)]

            yield each


def _one_by_one(f: Callable[[A], B], items: Iterable[A], /) -> list[B]:
    return [*map(f, items)]


@contextmanager
def one_blas_thread() -> Generator[bool]:
    """BLAS computes on the thread that calls it, in all of the process; whether it can be told."""
    global _inside, _outside
    found = _openblas()
    if found is None:
        yield False
        return
    count, use = found
    with _lock:
        if not _inside:
            _outside = count()
            use(1)
        _inside += 1
    try:
        yield True
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                use(_outside)


@cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], Any]] | None:
    """What tells and sets the number of OpenBLAS's threads, where that is NumPy's BLAS."""
    module = importlib.util.find_spec("numpy._core._multiarray_umath")
    if module is None or module.origin is None:
        return None
    library = ctypes.CDLL(module.origin)  # with what it is linked to
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            names = (f"{prefix}{verb}_num_threads{suffix}" for verb in ("get", "set"))
            get, put = (getattr(library, name, None) for name in names)
            if get is not None and put is not None:
                return get, put
    return None
