"""Floats of 16 bits: kernels read them as float32, compute so, and round once where they store.

That is what the IR means by an op: see `tfgraph.ops.define`. May import: tvm, ops.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tfgraph.ops import widen

Expr = Any

NARROW = frozenset(dtype.value for dtype in widen.NARROW)
"""The floats in which nothing is computed, by their names in TVM."""


def computed(dtype: str) -> str:
    """The type in which a kernel computes with elements of `dtype`."""
    return "float32" if dtype in NARROW else dtype


def widened(element: Expr) -> Expr:
    """An element of an array as kernels compute with it."""
    dtype = str(element.ty.dtype)
    return tirx.Cast("float32", element) if dtype in NARROW else element


def rounded(value: Expr, dtype: str) -> Expr:
    """A value as an array of `dtype` holds it."""
    narrows = dtype in NARROW and str(value.ty.dtype) == "float32"
    return tirx.Cast(dtype, value) if narrows else value
