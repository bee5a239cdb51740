"""Run compiled object files: load them from bytes, call their functions from any thread.

The bytes go through LLVM's ORC JIT linker, so that neither a compiler nor a linker nor `import tvm`
is needed; of TVM only the runtime library is loaded. May import: numpy, tvm_ffi, tvm_ffi_orcjit,
the standard library, tfgraph.errors.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import tvm_ffi
from tvm_ffi_orcjit import ExecutionSession

from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.runtime.cores import available_cores, default_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT = 64
"""Bytes. Kernels load whole cache lines, so every buffer they see starts at a multiple of this."""

_CPU, _NAIVE_ALLOCATOR = 1, 1  # the DLPack device type, and the allocator that keeps no free lists
_SHARE_ALL_CORES = -3  # thread-pool mode: the workers float over the cores that are listed


class Program:
    """Loaded object files, whose functions run on `threads` threads each.

    Any number of Python threads may call it at once: each gets a virtual machine and a thread pool
    of its own, and the GIL is free while kernels run. The same inputs give the same bits at every
    thread count.
    """

    def __init__(self, objects: Sequence[bytes], threads: int | None = None) -> None:
        """Link `objects`; `threads` defaults to the physical cores this process may use."""
        cores = len(available_cores())
        if threads is not None and not 1 <= threads <= cores:
            raise TfgraphError(
                f"threads: expected 1 to {cores}, the CPUs this process may use; got {threads}"
            )
        self.threads = threads or default_threads()
        _load_runtime()
        # The session asks a C++ compiler for its libraries; our objects need none, so name none.
        self._session: Any = ExecutionSession()
        self._library: Any = self._session.load_module(list(objects), cxx="no-compiler-needed")
        self._local: threading.local | None = threading.local()

    def call(self, function: str, args: Sequence[Array | int | tvm_ffi.Tensor]) -> list[Array]:
        """The results of `function` as arrays that the caller owns.

        Arrays are passed without a copy where they are aligned, contiguous and writable (see
        `as_tensor`, which also saves the conversion of arguments used again and again). Their
        dtypes and shapes must be right: check them before.
        """
        run = self._function(function)
        converted = [_argument(arg) for arg in args]
        _use_threads(self.threads)
        result = run(*converted)
        results = [result] if isinstance(result, tvm_ffi.Tensor) else list(result)
        return [np.from_dlpack(tensor) for tensor in results]

    def close(self) -> None:
        """Free the code; calls under way in other threads still finish."""
        self._local = self._library = self._session = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _function(self, name: str) -> Any:
        """`name` in this thread's virtual machine. One machine must never serve two threads."""
        local, library = self._local, self._library
        if local is None or library is None:
            raise TfgraphError("this program is closed")
        functions: dict[str, Any] | None = getattr(local, "functions", None)
        if functions is None:
            machine = library["vm_load_executable"]()
            machine["vm_initialization"](_CPU, 0, _NAIVE_ALLOCATOR)
            local.machine = machine
            local.functions = functions = {}
        if name not in functions:
            try:
                functions[name] = local.machine[name]
            except AttributeError as error:
                raise TfgraphError(f"the compiled program has no function '{name}'") from error
        return functions[name]


def _argument(value: Array | int | tvm_ffi.Tensor) -> tvm_ffi.Tensor | int:
    if isinstance(value, np.ndarray):
        return as_tensor(value)
    return value if isinstance(value, tvm_ffi.Tensor) else int(value)


def as_tensor(array: Array) -> tvm_ffi.Tensor:
    """`array` for `Program.call`: the same memory where the kernels can use it, else a copy.

    A copy is made of what is not contiguous, not aligned to 64 bytes or read-only (map weights
    with `mode="c"`). The tensor keeps the memory alive.
    """
    usable = array.flags.c_contiguous and array.flags.writeable
    if not usable or array.ctypes.data % ALIGNMENT:
        copy = aligned_empty(array.shape, array.dtype)
        copy[...] = array
        array = copy
    return tvm_ffi.from_dlpack(array, require_alignment=ALIGNMENT, require_contiguous=True)


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An uninitialised C-contiguous array that starts at a multiple of 64 bytes."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


@cache
def _load_runtime() -> None:
    """Load TVM's runtime library, which registers the virtual machine, without importing tvm."""
    # Otherwise TVM changes the affinity of the threads that call it. Read at each configuration.
    os.environ["TVM_BIND_THREADS"] = "0"
    package = importlib.util.find_spec("tvm")
    if package is None or package.origin is None:
        raise MissingTool("TVM's runtime is not installed", hint="pip install apache-tvm")
    library = Path(package.origin).parent / "lib" / "libtvm_runtime.so"
    try:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MissingTool(f"TVM's runtime library cannot be loaded: {error}") from error


_pool = threading.local()


def _use_threads(count: int) -> None:
    """Let parallel kernels that this thread calls run on `count` threads.

    TVM gives each calling thread a pool of its own, whose size the first configuration fixes and
    later ones can only lower: so the first asks for every core, and workers not needed sleep.
    """
    if getattr(_pool, "count", None) == count:
        return
    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    counts = (count,) if hasattr(_pool, "count") else (max(count, default_threads()), count)
    for n in counts:
        configure(_SHARE_ALL_CORES, n, [str(core) for core in range(n)])
    _pool.count = count
