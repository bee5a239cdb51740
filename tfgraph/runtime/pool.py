"""Memory that results and intermediate values took is kept for the next call: to take it from the
system anew, page by page, costs a percent of a large call, and more of a small one.

TVM's pool reuses memory of exactly the same size, and gives none back by itself. So it is emptied
before what calls of different sizes left there passes a limit. May import: ffi.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tfgraph.runtime.ffi import tvm_ffi

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

KEPT = 64 << 20
"""Bytes that stay, or those of one call where it needs more."""


class Pool:
    """How much the calls since it was last emptied may have left."""

    def __init__(self, empty: Callable[[], None]) -> None:
        """`empty` gives back what is not in use."""
        self._empty = empty
        self._lock = threading.Lock()
        self._calls: set[Hashable] = set()
        self._bytes = 0

    def before(self, call: Hashable, need: int) -> None:
        """A call of this kind and size is about to take at most so many bytes."""
        with self._lock:
            if call in self._calls:
                return
            if self._bytes + need > KEPT:
                self._forget()
            self._calls.add(call)
            self._bytes += need

    def clear(self) -> None:
        """Give back all that is not in use."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._calls:
            self._empty()
        self._calls.clear()
        self._bytes = 0


def _empty() -> None:
    tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()


POOL = Pool(_empty)
