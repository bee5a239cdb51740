"""A node of an op drawn from the registry: operands and attributes by what its schema says of them.

May import: ops, ir, errors.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import tfgraph.ops
from tfgraph.errors import TfgraphError
from tfgraph.fuzz.draft import Draft, Entry
from tfgraph.fuzz.guards import GUARDS, JUMPS, SAME_BITS, same_size
from tfgraph.ir import DType, as_dim, dim_min, exact
from tfgraph.ops import ACTIVATIONS, REGISTRY
from tfgraph.ops.define import apply_op
from tfgraph.ops.fused import LINEARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Dim, DimLike
    from tfgraph.ops import OpDef, Traced

SCALARS = (exact(2), exact(-1), exact(3), exact(Fraction(1, 2)), exact(0.1))
DTYPES = (DType.int64, DType.int32, DType.int8, DType.bool_)  # and the floats of the graph
_OPS = 12  # of a family
_LARGEST = {DType.float16: 3.5}  # as a power of ten; beyond it nothing grows
_LARGEST_OF_OTHERS = 6.0


def own_ops(kind: str | None = None) -> list[str]:
    """The names of this package's ops, of one kind (core, composite, fused) or of all; those of
    plugins left out, of which nobody has said when they are well-conditioned."""
    home = str(tfgraph.ops.__file__).removesuffix("__init__.py")
    return [
        name
        for name, definition in REGISTRY.items()
        if definition.location.file.startswith(home) and kind in (None, definition.kind)
    ]


def schema_node(f: Draft, tries: int = 60) -> None:
    """One more node, of an op drawn from the registry, whose operands its inference accepts.

    What jumps (comparisons, floor, top-k, casts to integers) reads only values that every backend
    has with the same bits: inputs, integers, and what moves or selects them.
    """
    names = f.swarm.some(own_ops(), _OPS)
    for _ in range(tries):
        definition = REGISTRY[f.pick(*names)]
        drawn = _operands(f, definition)
        if drawn is None:
            continue
        operands, entries = drawn
        guard = GUARDS.get(definition.name, same_size)
        size = guard(*(entry.size for entry in entries)) if entries else 1.0
        largest = _LARGEST.get(f.dtype, _LARGEST_OF_OTHERS)
        if size is None or (size > largest and definition.name not in SAME_BITS):
            continue
        if definition.name in JUMPS and not all(e.same for e in entries):
            continue
        try:
            attrs = _attrs(f, definition, operands)
            results = apply_op(definition, operands, attrs)
        except (TfgraphError, ValueError, ZeroDivisionError):
            continue
        several: tuple[Traced, ...] = results if isinstance(results, tuple) else (results,)  # pyright: ignore
        same = all(e.same for e in entries) and definition.name in SAME_BITS
        for result in several:
            if result.dtype != DType.int8 or size <= 2:  # else it is dead code
                f.add(result, size, same or not result.dtype.is_float)
        return


def _operands(f: Draft, definition: OpDef) -> tuple[list[Any], list[Entry]] | None:
    """Operands from the pool; the later ones fit the first more often than chance would have it."""
    operands: list[Any] = []
    entries: list[Entry] = []
    variadic = any(p.kind == p.VAR_POSITIONAL for p in definition.operands)
    count = int(f.rng.integers(1, 4)) if variadic else len(definition.operands)
    for i in range(count):
        parameter = definition.operand(i)
        allowed = str(parameter.annotation)
        if "Mask" in allowed:
            return None  # the blocks draw masks
        if "None" in allowed and f.chance(0.4):
            operands.append(None)
            continue
        if "ExactLike" in allowed and f.chance(0.25) and (entries or i + 1 < count):
            operands.append(f.pick(*SCALARS))
            continue
        entry = _operand(f, entries[0] if entries else None, definition.name, i)
        if entry is None:
            return None
        operands.append(entry.x)
        entries.append(entry)
    return operands, entries


def _operand(f: Draft, first: Entry | None, op: str, at: int) -> Entry | None:
    if first is None or (f.chance(0.1) and op not in ("take", "take_at")):
        return f.draw()
    shape = first.x.shape
    last: Dim = shape[-1] if shape else as_dim(1)
    if op in LINEARS and at == 1 and last.is_const:
        fits = [e for e in f.pool if e.x.value in f.weights and e.x.shape[:1] == (last,)]
        if len(fits) < 2:
            n = f.width()
            return f.param(int(last), n, std=0.3)
        return fits[int(f.rng.integers(len(fits)))]
    if op in ("take", "take_at"):  # ids that fit every axis
        if not shape:
            return None
        limit = dim_min(*shape)
        return f.input(f.pick("i64", "i32"), "batch", "seq", kind="ids", argument=limit)
    if last.is_const and f.chance(0.2):
        return f.param(int(last), kind=f.pick("normal", "ones", "zeros"))
    return f.draw(lambda e: e.x.shape == shape and e.x.dtype == first.x.dtype) or f.draw()


def _attrs(f: Draft, definition: OpDef, operands: Sequence[Any]) -> dict[str, Any]:
    """Attributes by their annotations, of values that may fit the first operand."""
    x: Traced | None = next((o for o in operands if hasattr(o, "shape")), None)
    shape: tuple[Dim, ...] = () if x is None else x.shape
    given: dict[str, Any] = {}
    for name, parameter in definition.attributes.items():
        annotation = str(parameter.annotation)
        if name == "perm":
            given[name] = tuple(int(i) for i in f.rng.permutation(len(shape)))
        elif name == "axis":
            given[name] = int(f.rng.integers(-len(shape), len(shape)))
        elif name == "shape":
            given[name] = _new_shape(f, definition.name, shape)
        elif name == "values":
            given[name] = tuple(f.pick(*SCALARS, exact(0)) for _ in range(6))
        elif name == "activation":
            given[name] = f.pick(*ACTIVATIONS)
        elif name == "stop":  # after axis and start
            axis: int = given["axis"]
            size = shape[axis]
            start, stop = f.pick((0, size), (0, 1), (size - 1, size))
            if size.is_const and int(size) > 1:
                start, stop = f.pick((start, stop), (1, size))
            given |= {"start": start, "stop": stop}
        elif name == "length":
            given[name] = f.pick("seq", "past", as_dim("past") + "seq", 5)
        elif name == "k":
            given[name] = f.pick(1, 2) if shape and shape[-1].is_const else 1
        elif name == "dtype":
            given[name] = f.pick(f.dtype, *DTYPES)
        elif name == "eps":
            given[name] = f.pick(1e-5, 1e-3)
        elif "bool" in annotation:
            given[name] = f.chance(0.5)
        elif "ExactLike" in annotation:
            given[name] = f.pick(*SCALARS, exact(0))
        elif parameter.default is parameter.empty:
            raise ValueError(f"{definition.name}: nothing is known about {name}: {annotation}")
    return given


def _new_shape(f: Draft, op: str, shape: tuple[Dim, ...]) -> tuple[DimLike, ...]:
    if op == "full":
        return f.pick((), (3,), ("seq",), ("batch", "seq", 8), ("past", 8))  # type: ignore[no-any-return]
    if op == "constant":  # of six values
        return f.pick((6,), (2, 3), (6, 1))  # type: ignore[no-any-return]
    if op == "broadcast_to":
        return f.pick(shape, ("batch", *shape), (2, *shape))  # type: ignore[no-any-return]
    wholes = [shape, (math.prod(shape, start=as_dim(1)),), (1, *shape), (*shape, 1)]
    if len(shape) > 1:
        wholes.append((shape[0] * shape[1], *shape[2:]))
    if shape and shape[-1].is_const and int(shape[-1]) % 2 == 0:
        wholes.append((*shape[:-1], as_dim(2), shape[-1] // 2))
    return f.pick(*wholes)  # type: ignore[no-any-return]
