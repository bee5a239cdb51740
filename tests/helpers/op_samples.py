"""Random calls of every op, with symbolic shapes: each becomes a graph of one node that can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.ir import DType, as_dim, dtype, exact
from tfgraph.ir.mask import alibi, bias, causal, dense, padding, prefix, relative, segments, window
from tfgraph.ops import REGISTRY, FloatArray, graph
from tfgraph.ops.define import apply_op
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.ir import DimLike, Graph, Mask
    from tfgraph.ops import OpDef, Traced

Call = tuple["Sequence[Any]", "Mapping[str, Any]"]


class Sample:
    """One random call of an op. The main operands have `dtype`; the symbols get random sizes."""

    def __init__(self, name: str, dtype: DType, seed: int) -> None:
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.dtype = dtype
        self.sizes = {symbol: int(self.rng.integers(1, 5)) for symbol in ("a", "b", "past", "s")}
        self.builder = graph("sample")
        for symbol in self.sizes:
            self.builder.symbol(symbol)
        self.given: dict[str, FloatArray] = {}
        self.operands, self.attrs = SAMPLES[name](self)
        with self.builder:
            results = apply_op(REGISTRY[name], self.operands, self.attrs)
        self.results: tuple[Traced, ...] = results if isinstance(results, tuple) else (results,)
        for i, result in enumerate(self.results):
            self.builder.output(f"y{i}", result)

    @property
    def graph(self) -> Graph:
        """The graph of one node, whose outputs are the results."""
        return self.builder.build()

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def shape(self, least: int = 0) -> tuple[DimLike, ...]:
        """A shape of rank `least` to 4, with symbols, numbers and ones."""
        rank = int(self.rng.integers(least, 5))
        return tuple(self.pick("a", "b", 1, 3, as_dim("a") + 1) for _ in range(rank))

    def x(
        self, *shape: DimLike, dtype: DType | None = None, limit: DimLike | None = None
    ) -> Traced:
        """An input with random elements, integers below `limit`."""
        kind = self.dtype if dtype is None else dtype
        sizes = [as_dim(d).evaluate(self.sizes) for d in shape]
        if kind == DType.bool_:
            data = self.rng.random(sizes) < 0.6
        elif kind.is_float:
            data = self.rng.normal(0, 2, sizes).astype(numpy_dtype(kind))
        else:
            low, high = (0, as_dim(limit).evaluate(self.sizes)) if limit is not None else (0, 7)
            data = self.rng.integers(low, high, sizes).astype(numpy_dtype(kind))
        name = f"x{len(self.given)}"
        self.given[name] = FloatArray(np.asarray(data))
        return self.builder.input(name, kind, *shape)


def takes(definition: OpDef) -> tuple[DType, ...]:
    """The dtypes that the op takes for its main operand."""
    from tfgraph.errors import TfgraphError

    found = []
    for kind in DType:
        try:
            Sample(definition.name, kind, 0)
        except TfgraphError:
            continue
        found.append(kind)
    return tuple(found)


def _binary(s: Sample) -> Call:
    shape = s.shape()
    operands = [_narrowed(s, shape), _narrowed(s, shape)]
    if s.chance(0.3):
        operands[s.pick(0, 1)] = exact(s.pick(1, 1.0) if s.dtype == DType.bool_ else s.pick(1, 3))
    return operands, {}


def _narrowed(s: Sample, shape: Sequence[DimLike]) -> Any:
    """An input whose shape broadcasts to `shape`."""
    kept = shape[int(s.rng.integers(len(shape) + 1)) :] if s.chance(0.4) else shape
    return s.x(*(1 if s.chance(0.2) else d for d in kept))


def _logical(s: Sample) -> Call:
    shape = s.shape()
    return [_narrowed(s, shape), _narrowed(s, shape)], {}


def _unary(s: Sample) -> Call:
    return [s.x(*s.shape())], {}


def _cast(s: Sample) -> Call:
    return [s.x(*s.shape())], {"dtype": s.pick(*DType)}


def _where(s: Sample) -> Call:
    shape = s.shape()
    condition = s.x(*shape[s.pick(0, 1) :], dtype=DType.bool_)
    return [condition, _narrowed(s, shape), _narrowed(s, shape)], {}


def _reshape(s: Sample) -> Call:
    return [s.x("a", "b", 6)], {"shape": s.pick((as_dim("a") * 2, 3, "b"), [6 * as_dim("a"), "b"])}


def _transpose(s: Sample) -> Call:
    x = s.x(*s.shape())
    return [x], {"perm": [int(p) for p in s.rng.permutation(len(x.shape))]}


def _broadcast_to(s: Sample) -> Call:
    shape = s.shape()
    return [_narrowed(s, shape)], {"shape": shape}


def _concat(s: Sample) -> Call:
    shape = list(s.shape(least=1))
    axis = int(s.rng.integers(len(shape)))
    parts = []
    for _ in range(s.pick(1, 2, 3)):
        shape[axis] = s.pick("a", 1, as_dim("b") * 2)
        parts.append(s.x(*shape))
    return parts, {"axis": axis - len(shape) * s.pick(0, 1)}


def _slice(s: Sample) -> Call:
    shape = list(s.shape(least=1))
    axis = int(s.rng.integers(len(shape)))
    shape[axis] = as_dim("a") + "b"
    start, stop = s.pick((0, "a"), ("b", as_dim("a") + "b"), (1, as_dim("b") + 1), (1, 2))
    return [s.x(*shape)], {"axis": axis - len(shape) * s.pick(0, 1), "start": start, "stop": stop}


def _take(s: Sample) -> Call:
    shape = s.shape(least=1)
    axis = int(s.rng.integers(len(shape)))
    indices = s.x(*s.pick((), ("b",), (2, "b")), dtype=s.pick(*INDICES), limit=shape[axis])
    return [s.x(*shape), indices], {"axis": axis - len(shape) * s.pick(0, 1)}


def _take_at(s: Sample) -> Call:
    shape = s.shape(least=1)
    dtype, count = s.pick(*INDICES), int(s.rng.integers(1, len(shape) + 1))
    shapes = s.pick(((), ("b",)), (("b", 1), (2, 1, "b")), ((2, "b"),))
    indices = [s.x(*s.pick(*shapes), dtype=dtype, limit=size) for size in shape[:count]]
    return [s.x(*shape), *indices], {}


def _embedding(s: Sample) -> Call:
    ids = s.x(*s.shape(), dtype=s.pick(*INDICES), limit=7)
    return [ids, s.x(7, "b")], {}


def _embedding_sum(s: Sample) -> Call:
    shape, width = s.shape(), s.pick("b", 8)

    def rows(*of: Any) -> list[Any]:
        return [s.x(*of, dtype=s.pick(*INDICES), limit=7), s.x(7, width)]

    others = s.pick([], [s.x(width)], [s.x(*shape, 1)], rows(*shape), [*rows(), s.x(*shape, width)])
    return [*rows(*shape), *others], {"scale": s.pick(1, 0.3, -4)}


def _iota(s: Sample) -> Call:
    return [], {"length": s.pick(5, "a", as_dim("a") * "b")}


def _full(s: Sample) -> Call:
    value = 0.1 if s.dtype.is_float else 1
    return [], {"shape": s.shape(), "value": value, "dtype": s.dtype}


def _constant(s: Sample) -> Call:
    values = (0.1, -3, 0, 0, 2**-20, 7) if s.dtype.is_float else (1, 0, 0, 1, 1, 0)
    shape = s.pick((6,), (2, 3), (1, 6, 1))
    return [], {"values": values, "shape": shape, "dtype": s.dtype}


def _reduce(s: Sample) -> Call:
    x = s.x(*s.shape(least=1))
    axis = int(s.rng.integers(-len(x.shape), len(x.shape)))
    return [x], {"axis": axis, "keepdims": s.chance(0.5)}


def _along(s: Sample) -> Call:
    operands, attrs = _reduce(s)
    return operands, {"axis": attrs["axis"]}


def _topk(s: Sample) -> Call:
    return [s.x(*s.shape(), as_dim("a") + 2)], {"k": s.pick(1, 2, 3)}


def _linear(s: Sample) -> Call:
    x, weight = s.x(*s.pick((3,), ("s",), ("a", "s")), "b"), s.x("b", 5)
    return [x, weight, *([s.x(5)] if s.chance(0.5) else [])], {}


def _linear_activation(s: Sample) -> Call:
    from tfgraph.ops import ACTIVATIONS

    return _linear(s)[0], {"activation": s.pick(*ACTIVATIONS)}


def _gated_linear(s: Sample) -> Call:
    x, weight, *bias = _linear(s)[0]
    return [x, weight, s.x(*x.shape[:-1], 5), *bias], {}


def _matmul(s: Sample) -> Call:
    lead = s.shape()[:2]
    a = s.x(*(1 if s.chance(0.3) else d for d in lead[s.pick(0, 1) :]), "s", "b")
    b = s.x(*(1 if s.chance(0.3) else d for d in lead), "b", 3)
    return [a, b], {}


def _mask_of(s: Sample, batch: DimLike, heads: DimLike, queries: DimLike, keys: Any) -> Mask:
    past = as_dim("past")
    lengths = s.x(batch, dtype=s.pick(*INDICES), limit=as_dim(keys) + 1)
    ids = s.x(batch, queries, dtype=DType.int64, limit=3), s.x(batch, keys, dtype=DType.int32)
    choices = [
        causal(past),
        window(s.pick(None, 0, 2), s.pick(None, 0, 2), past),
        padding(lengths),
        padding(s.x(batch, keys, dtype=s.pick(DType.int64, DType.int8, DType.bool_))),
        prefix(lengths, past),
        segments(*ids),
        dense(s.x(*s.pick((queries, keys), (heads, 1, keys), (keys,)), dtype=DType.bool_)),
        bias(s.x(*s.pick((queries, keys), (heads, queries, 1)))),
        alibi(s.x(heads), past),
        relative(s.x(8, heads), s.pick(5, 40), bidirectional=s.chance(0.5), offset=past),
    ]
    chosen = s.pick(*choices)
    return chosen & s.pick(*choices) if s.chance(0.5) else chosen


def _mask(s: Sample) -> Call:
    queries, keys = as_dim("s"), as_dim("past") + "s"
    m = _mask_of(s, "a", 2, queries, keys)
    return [s.x("a", 2, queries, keys), m], {}


def _attention(s: Sample) -> Call:
    queries, keys = as_dim("s"), as_dim("past") + "s"
    heads, groups = s.pick((1, 1), (4, 4), (4, 2), (6, 2), (3, 1))
    m = None if s.chance(0.3) else _mask_of(s, "a", heads, queries, keys)
    q, k = s.x("a", queries, heads * 2), s.x("a", keys, groups * 2)
    v = s.x("a", keys, groups * s.pick(2, 3))
    attrs = {"heads": heads, "kv_heads": groups, "scale": 0.7, "softcap": s.pick(None, 2)}
    return [q, k, v, m], attrs


def _rotary(s: Sample) -> Call:
    heads, size, half = s.pick((1, 4, 2), (2, 6, 2), (3, 2, 1))
    rows = [*s.pick(["s"], ["a", "s"]), half]
    tables = [s.x(*rows), s.x(*rows)]
    return [s.x("a", "s", heads * size), *tables], {"heads": heads, "interleaved": s.chance(0.5)}


def _cache_append(s: Sample) -> Call:
    at = s.pick(0, 2, "past", as_dim("past") + "s")
    cache = s.x("a", as_dim(at) + s.pick("s", as_dim("s") + "b"), 3)
    return [cache, s.x("a", "s", 3)], {"at": at}


def _caches(s: Sample, *widths: int) -> Call:
    at, capacity = s.pick((0, "s"), (2, as_dim("s") + 3))
    return [s.x("a", capacity, width) for width in widths], {"at": at}


def _append_kv(s: Sample) -> Call:
    caches, attrs = _caches(s, 3, 5)
    return [*caches, s.x("a", "s", 3), s.x("a", "s", 5)], attrs


def _rotary_append_kv(s: Sample) -> Call:
    size, half = s.pick((2, 1), (4, 2), (5, 2), (6, 1))
    heads, kv_heads = s.pick((1, 1), (4, 2), (3, 1))
    tables = [s.x(*s.pick(("s",), ("a", "s")), half)]
    tables.append(s.x(*tables[0].shape))
    caches, attrs = _caches(s, kv_heads * size, 5)
    rows = [s.x("a", "s", heads * size), s.x("a", "s", kv_heads * size), s.x("a", "s", 5)]
    attrs |= {"heads": heads, "kv_heads": kv_heads, "interleaved": s.chance(0.5)}
    return [*caches, *rows, *tables], attrs


def _layer_norm(s: Sample) -> Call:
    x, rows = s.x(*s.shape(), "b"), [s.x("b"), s.x("b")]
    return [x, *s.pick([], rows[:1], rows, [None, rows[1]])], {"eps": s.pick(1e-5, 1e-12, 0.5)}


def _rms_norm(s: Sample) -> Call:
    return [s.x(*s.shape(), "b"), *s.pick([], [s.x("b")])], {"eps": s.pick(1e-5, 1e-12, 0.5)}


def _add_layer_norm(s: Sample) -> Call:
    shape, row = (*s.shape(), "b"), s.x("b")
    rest = s.pick([], [row], [row, row], [row, row, s.x("b")], [None, None, row])
    return [s.x(*shape), s.x(*shape), *rest], {"eps": 1e-5, "keep_sum": s.chance(0.5)}


def _add_rms_norm(s: Sample) -> Call:
    shape, row = (*s.shape(), "b"), s.x("b")
    rest = s.pick([], [row], [row, s.x("b")], [None, row])
    return [s.x(*shape), s.x(*shape), *rest], {"eps": 1e-5, "keep_sum": s.chance(0.5)}


INDICES = (DType.int64, DType.int32)
_BINARY = "add sub mul div pow maximum minimum equal less"
_UNARY = """neg abs exp log sqrt sin cos tanh erf floor logical_not
    relu relu2 sigmoid silu gelu gelu_tanh quick_gelu"""
SAMPLES: dict[str, Callable[[Sample], Call]] = {
    **dict.fromkeys(
        ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "less"], _binary
    ),
    **dict.fromkeys(("logical_and", "logical_or"), _logical),
    **dict.fromkeys(_UNARY.split(), _unary),
    **dict.fromkeys(("sum", "mean", "max"), _reduce),
    **dict.fromkeys(("cumsum", "empty", "softmax"), _along),
    "cast": _cast,
    "where": _where,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "slice": _slice,
    "take": _take,
    "take_at": _take_at,
    "embedding": _embedding,
    "embedding_sum": _embedding_sum,
    "iota": _iota,
    "full": _full,
    "constant": _constant,
    "topk": _topk,
    "linear": _linear,
    "linear_activation": _linear_activation,
    "gated_linear": _gated_linear,
    **dict.fromkeys(("matmul", "weighted_sum"), _matmul),
    "mask": _mask,
    "attention": _attention,
    "rotary": _rotary,
    "cache_append": _cache_append,
    "append_kv": _append_kv,
    "rotary_append_kv": _rotary_append_kv,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "add_layer_norm": _add_layer_norm,
    "add_rms_norm": _add_rms_norm,
}
F32 = dtype("f32")
