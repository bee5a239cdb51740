"""Two graphs of the same inputs, run on random ones: in a finite field, or in float64.

May import: reaches, sizes, structure, text, ops, ir; numpy.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType
from tfgraph.ops import FloatArray, evaluate, in_float64
from tfgraph.ops.field import Draw, FieldArray, NotInField, Redraw
from tfgraph.ops.field.draw import FEW, MANY
from tfgraph.ops.generators import generator
from tfgraph.ops.indices import index_ranges
from tfgraph.parallel import one_blas_thread
from tfgraph.passes.reaches import far_lengths, with_nearer_masks
from tfgraph.passes.sizes import Sizes
from tfgraph.passes.structure import in_parts
from tfgraph.text import print_graph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Graph, Input, Value

    NDArray = np.ndarray[Any, Any]

DRAWS, MOST_DRAWS = 3, 12
LARGEST = 1 << 24
"""Elements of an input that are drawn at most."""
_OF_EXP = ("exp", "softmax")
"""The core ops whose bodies call exp. Of one that is not listed an exponent is a random number."""

_FEW, _WIDE = (0, 2), (-4, 8)
"""What integers are drawn from where nothing is known of them, in turn: half of the keys of a mask
are hidden by the first; the second tells x from x x, and other numbers from 1."""


Found = tuple[float, tuple[str, ...]]
"""The probability that different graphs would agree as these did, and the random functions that
took part."""


def agree_in_field(before: Graph, after: Graph, enough: float) -> Found | str:
    """How sure it is that both are the same; or how the outputs differ. Raises NotInField."""
    nearer = with_nearer_masks(before, after)
    with one_blas_thread():  # of many small products
        found = "" if nearer is None else _agree_in_field(*nearer, enough)
        if isinstance(found, str) and found:
            return f"{found}, with far reaches of masks taken for nearer ones"
        return _agree_in_field(before, after, enough)


def _agree_in_field(before: Graph, after: Graph, enough: float) -> Found | str:
    error, opaque, counted, primes = 1.0, set[str](), 0, FEW
    far, points = far_lengths(before, after), Sizes(before, after)
    exponents = any(n.op in _OF_EXP for g in (before, after) for n in in_parts(g).nodes)
    key = hashlib.sha256((print_graph(before) + print_graph(after)).encode()).digest()
    for attempt in range(4 * MOST_DRAWS):
        seed = int.from_bytes(key[:6], "little") + attempt
        # Lengths beyond the reach of masks that differ are drawn last, since they take longest.
        length = far[-1] if far and counted >= DRAWS else None
        sizes = points.at(attempt, length)
        if sizes is None:
            continue
        try:
            draw = Draw(seed, exponents, primes)
            given = {
                item.value.name: _drawn(draw, before, after, item, sizes, attempt)
                for item in before.inputs
            }
            like = FieldArray.integers(draw, np.zeros((), np.int64))
            pairs = [_outputs(g, given, sizes, like) for g in (before, after)]
        except Redraw:
            continue
        for output, a, b in zip(before.outputs, *pairs, strict=True):
            if difference := a.differs(b):
                return f"{difference} in {output.value.type} {_at(sizes)}".strip()
        if draw.masked and not draw.chosen:
            continue  # of one allowed key softmax says nothing
        error, opaque, counted = error * draw.error, opaque | set(draw.calls), counted + 1
        points.count(sizes)
        if draw.error > enough ** (1 / DRAWS):
            primes = MANY
        if length is not None:
            far.pop()  # not where the draw said nothing
        done = points.enough or counted >= MOST_DRAWS
        if not far and counted >= DRAWS and error < enough and done:
            return error, tuple(sorted(opaque))
    raise NotInField("the draws say too little")


def agree_in_floats(before: Graph, after: Graph) -> str:
    """How the outputs differ by more than rounding in float64; "" where they don't."""
    points, counted = Sizes(before, after), 0
    reason = "no small sizes meet the constraints"
    for attempt in range(4 * MOST_DRAWS):
        sizes, rng = points.at(attempt), np.random.default_rng(attempt)
        if sizes is None:
            continue
        given: dict[str, FloatArray] = {}
        for item in before.inputs:
            dtype, shape = item.value.type.dtype, _shape(item.value, sizes)
            if dtype.is_float:
                array = rng.standard_normal(shape)
            else:
                between = _between(before, after, item, sizes, attempt)
                array = rng.integers(*between, shape).astype(dtype.value)
            given[item.value.name] = FloatArray(array)
        like = FloatArray(np.zeros((), np.float64))
        try:
            pairs = [_outputs(in_float64(g), given, sizes, like) for g in (before, after)]
        except Redraw as refused:
            reason = str(refused)
            continue
        for output, a, b in zip(before.outputs, *pairs, strict=True):
            if not np.allclose(a.data, b.data, rtol=1e-9, atol=1e-12, equal_nan=True):
                return f"another value in {output.value.type} {_at(sizes)}".strip()
        counted += 1
        points.count(sizes)
        if counted >= MOST_DRAWS or (counted >= DRAWS and points.enough):
            return ""
    return f"no draw can be computed, {reason}" if not counted else ""


def _outputs(graph: Graph, given: Mapping[str, Any], sizes: Mapping[str, int], like: Any) -> Any:
    known = dict(given)
    wanted = {o.value.name for o in graph.outputs}
    try:
        for node, results in evaluate(graph, given, sizes, like):
            for value, result in zip(node.outputs, results, strict=True):
                if value.name in wanted:
                    known[value.name] = result
    except TfgraphError as refused:  # an index out of range, which a draw may give
        raise Redraw(refused.message) from refused
    return [known[o.value.name] for o in graph.outputs]


def _drawn(
    draw: Draw, before: Graph, after: Graph, item: Input, sizes: Mapping[str, int], attempt: int
) -> FieldArray:
    """A random input: any numbers, integers as their uses ask."""
    shape, dtype = _shape(item.value, sizes), item.value.type.dtype
    if math.prod(shape) > LARGEST:
        raise NotInField(f"{item.value.type} is too large to draw")
    if dtype.is_float:
        return FieldArray.variables(draw, dtype, shape)
    least, below = _between(before, after, item, sizes, attempt)
    integers = least + draw.integers(below - least, shape)
    return FieldArray.integers(draw, integers.astype(dtype.value))


def _between(
    before: Graph, after: Graph, item: Input, sizes: Mapping[str, int], attempt: int
) -> tuple[int, int]:
    """What integers are drawn from, the end not included: the rows of tables that they index,
    lengths, else few or more."""
    below: list[int] = []
    for graph in (before, after):
        fill = generator(graph, item, index_ranges(graph))
        if isinstance(fill.argument, Dim):
            below.append(fill.argument.evaluate(sizes) + 1)
        elif fill.kind == "ids" and fill.argument is not None:
            below.append(int(float(fill.argument)))
    if below:
        return 0, max(1, min(below))
    dtype = item.value.type.dtype
    if attempt % 2 == 0 or dtype == DType.bool_:
        return _FEW
    return (0, _WIDE[1]) if dtype == DType.uint8 else _WIDE


def _shape(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d.evaluate(sizes) for d in value.type.shape)


def _at(sizes: Mapping[str, int]) -> str:
    return "at " + ", ".join(f"{n}={size}" for n, size in sizes.items()) if sizes else ""
