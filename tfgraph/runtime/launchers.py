"""The threads that launch kernels which run on several threads.

TVM ties a pool of workers to each thread that launches kernels. Were that the thread of whoever
calls, each caller would bring workers of its own, more of them than there are CPUs; and a process
forked off such a thread has the pool but not the workers, and hangs when it exits. So they are
threads of our own: as many as the CPUs are enough for, shared by all models. May import: tvm_ffi,
the standard library, cores.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import tvm_ffi

from tfgraph.runtime.cores import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARE_ALL_CORES = -3  # thread-pool mode: the workers float over the cores that are listed

_made: dict[tuple[int, ...], ThreadPoolExecutor] = {}
_own = threading.local()

# Held while launchers are made and code is linked: a fork waits for it, since a lock that another
# thread held in TVM or LLVM would stay locked for ever in the child.
LOADING = threading.RLock()


def launchers(threads: int) -> Callable[..., Any]:
    """A function that calls what it is given, whose kernels run on `threads` threads.

    With one thread the caller does it itself. With more a launcher does, on the CPUs that the
    thread which asks for it may use now; where all are busy, the call waits its turn.
    """
    if threads == 1:
        return _here
    cores = available_cores()
    with LOADING:
        key = (threads, *cores)
        if key not in _made:
            most = max(1, len(cores) // threads)
            _made[key] = ThreadPoolExecutor(most, "tfgraph", _prepare, (threads, cores))
        return partial(_there, _made[key])


def _there(pool: ThreadPoolExecutor, work: Callable[..., Any], *args: Any) -> Any:
    return pool.submit(work, *args).result()


def _here(work: Callable[..., Any], *args: Any) -> Any:
    _use_threads(1)
    return work(*args)


def _prepare(threads: int, cores: list[int]) -> None:
    with suppress(AttributeError, OSError):  # not on this system; a CPU that was taken away since
        os.sched_setaffinity(0, cores)
    _use_threads(threads)


def _use_threads(count: int) -> None:
    """Let kernels that this thread launches run on `count` threads, itself among them.

    The first configuration fixes how many there are: it is always the same for one thread.
    """
    if not hasattr(_own, "configured"):
        configure = tvm_ffi.get_global_func("runtime.config_threadpool")
        configure(_SHARE_ALL_CORES, count, [str(core) for core in range(count)])
        _own.configured = True


def _after_fork() -> None:
    _made.clear()  # the launchers were left in the parent
    LOADING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=_after_fork
    )
