"""Random graphs for the fuzzer: nodes drawn from the ops' own schemas, and blocks of Transformers.

Everything follows from one seed. Graphs are well-conditioned by construction: the fuzzer looks for
kernels that are wrong, and where float32 itself cannot give the answer, nothing can be told:

- each value has an upper bound of its size, as a power of ten, and nothing grows past `_LARGEST`;
- what jumps (comparisons, floor, top-k, casts to integers) reads only values that every backend has
  with the same bits: inputs, integers, and what moves or selects them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.fuzz_inputs import FILLS, Case
from helpers.op_samples import own_ops

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Fill, as_dim, dim_min, exact
from tfgraph.ops import ACTIVATIONS, REGISTRY, graph
from tfgraph.ops.define import apply_op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfgraph.ir import Dim, DimLike
    from tfgraph.ops import OpDef, Traced

NDArray = np.ndarray[Any, Any]

WIDTHS = (8, 24)  # few, so that graphs share kernels, whose compilation is what takes time
SCALARS = (exact(2), exact(-1), exact(3), exact(Fraction(1, 2)), exact(0.1))
DTYPES = (DType.float32, DType.int64, DType.int32, DType.int8, DType.bool_)
SYMBOLS = {"batch": 64, "seq": 512, "memory": 512, "past": 512}
_LARGEST = 6.0


@dataclass(frozen=True)
class Entry:
    """A value in the pool: its size as a power of ten; whether every backend has the same bits."""

    x: Traced
    size: float
    same: bool


@dataclass
class Fuzz:
    """A graph under construction, and the pool of values from which operands are drawn."""

    rng: np.random.Generator
    builder: Any = field(default_factory=lambda: graph("fuzz"))
    pool: list[Entry] = field(default_factory=list)
    fills: dict[str, tuple[str, Any]] = field(default_factory=dict)
    weights: list[Any] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def input(
        self, dtype: str, *shape: DimLike, kind: str | None = None, argument: Any = None
    ) -> Entry:
        """A new input in the pool."""
        name = f"x{len(self.fills)}"
        if kind is None:
            weights = np.array([6, 1, 1, 2, 1, 1, 1])
            kind = str(self.rng.choice(list(FILLS), p=weights / weights.sum()))
        x = self.builder.input(name, dtype, *shape)
        self.fills[name] = kind, argument
        return self.add(x, FILLS.get(kind, 2.0), same=True)

    def param(self, *shape: int, kind: str = "normal", std: float = 0.5) -> Entry:
        """A new weight in the pool."""
        fill = Fill(kind, exact(std) if kind == "normal" else None)
        x = self.builder.param(f"w{len(self.weights)}", "f32", *shape, fill=fill)
        self.weights.append(x.value)
        return self.add(x, 0.5, same=True)

    def add(self, x: Traced, size: float, same: bool = False) -> Entry:
        entry = Entry(x, size, same)
        self.pool.append(entry)
        return entry

    def draw(self, wanted: Callable[[Entry], bool] = lambda entry: True) -> Entry | None:
        """A value of the pool, rather a recent one."""
        found = [entry for entry in self.pool if wanted(entry)]
        if not found:
            return None
        return found[-1 - int(len(found) * self.rng.random() ** 2)]

    def size_of(self, x: Traced) -> float:
        """The size of a value, 0.7 (a normal one's) for a value that a block made."""
        return next((e.size for e in self.pool if e.x.value == x.value), 0.7)


def random_case(seed: int, recipes: Sequence[Callable[[Fuzz], None]] = ()) -> Case:
    """The graph of a seed: two to six draws of `recipes` and of ops by their schemas."""
    f = Fuzz(np.random.default_rng(seed))
    for name, high in SYMBOLS.items():
        f.builder.symbol(name, 1, high)
    width = f.pick(*WIDTHS) if f.chance(0.9) else f.pick(1, 3, 33)
    with f.builder:
        f.input("f32", "batch", "seq", width)
        if f.chance(0.5):
            f.input("f32", *f.pick(("batch", "seq"), ("seq",), (), ("batch", "seq", width)))
        for _ in range(int(f.rng.integers(2, 7))):
            if recipes and f.chance(0.35):
                f.pick(*recipes)(f)
            else:
                schema_node(f)
        _outputs(f)
    return Case(seed, f.builder.build(), f.fills)


def _outputs(f: Fuzz) -> None:
    """What no node reads, and some of what others read; a view and an input now and then."""
    read = {value for node in f.builder.nodes for value in node.inputs}
    results = [e.x for e in f.pool if e.x.value.name.isdigit()]
    chosen = [x for x in results if x.value not in read or f.chance(0.2)]
    if not chosen or f.chance(0.05):
        chosen.append(f.pool[0].x)
    for i, x in enumerate(chosen):
        f.builder.output(f"y{i}", x)


# A node by its op's schema


def schema_node(f: Fuzz, tries: int = 60) -> None:
    """One more node, of an op drawn from the registry, whose operands its inference accepts."""
    names = own_ops()
    for _ in range(tries):
        definition = REGISTRY[f.pick(*names)]
        drawn = _operands(f, definition)
        if drawn is None:
            continue
        operands, entries = drawn
        guard = GUARDS.get(definition.name, _moves)
        size = guard(*(entry.size for entry in entries)) if entries else 1.0
        if size is None or size > _LARGEST:
            continue
        if definition.name in JUMPS and not all(e.same for e in entries):
            continue
        try:
            attrs = _attrs(f, definition, operands)
            results = apply_op(definition, operands, attrs)
        except (TfgraphError, ValueError, ZeroDivisionError):
            continue
        results = results if isinstance(results, tuple) else (results,)
        same = all(e.same for e in entries) and definition.name in SAME_BITS
        for result in results:
            if result.dtype != DType.int8 or size <= 2:  # else it is dead code
                f.add(result, size, same or not result.dtype.is_float)
        return


def _operands(f: Fuzz, definition: OpDef) -> tuple[list[Any], list[Entry]] | None:
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
        entry = _operand(f, entries[0] if entries else None, definition.name)
        if entry is None:
            return None
        operands.append(entry.x)
        entries.append(entry)
    return operands, entries


def _operand(f: Fuzz, first: Entry | None, op: str) -> Entry | None:
    if first is None or f.chance(0.1):
        return f.draw()
    shape = first.x.shape
    last: Dim = shape[-1] if shape else as_dim(1)
    if op in ("linear", "linear_activation") and last.is_const:
        fits = [e for e in f.pool if e.x.value in f.weights and e.x.shape[:1] == (last,)]
        if len(fits) < 2:
            n = f.pick(*WIDTHS)
            return f.param(int(last), n, std=0.3)
        return f.pick(*fits)
    if op == "take":
        if not shape:
            return None
        limit = dim_min(*shape)
        return f.input(f.pick("i64", "i32"), "batch", "seq", kind="ids", argument=limit)
    if last.is_const and f.chance(0.2):
        return f.param(int(last), kind=f.pick("normal", "ones", "zeros"))
    return f.draw(lambda e: e.x.shape == shape and e.x.dtype == first.x.dtype) or f.draw()


def _attrs(f: Fuzz, definition: OpDef, operands: Sequence[Any]) -> dict[str, Any]:
    """Attributes by their annotations, of values that may fit the first operand."""
    x = next((o for o in operands if hasattr(o, "shape")), None)
    shape: tuple[Dim, ...] = x.shape if x is not None else ()
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
            size = shape[given["axis"]]
            start, stop = f.pick((0, size), (0, 1), (size - 1, size))
            if size.is_const and int(size) > 1:
                start, stop = f.pick((start, stop), (1, size))
            given |= {"start": start, "stop": stop}
        elif name == "length":
            given[name] = f.pick("seq", "past", as_dim("past") + "seq", 5)
        elif name == "k":
            given[name] = f.pick(1, 2) if shape and shape[-1].is_const else 1
        elif name == "dtype":
            given[name] = f.pick(*DTYPES)
        elif name == "eps":
            given[name] = f.pick(1e-5, 1e-3)
        elif "bool" in annotation:
            given[name] = f.chance(0.5)
        elif "ExactLike" in annotation:
            given[name] = f.pick(*SCALARS, exact(0))
        elif parameter.default is parameter.empty:
            raise ValueError(f"{definition.name}: nothing is known about {name}: {annotation}")
    return given


def _new_shape(f: Fuzz, op: str, shape: tuple[Dim, ...]) -> tuple[DimLike, ...]:
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


# The size of a result from those of the operands; None where the op would be ill-conditioned.


def _moves(*sizes: float) -> float:
    return max(sizes)


def _at_most(limit: float, result: float | None = None) -> Callable[..., float | None]:
    def guard(*sizes: float) -> float | None:
        return (max(sizes) if result is None else result) if max(sizes) <= limit else None

    return guard


GUARDS: dict[str, Callable[..., float | None]] = {
    "add": lambda *s: max(s) + 0.3,
    "sub": lambda *s: max(s) + 0.3,
    "mul": lambda *s: sum(max(x, 0) for x in s) + 0.5,
    "div": lambda *s: None,  # by what may be near 0; the blocks divide by what is not
    "pow": lambda *s: None,
    "exp": _at_most(0.7, 2.2),
    "log": lambda *s: None,
    "sqrt": lambda *s: None,
    "sin": _at_most(2.0, 0.0),
    "cos": _at_most(2.0, 0.0),
    "tanh": _at_most(2.0, 0.0),
    "erf": _at_most(2.0, 0.0),
    "sigmoid": _at_most(2.0, 0.0),
    "relu2": lambda s: 2 * max(s, 0),
    "gelu_tanh": _at_most(3.0),
    "sum": lambda s: s + 2,
    "cumsum": lambda s: s + 2,
    "matmul": lambda a, b: a + b + 2,
    "weighted_sum": lambda a, b: a + b + 2,
    "linear": lambda *s: sum(s[:2]) + 1.5,
    "linear_activation": lambda *s: sum(s[:2]) + 1.5 if sum(s[:2]) <= 1.4 else None,
    "softmax": _at_most(1.4, 0.0),
    "layer_norm": lambda *s: 1.2,
    "rms_norm": lambda *s: 1.2,
    "add_layer_norm": lambda *s: max(s) + 1.2,
    "add_rms_norm": lambda *s: max(s) + 1.2,
    "attention": lambda *s: None,  # blocks draw it, and ids that fit their table
    "embedding": lambda *s: None,
    "iota": lambda *s: 3.0,
    "cast": _at_most(1.9),
}
JUMPS = {"less", "equal", "floor", "topk", "empty", "cast"}
SAME_BITS = {
    *("reshape", "transpose", "broadcast_to", "concat", "slice", "take", "take_at", "embedding"),
    *("where", "neg", "abs", "maximum", "minimum", "relu", "max", "floor", "cast", "iota"),
    *("full", "topk", "constant"),
}
