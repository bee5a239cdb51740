"""The memory that compiled code plans: storages, what each kernel writes into which, and the most
bytes that live at a time. It is read from the module in which TVM planned them.

A storage is freed once no tensor in it is used any more, nor a view of one. May import: tvm,
memory, generic, ir.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import ir, relax

from tfgraph.backends.memory import most
from tfgraph.backends.tvm.generic.dims import from_expr
from tfgraph.ir import as_dim

if TYPE_CHECKING:
    from tfgraph.ir import Dim


@dataclass(frozen=True)
class StoragePlan:
    """The bytes of each storage, the most that live at a time, and for each call of a kernel, in
    order, the storages of its results; those of a call in place are none."""

    sizes: tuple[Dim, ...]
    peak: Dim
    into: tuple[tuple[int, ...], ...]


def storage_plan(function: relax.Function) -> StoragePlan:
    """The plan of a Relax function after `KillAfterLastUse`."""
    walk = _Walk()
    for block in function.body.blocks:
        for binding in block.bindings:
            walk.binding(binding.var, binding.value)
    return StoragePlan(tuple(walk.sizes), most(walk.taken), tuple(walk.into))


class _Walk:
    """Follows the bindings: which storages live, and who uses them."""

    def __init__(self) -> None:
        self.sizes: list[Dim] = []
        self.taken: list[Dim] = []
        self.into: list[tuple[int, ...]] = []
        self._storage: dict[Any, int] = {}
        """Of a storage, a tensor or a view."""
        self._users: dict[int, set[Any]] = {}
        """The storages that live, and what keeps each alive."""
        self._new: list[int] = []
        """Where the tensors are that the next call makes."""

    def binding(self, var: Any, call: Any) -> None:
        """One binding."""
        if not isinstance(call, relax.Call):
            return
        if isinstance(call.op, ir.GlobalVar):
            self.into.append(tuple(self._new))
            self._new.clear()
            self.taken.append(sum((self.sizes[i] for i in self._users), start=as_dim(0)))
            return
        handle = _HANDLERS.get(call.op.name)
        if handle is not None:
            handle(self, var, call.args)

    def allocate(self, var: Any, args: Any) -> None:
        """A storage begins to live."""
        self._storage[var] = len(self.sizes)
        self._users[len(self.sizes)] = {var}
        self.sizes.append(from_expr(args[0].values[0]))

    def tensor(self, var: Any, args: Any) -> None:
        """A tensor in a storage."""
        self.view(var, args)
        self._new.append(self._storage[var])

    def view(self, var: Any, args: Any) -> None:
        """Another name of a tensor, or of a part of an input, which is not ours."""
        number = self._storage.get(args[0])
        if number is not None:
            self._storage[var] = number
            self._users[number].add(var)

    def end(self, _: Any, args: Any) -> None:
        """A storage, a tensor or a view that is not used any more."""
        number = self._storage.get(args[0])
        if number is not None:
            self._users[number].discard(args[0])
            if not self._users[number]:
                del self._users[number]


_HANDLERS: dict[str, Callable[[_Walk, Any, Any], None]] = {
    "relax.memory.alloc_storage": _Walk.allocate,
    "relax.memory.alloc_tensor": _Walk.tensor,
    "relax.reshape": _Walk.view,
    "relax.memory.kill_storage": _Walk.end,
    "relax.memory.kill_tensor": _Walk.end,
}
