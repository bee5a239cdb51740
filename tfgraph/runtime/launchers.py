"""The threads that launch kernels which run on several threads.

TVM ties a pool of workers to each thread that launches kernels. Were that the thread of whoever
calls, each caller would bring workers of its own, more of them than there are CPUs; and a process
forked off such a thread has the pool but not the workers, and hangs when it exits. So they are
threads of our own: as many as the CPUs are enough for, shared by all models. They are daemons, not
those of `concurrent.futures`, which serve nobody once the main thread has ended. May import:
tvm_ffi, the standard library, cores, ending.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tfgraph.runtime.cores import available_cores, cpu_budget
from tfgraph.runtime.ending import at_the_end, ending
from tfgraph.runtime.ffi import tvm_ffi

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARE_ALL_CORES = -3  # thread-pool mode: the workers float over the cores that are listed

_made: dict[tuple[int, ...], _Launchers] = {}
_own = threading.local()

# Held while launchers are made and code is linked: a fork waits for it, since a lock that another
# thread held in TVM or LLVM would stay locked for ever in the child.
LOADING = threading.RLock()


def launchers(threads: int) -> Callable[..., Any]:
    """A function that calls what it is given, whose kernels run on `threads` threads.

    With one thread the caller does it itself. With more a launcher does, on the CPUs that the
    thread which asks for it may use now; where all are busy, the call waits its turn. When it
    returns, or is interrupted, what it was given is no longer used.
    """
    if threads == 1:
        return _here
    cores = available_cores()
    with LOADING:
        key = (threads, *cores)
        if key not in _made:
            _made[key] = _Launchers(threads, cores)
        return _made[key].run


def _here(work: Callable[..., Any], *args: Any) -> Any:
    _use_threads(1)
    return work(*args)


class _Launchers:
    """As many threads as calls are under way, up to what the cores are enough for."""

    def __init__(self, threads: int, cores: list[int]) -> None:
        self._threads = threads
        self._cores = cores
        self._most = max(1, min(len(cores), cpu_budget()) // threads)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()  # of the two that follow
        self._unfinished = 0
        self._started: list[threading.Thread] = []

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """work(*args), by one of the threads."""
        call = _Call(partial(work, *args))
        try:
            self._hand_over(call)
            call.wait()
        except BaseException:  # Ctrl-C; the caller's arrays are the caller's again
            call.withdraw()
            raise
        return call.outcome()

    def stop(self) -> None:
        """End the threads, and TVM's workers with them."""
        with self._lock:
            for _ in self._started:
                self._calls.put(None)
        for thread in self._started:
            thread.join()

    def _hand_over(self, call: _Call) -> None:
        with self._lock:
            if len(self._started) < min(self._unfinished + 1, self._most):
                thread = threading.Thread(target=self._serve, name="tfgraph", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # Python 3.12 starts none once the main thread has ended
                    if not self._started:
                        raise ending("a first call on several threads") from None
                else:
                    self._started.append(thread)
            self._unfinished += 1
            self._calls.put(call)

    def _serve(self) -> None:
        with suppress(AttributeError, OSError):  # not on this system; a CPU taken away since
            os.sched_setaffinity(0, self._cores)
        while (call := self._calls.get()) is not None:
            call.run(self._threads)
            with self._lock:
                self._unfinished -= 1
            del call  # and the arrays that it holds


class _Call:
    """One call, handed over to a launcher."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self._claim = threading.Lock()  # taken by the launcher that runs it or who withdraws it
        self._finished = False
        self._end = threading.Lock()
        self._end.acquire()

    def run(self, threads: int) -> None:
        """Run it, unless it was withdrawn."""
        if self._claim.acquire(blocking=False):
            try:
                _use_threads(threads)
                self._result = self._work()
            except BaseException as error:
                self._error = error
            self._finished = True
            self._end.release()

    def wait(self) -> None:
        """Until it was run."""
        self._end.acquire()

    def withdraw(self) -> None:
        """See to it that it does not run, or not any more: one that runs is waited for."""
        while not self._finished and not self._claim.acquire(blocking=False):
            with suppress(BaseException):  # a second Ctrl-C
                self.wait()

    def outcome(self) -> Any:
        """What it returned, or raises what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


def _use_threads(count: int) -> None:
    """Let kernels that this thread launches run on `count` threads, itself among them.

    The first configuration fixes how many there are: it is always the same for one thread.
    """
    if not hasattr(_own, "configured"):
        configure = tvm_ffi.get_global_func("runtime.config_threadpool")
        configure(_SHARE_ALL_CORES, count, [str(core) for core in range(count)])
        _own.configured = True


@at_the_end
def _stop() -> None:
    for made in _made.values():
        made.stop()


def _after_fork() -> None:
    _made.clear()  # the launchers were left in the parent
    LOADING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=_after_fork
    )
