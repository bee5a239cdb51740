"""The few words that our CUDA kernels are written in, over TVM's `ir_builder`.

    with kernel("softmax") as k:
        x = k.buffer("x", (k.dim("rows"), width))
        out = k.buffer("out", (k.dim("rows"), width))
        with k.launch(blocks=(k.dim("rows"),), threads=256) as (row, thread):
            ...
    k.function        # the PrimFunc, already scheduled

`ir_builder` is used rather than TVMScript: without a parser a kernel is built in milliseconds.
Barriers are explicit: `barrier()` stands wherever one thread reads what another has written.
May import: tvm, narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

from tfgraph.backends.tvm.narrow import rounded, widened

WARP_SIZE = 32
CHOICES = "tfgraph.choices"
"""The attribute of a PrimFunc that says when its host launches which of its kernels."""
REMARK = "REMARK"
"""What stands in TVM's output in place of a comment, which `source` makes of it."""
LOWEST = -3.4028234663852886e38
"""The most negative float32. Row maxima start here, not at -inf: -inf - -inf would be NaN."""

Dim = int | str
"""A size that is known (int) or the name of a symbol (str, an int64 read from the arguments)."""


class Kernel:
    """One kernel under construction; see the module's docstring. Made by `kernel`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.function: Any = None
        self.conditions: list[str] = []
        """Of each launch in turn, when the host makes it; "" if nothing before it holds."""
        self._condition = ""
        self._on_host = False
        self._symbols: dict[str, Any] = {}

    def dim(self, size: Dim) -> Any:
        """An integer as it is, a name as its int64 variable (the same one each time)."""
        if isinstance(size, int):
            return size
        return self._symbols.setdefault(size, tirx.Var(size, "int64"))

    def dims(self, sizes: Sequence[Dim]) -> list[Any]:
        """`dim` of each."""
        return [self.dim(size) for size in sizes]

    def buffer(self, name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
        """The next parameter: a tensor, dense in row-major order."""
        return T.arg(name, T.buffer(tuple(shape), dtype, buffer_name=name))

    def scalar(self, name: str) -> Any:
        """The next parameter: an int64 scalar."""
        return T.arg(name, self.dim(name))

    def choose(self, *cases: tuple[Any, Callable[[], None]]) -> None:
        """The host launches what stands behind the first condition that holds; the last is None.

        What never is launched is left out.
        """
        cases = tuple(_decided(cases))
        with self._host():
            self._on_host = True
            self._choose(cases)

    def _choose(self, cases: Sequence[tuple[Any, Callable[[], None]]]) -> None:
        (condition, body), *others = cases
        if condition is None:
            self._case(condition, body)
        else:
            branch(condition, lambda: self._case(condition, body), lambda: self._choose(others))

    def _case(self, condition: Any, body: Callable[[], None]) -> None:
        self._condition = "" if condition is None else str(condition)
        body()

    @contextmanager
    def _host(self) -> Generator[None]:
        with T.sblock("root"):  # call_tir asks for a root block
            T.reads()
            T.writes()
            yield

    @contextmanager
    def launch(self, *, blocks: Sequence[Any], threads: int) -> Generator[tuple[Any, ...]]:
        """The body, run by a grid of up to three block axes; gives the indices, thread last."""
        with ExitStack() as stack:
            self.conditions.append(self._condition)
            if not self._on_host:
                stack.enter_context(self._host())
            axes = [
                stack.enter_context(T.launch_thread(f"blockIdx.{axis}", extent))
                for axis, extent in zip("xyz", blocks, strict=False)
            ]
            yield (*axes, stack.enter_context(T.launch_thread("threadIdx.x", threads)))


@contextmanager
def kernel(name: str) -> Generator[Kernel]:
    """Build one PrimFunc called `name`; it is in `.function` afterwards."""
    made = Kernel(name)
    with IRBuilder() as builder:
        with T.prim_func(is_private=True, s_tir=True):
            T.func_name(name)
            T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
            yield made
    made.function = builder.get()
    if any(made.conditions):
        made.function = made.function.with_attr(CHOICES, made.conditions)


def _decided(
    cases: Sequence[tuple[Any, Callable[[], None]]],
) -> Generator[tuple[Any, Callable[[], None]]]:
    """The cases up to the first that always holds, without those that never do."""
    for condition, body in cases:
        known = None if condition is None else Analyzer().simplify(condition)
        if condition is None or (isinstance(known, tirx.IntImm) and known.value):
            yield None, body
            return
        if not isinstance(known, tirx.IntImm):
            yield condition, body


def product(sizes: Sequence[Any]) -> Any:
    """The product of sizes, integers and variables alike; 1 of none."""
    total: Any = 1
    for size in sizes:
        total = size if isinstance(total, int) and total == 1 else total * size
    return total


def flat(buffer: Any, shape: Sequence[Any]) -> Any:
    """The same memory as `buffer`, seen in another shape with as many elements."""
    return _named(
        f"{buffer.name}_flat",
        T.decl_buffer(tuple(shape), buffer.dtype, data=buffer.data),
    )


def shared(
    name: str, shape: Sequence[int], dtype: str = "float32", *, dynamic: bool = False
) -> Any:
    """An array that all threads of the block see. A block has one `dynamic` array at most, and with
    it more than 48 KiB; its name says its type, since a file declares a name once."""
    if dynamic:
        name, scope = f"{name}_{dtype}", "shared.dyn"
    else:
        scope = "shared"
    return _named(name, T.alloc_buffer(tuple(shape), dtype, scope=scope))


def workspace(name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
    """An array in the GPU's memory through which one launch of a kernel hands over to the next; to
    be declared on the host."""
    return _named(name, T.alloc_buffer(tuple(shape), dtype, scope="global"))


def local(name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    """An array of one thread; registers once the loops over it are unrolled."""
    return _named(name, T.alloc_buffer(tuple(shape), dtype, scope="local"))


def let(name: str, value: Any) -> Any:
    """A named number: a register, since TVM would write out a bound value wherever it is used."""
    value = tirx.const(value, "int64") if isinstance(value, int) else value
    register = local(name, (1,), str(value.ty.dtype))
    store(register, [0], value)
    return register[0]


def split(thread: Any, load: Any, width: int, threads: int, names: tuple[str, str]) -> list[Any]:
    """Item load * threads + thread of a matrix of that width, as a row and a column of these names.

    Where the width divides the threads, rows are a fixed distance apart: one address serves all.
    """
    if threads % width == 0:
        row = load * (threads // width) + tirx.truncdiv(thread, width)
        column = tirx.truncmod(thread, width)
    else:
        item = let("item", load * threads + thread)
        row, column = tirx.truncdiv(item, width), tirx.truncmod(item, width)
    return [let(names[0], row), let(names[1], column)]


def remark(text: str) -> None:
    """A comment in the source."""
    T.evaluate(tirx.call_extern("void", REMARK, ir.StringImm(text)))


def address(buffer: Any, *indices: Any) -> Any:
    """&buffer[indices]."""
    return tirx.address_of(buffer[indices])


def call(name: str, *arguments: Any) -> None:
    """A statement that calls a function of the prelude, `ptx.cuh`."""
    T.evaluate(tirx.call_extern("void", name, *arguments))


def load(buffer: Any, *indices: Any) -> Any:
    """buffer[indices], floats of 16 bits as float32."""
    return widened(buffer[indices])


def store(buffer: Any, indices: Sequence[Any], value: Any) -> None:
    """buffer[indices] = value, a float32 rounded to the buffer's type."""
    T.buffer_store(buffer, rounded(value, str(buffer.dtype)), list(indices))


def barrier() -> None:
    """__syncthreads(): all threads of the block wait for each other. Never inside `when`."""
    T.evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared"))


@contextmanager
def when(condition: Any) -> Generator[None]:
    """if (condition) { ... }"""
    with T.If(condition), T.Then():
        yield


def branch(condition: Any, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    """if (condition) { then } else { otherwise }"""
    with T.If(condition):
        with T.Then():
            then()
        with T.Else():
            otherwise()


@contextmanager
def loop(name: str, extent: Any, *, unroll: bool | None = None) -> Generator[Any]:
    """for (name = 0; name < extent; ++name), with `#pragma unroll` on request; False forbids it to
    the compiler, which else unrolls what has few turns."""
    if unroll is False:
        remark("#pragma unroll 1")
    with (T.unroll if unroll else T.serial)(0, extent) as index:
        yield _named(name, index)


def f32(value: float) -> Any:
    """A float32 constant, rounded here: nvcc warns of literals that float32 does not hold."""
    return tirx.const(float(np.float32(value)), "float32")


def guarded(condition: Any, value: Any, otherwise: Any) -> Any:
    """condition ? value : otherwise; memory in `value` is read only if the condition holds."""
    return tirx.if_then_else(condition, value, otherwise)


def pick(condition: Any, value: Any, otherwise: Any) -> Any:
    """condition ? value : otherwise, both computed."""
    return tirx.Select(condition, value, otherwise)


def both(*conditions: Any) -> Any:
    """All of these conditions; at least one has to be given."""
    return tirx.all(*conditions) if len(conditions) > 1 else conditions[0]


def shuffle_xor(value: Any, lane_mask: int, width: int = WARP_SIZE) -> Any:
    """What the lane holds whose number differs by `lane_mask`; all lanes of the warp take part."""
    return tirx.call_intrin(
        "float32",
        "tirx.tvm_warp_shuffle_xor",
        tirx.const(0xFFFFFFFF, "uint32"),
        value,
        lane_mask,
        width,
        WARP_SIZE,
    )


def reduce_lanes(buffer: Any, index: int, combine: Callable[[Any, Any], Any], width: int) -> None:
    """Combine buffer[index] over each group of `width` neighbouring lanes; all get the result."""
    step = width // 2
    while step:
        store(buffer, [index], combine(buffer[index], shuffle_xor(buffer[index], step, width)))
        step //= 2


def reduction_depth(threads: int) -> int:
    """How many additions a number passes through in a `BlockReduction`."""
    return WARP_SIZE.bit_length() - 1 + threads // WARP_SIZE - 1


class BlockReduction:
    """Sums and maxima over all threads of a block: shuffles in each warp, then shared memory.

    To be used by straight code, not in a loop: the first use has no barrier before it.
    """

    def __init__(self, thread: Any, threads: int) -> None:
        self._used = False
        self._thread, self._warps = thread, threads // WARP_SIZE
        self._of_warp = shared("of_warp", (self._warps,))

    def __call__(self, name: str, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """The combination `name` of every thread's `value`, given to every thread.

        Each thread combines the warps' results in the same order, so all get the same bits.
        """
        result = local(name, (1,))
        store(result, [0], value)
        reduce_lanes(result, 0, combine, WARP_SIZE)
        if self._used:
            barrier()  # everyone has read the last reduction's partial results
        self._used = True
        with when(tirx.EQ(tirx.truncmod(self._thread, WARP_SIZE), 0)):
            store(self._of_warp, [tirx.truncdiv(self._thread, WARP_SIZE)], result[0])
        barrier()
        store(result, [0], self._of_warp[0])
        for warp in range(1, self._warps):
            store(result, [0], combine(result[0], self._of_warp[warp]))
        return result[0]


def _named(name: str, value: Any) -> Any:
    IRBuilder.name(name, value)
    return value
