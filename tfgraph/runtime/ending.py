"""The end of the interpreter: no compiled code may run then.

A daemon thread that comes back from C++ once Python has ended is unwound through it, which aborts
the process. So calls under way are waited for and further ones refused, by a function registered
with `atexit`: when the threads that are no daemons have ended, and after what was registered later.
May import: the standard library, errors.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable


class _Gate:
    """Counts who is inside, until it is closed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()  # `Mapped` may end in the midst of anything: reentrant
        self.inside = 0
        self.closed = False


_gate = _Gate()
_last: list[Callable[[], None]] = []
_kept: list[list[Any]] = []


@contextmanager
def compiled_code(what: str) -> Generator[None]:
    """Enters compiled code. Raises TfgraphError where the interpreter is ending; `what` says what
    is refused."""
    gate = _gate
    with gate.changed:
        if gate.closed:
            raise ending(what)
        gate.inside += 1
    try:
        yield
    finally:
        with gate.changed:
            gate.inside -= 1
            if gate.closed:
                gate.changed.notify_all()


class Mapped:
    """Tensors over mapped files. Their end leads through C++ to the unmapping, which lets another
    thread run, and so the interpreter end: it counts as compiled code, and does not come too late.
    """

    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors
        self._lists = [tensors]

    def chosen(self, places: Iterable[int]) -> list[Any]:
        """Some of the tensors, as a list that ends with them."""
        self._lists.append([self.tensors[place] for place in places])
        return self._lists[-1]

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if finalizing():  # no other thread runs any more; nor may the names of this module be there
            return
        try:
            with compiled_code("freeing tensors"):
                for tensors in self._lists:
                    tensors.clear()
        except TfgraphError:
            _kept.extend(self._lists)  # the system frees them


def ending(what: str) -> TfgraphError:
    """The error of who comes too late."""
    return TfgraphError(
        f"{what} is refused: the interpreter is ending",
        hint="end daemon threads first; a function for atexit is registered after the first load",
    )


def at_the_end(function: Callable[[], None]) -> None:
    """Call `function` when nobody is inside any more, nor will be."""
    _last.append(function)


@atexit.register
def _close() -> None:
    with _gate.changed:
        _gate.closed = True
        _gate.changed.wait_for(lambda: not _gate.inside)
    for function in _last:
        function()


def _after_fork() -> None:
    global _gate
    _gate = _Gate()  # those inside stayed in the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
