"""Calls that every backend refuses, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.contract import feeds

from tfgraph import ops

if TYPE_CHECKING:
    from tfgraph.ops import Builder

NDArray = np.ndarray[Any, Any]

# Inputs of `contract_graph`, the size of `past`, the message, the hint.
ANY = np.zeros((2, 3, 8), np.float32)


def changed(**inputs: Any) -> dict[str, Any]:
    """Good inputs with some replaced; None leaves one out."""
    return {k: v for k, v in (feeds(2, 3) | inputs).items() if v is not None}


def with_id(value: int) -> NDArray:
    ids = np.zeros((2, 3), np.int64)
    ids[1, 2] = value
    return ids


REFUSED: list[tuple[dict[str, Any], Any, str, str | None]] = [
    (changed(x=None), 1, "input 'x' is missing", "expected x: float32[batch, seq, 8]"),
    (changed(kep=1), 1, "the model has no input 'kep'", "did you mean 'keep'?"),
    (changed(zzz=1), 1, "the model has no input 'zzz'", "it has ids, keep, x"),
    (changed(kep=1, keep=None), 1, "the model has no input 'kep'", "did you mean 'keep'?"),
    (
        changed(x=ANY.astype("f8")),
        1,
        "input 'x' is float64, expected float32",
        "convert it with .astype('float32')",
    ),
    (
        changed(x=ANY.astype(">f4")),
        1,
        "input 'x' is >f4, expected float32",
        "convert it with .astype('float32')",
    ),
    (
        changed(x=ANY.astype("f2")),
        1,
        "input 'x' is float16, expected float32",
        "convert it with .astype('float32')",
    ),
    (
        changed(ids=np.zeros((2, 3), np.int32)),
        1,
        "input 'ids' is int32, expected int64",
        "convert it with .astype('int64')",
    ),
    (
        changed(keep=np.ones((2, 3), np.uint8)),
        1,
        "input 'keep' is uint8, expected bool",
        "convert it with .astype('bool')",
    ),
    (
        changed(x=ANY.tolist()),
        1,
        "input 'x' is a list, expected an array",
        "numpy.asarray(x, 'float32') makes one",
    ),
    (
        changed(x=None, ids=None) | {"x": 1.0},
        1,
        "input 'ids' is missing",
        "expected ids: int64[batch, seq]",
    ),
    (
        changed(x=None, ids=None),
        1,
        "inputs 'ids', 'x' are missing",
        "expected ids: int64[batch, seq], x: float32[batch, seq, 8]",
    ),
    (changed(x=ANY[0]), 1, "input 'x' has shape [3, 8], expected x: float32[batch, seq, 8]", None),
    (
        changed(x=np.zeros((), np.float32)),
        1,
        "input 'x' has shape [], expected x: float32[batch, seq, 8]",
        None,
    ),
    (changed(x=ANY[:, :2]), 1, "seq is 3 in axis 1 of 'ids', but 2 in axis 1 of 'x'", None),
    (
        changed(keep=np.ones((3, 3), bool)),
        1,
        "batch is 2 in axis 0 of 'ids', but 3 in axis 0 of 'keep'",
        None,
    ),
    (changed(x=np.zeros((2, 3, 9), np.float32)), 1, "axis 2 of 'x' is 9, expected 8", None),
    (changed(x=ANY[..., :0]), 1, "axis 2 of 'x' is 0, expected 8", None),
    (feeds(17, 3), 1, "batch is 17 in axis 0 of 'ids', expected 1 to 16", None),
    (feeds(2, 201), 1, "seq is 201 in axis 1 of 'ids', expected 1 to 200", None),
    (
        {k: v[:0] for k, v in feeds(2, 3).items()},
        1,
        "batch is 0 in axis 0 of 'ids', expected 1 to 16",
        None,
    ),
    (
        {k: v[:, :0] for k, v in feeds(2, 3).items()},
        1,
        "seq is 0 in axis 1 of 'ids', expected 1 to 200",
        None,
    ),
    (changed(ids=with_id(50)), 1, "input 'ids' holds 50, expected 0 to 49", None),
    (changed(ids=with_id(-1)), 1, "input 'ids' holds -1, expected 0 to 49", None),
    (changed(ids=with_id(2**62)), 1, f"input 'ids' holds {2**62}, expected 0 to 49", None),
    (changed(), None, "no input gives the size of 'past'", "pass dims={'past': ...}"),
    (changed(), 301, "past is 301 in dims, expected 1 to 300", None),
    (changed(), 0, "past is 0 in dims, expected 1 to 300", None),
    (changed(), 2.0, "dims: past is 2.0, expected an integer", None),
    (changed(), "2", "dims: past is '2', expected an integer", None),
    (
        feeds(2, 1),
        101,
        "past <= 100*seq does not hold: past = 101 (dims), seq = 1 (axis 1 of 'ids')",
        None,
    ),
]


# Small graphs, the rows of x with which they have a meaning and with which not, the message.


def table_too_short(g: Builder) -> Any:
    rows = ops.slice_(g.param("table", "f32", 16, 2), axis=0, start=0, stop="n")
    return ops.add(g.input("x", "f32", "n", 2), rows)


def window_reversed(g: Builder) -> Any:
    g.input("also", "f32", "m", 2)
    return ops.slice_(g.input("x", "f32", "n", 2), axis=0, start="m", stop="n")


def nothing_left(g: Builder) -> Any:
    rest = ops.slice_(g.input("x", "f32", "n", 2), axis=0, start=1, stop="n")
    return ops.max_(rest, axis=0)


def too_few_to_choose_from(g: Builder) -> Any:
    x = g.input("x", "f32", "n", 2)
    return ops.topk(ops.transpose(x, perm=(1, 0)), k=3)[0]


MEANINGLESS: list[tuple[Any, int, int, str]] = [
    (table_too_short, 16, 17, "n <= 16 does not hold: n = 17 (axis 0 of 'x')"),
    (
        window_reversed,
        3,
        2,
        "m + 1 <= n does not hold: m = 2 (axis 0 of 'also'), n = 2 (axis 0 of 'x')",
    ),
    (nothing_left, 2, 1, "2 <= n does not hold: n = 1 (axis 0 of 'x')"),
    (too_few_to_choose_from, 3, 2, "3 <= n does not hold: n = 2 (axis 0 of 'x')"),
]
