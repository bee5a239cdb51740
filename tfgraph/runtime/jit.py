"""Run compiled object files: load them from bytes, call their functions from any thread.

The bytes go through LLVM's ORC JIT linker, so that neither a compiler nor a linker nor `import tvm`
is needed; of TVM only the runtime library is loaded. May import: numpy, ffi, place,
the standard library, tfgraph.errors.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.arrays import ALIGNMENT, aligned_empty
from tfgraph.runtime.cores import check_threads, default_threads
from tfgraph.runtime.ending import compiled_code
from tfgraph.runtime.ffi import ExecutionSession, tvm_ffi
from tfgraph.runtime.launchers import LOADING, launchers
from tfgraph.runtime.library import load_tvm_runtime
from tfgraph.runtime.memory import refuse_absurd
from tfgraph.runtime.overlap import check_states
from tfgraph.runtime.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Observer: TypeAlias = "Callable[[str, bool], None]"
"""Told of each kernel by its name, with True before it runs and with False after; and so of what is
called between kernels, for memory, shapes and sizes."""

NO_COMPILER = "/dev/null/none"
_CPU, _NAIVE_ALLOCATOR = 1, 1  # the DLPack device type, and the allocator that keeps no free lists


class CodePlace(Place):
    """The CPU's memory as compiled code sees it, and where it runs; the place on a GPU,
    `tfgraph.runtime.cuda.place`, has the same methods."""

    machine: tuple[int, ...] = (_CPU, 0, _NAIVE_ALLOCATOR)
    """Devices and their allocators, as a virtual machine takes them."""

    def tensor(self, array: Any) -> tvm_ffi.Tensor:
        """An argument for compiled code."""
        return as_tensor(array)

    def lasting(self, array: Any) -> tvm_ffi.Tensor | None:
        """The argument for an array, if compiled code reads and writes it where it lies."""
        return as_tensor(array) if is_readable(array) else None

    def returned(self, given: Mapping[str, Any]) -> Callable[[tvm_ffi.Tensor], Any]:
        """What makes arrays of the results of a call that was given these."""
        return np.from_dlpack

    def update(self, target: Any, result: tvm_ffi.Tensor) -> bool:
        """Copy a result to where it belongs, a state or an array of the caller's, if kernels did
        not write that itself; whether so."""
        array = np.from_dlpack(result)
        moved = bool(target.__array_interface__["data"] != array.__array_interface__["data"])
        if moved:
            np.copyto(target, array)
        return moved

    def check_states(self, states: AbstractSet[str], arrays: Mapping[str, Any]) -> None:
        """Raise TfgraphError for a state that cannot be written in place; see `overlap`."""
        check_states(states, arrays)

    def refuse_absurd(self, need: int, what: str, sizes: Mapping[str, int]) -> None:
        """Raise TfgraphError where there is no room for so many bytes."""
        refuse_absurd(need, what, sizes)

    def loading(self) -> AbstractContextManager[None]:
        """Around the loading of objects."""
        return nullcontext()

    def running(self, name: str) -> AbstractContextManager[None]:
        """Around a call of the program of that name."""
        return nullcontext()


class Program:
    """Loaded object files, whose functions run on `threads` threads each.

    Any number of Python threads may call it at once, and the GIL is free while kernels run; see
    `tfgraph.runtime.launchers`. The same inputs give the same bits at every thread count.
    """

    def __init__(
        self,
        objects: Sequence[bytes],
        threads: int | None = None,
        name: str = "this program",
        place: CodePlace | None = None,
    ) -> None:
        """Link `objects`; `threads` defaults to the physical cores this process may use, `name` is
        what errors call it, and `place` where it runs, by default the CPU. Raises TfgraphError for
        more threads than CPUs."""
        self.threads = check_threads(threads) or default_threads()
        self.name = name
        self.place = place or CodePlace()
        self.observer: Observer | None = None
        self._process = os.getpid()
        with compiled_code(f"loading {name}"):
            load_tvm_runtime()
            self._launch = launchers(self.threads)
            self._code: _Code | None = _Code(objects, name, self.place)

    def call(self, function: str, args: Sequence[Array | int | tvm_ffi.Tensor]) -> list[Array]:
        """The results of `function` as arrays that the caller owns.

        Arrays are passed without a copy where they are aligned, contiguous and writable (see
        `as_tensor`, which makes what is used again and again a tensor once). Their dtypes and
        shapes must be right: check them before. Raises TfgraphError where it is closed, in a
        process that was forked after it was loaded, and when the interpreter ends.
        """
        return [np.from_dlpack(tensor) for tensor in self.run(function, [*map(_argument, args)])]

    def run(
        self,
        function: str,
        args: Sequence[int | tvm_ffi.Tensor],
        wanted: Sequence[int] | None = None,
    ) -> Sequence[tvm_ffi.Tensor]:
        """As `call`, of tensors: the results as tensors, those at the places `wanted` or all."""
        if os.getpid() != self._process:
            raise TfgraphError(
                f"{self.name} was loaded before this process was forked off",
                hint="load it in this process, or start processes by 'spawn' instead of 'fork'",
            )
        code = self._code
        if code is None:
            raise TfgraphError(f"{self.name} is closed")
        with compiled_code(f"calling {self.name}"), self.place.running(self.name):
            results: Sequence[tvm_ffi.Tensor] = self._launch(
                code.run, function, args, wanted, self.observer
            )
        return results

    def close(self) -> None:
        """Free the code; calls under way in other threads still finish."""
        self._code = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Code:
    """Linked code. One virtual machine must never serve two threads, so each has one of its own."""

    def __init__(self, objects: Sequence[bytes], name: str, place: CodePlace) -> None:
        self._name, self._machine = name, place.machine
        self._local = threading.local()
        with LOADING, place.loading():
            # The session starts a C++ compiler, which it asks for its libraries. Our objects need
            # none: it is given a name that no file can have, wherever PATH leads.
            self._session: Any = ExecutionSession()
            try:
                found = self._session.load_module(list(objects), cxx=NO_COMPILER)
            except RuntimeError as cause:
                raise TfgraphError(f"{name} cannot be linked: {cause}") from cause
            self._library: Any = found

    def run(
        self,
        function: str,
        args: Sequence[int | tvm_ffi.Tensor],
        wanted: Sequence[int] | None,
        observer: Observer | None,
    ) -> Sequence[tvm_ffi.Tensor]:
        """See `Program.run`."""
        result = self._function(function, observer)(*args)
        results = [result] if isinstance(result, tvm_ffi.Tensor) else result
        return list(results) if wanted is None else [results[place] for place in wanted]

    def _function(self, name: str, observer: Observer | None) -> Any:
        """`name` in this thread's virtual machine; in one of its own where that is observed."""
        machines: dict[Any, tuple[Any, dict[str, Any]]] = vars(self._local).setdefault("made", {})
        if observer not in machines:
            with LOADING:
                machine = self._library["vm_load_executable"]()
                machine["vm_initialization"](*self._machine)
            if observer is not None:
                machine["set_instrument"](_instrument(observer))
            machines[observer] = machine, {}
        machine, functions = machines[observer]
        if name not in functions:
            try:
                functions[name] = machine[name]
            except AttributeError as error:
                raise TfgraphError(f"{self._name} has no function '{name}'") from error
        return functions[name]


def _instrument(observer: Observer) -> Any:
    """What the virtual machine calls before and after each function."""

    def called(_function: Any, name: str, before: bool, *_: Any) -> int:
        observer(name, bool(before))
        return 0  # go on

    return called


def _argument(value: Array | int | tvm_ffi.Tensor) -> tvm_ffi.Tensor | int:
    if isinstance(value, np.ndarray):
        return as_tensor(value)
    return value if isinstance(value, tvm_ffi.Tensor) else int(value)


def is_readable(array: Array) -> bool:
    """Whether compiled code reads and writes it where it lies: contiguous, writable, aligned."""
    usable = array.flags.c_contiguous and array.flags.writeable
    return usable and not array.ctypes.data % ALIGNMENT


def as_tensor(array: Array) -> tvm_ffi.Tensor:
    """`array` for `Program.call`: the same memory where the kernels can use it, else a copy.

    A copy is made of what is not contiguous, not aligned to 64 bytes or read-only (map weights
    with `mode="c"`). The tensor keeps the memory alive.
    """
    if not is_readable(array):
        copy = aligned_empty(array.shape, array.dtype)
        copy[...] = array
        array = copy
    return tvm_ffi.from_dlpack(array, require_alignment=ALIGNMENT, require_contiguous=True)
