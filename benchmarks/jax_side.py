"""JAX: the graph through the bodies of its ops over `jax.numpy`, compiled by XLA.

`JaxArray` is all of it: what an op means is written once, in tfgraph, and a domain of a few lines
makes that another backend. May import: sides; JAX, tfgraph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sides import Forward, Job, NDArray

from tfgraph.ir import DimLike, DType, ExactLike, TensorType, as_dim, exact
from tfgraph.ops import Array
from tfgraph.ops.define import OpDef
from tfgraph.ops.evaluate import evaluate
from tfgraph.weights import Seeded

_BINARY = {"sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power"}
_UNARY = {"neg": "negative"}


@dataclass(frozen=True, eq=False)
class JaxArray(Array):
    """An array of JAX, or of one that it traces; its shape is made of plain integers."""

    data: Any

    @property
    def type(self) -> TensorType:
        return TensorType(DType(str(self.data.dtype)), tuple(map(as_dim, self.data.shape)))

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        if definition.name == "softmax":  # as one writes it in JAX, where no row is all hidden
            return JaxArray(jax.nn.softmax(operands[0].data, **attrs))
        return super().apply(definition, operands, attrs)

    def like(self, value: ExactLike) -> JaxArray:
        number = exact(value)
        plain = int(number.factor) if number.is_integer else float(number)
        return JaxArray(jnp.asarray(plain, self.data.dtype))

    def unary(self, f: str) -> JaxArray:
        if f == "erf":
            return JaxArray(jax.lax.erf(self.data))
        return JaxArray(getattr(jnp, _UNARY.get(f, f))(self.data))

    def binary(self, f: str, other: JaxArray) -> JaxArray:
        return JaxArray(getattr(jnp, _BINARY.get(f, f))(self.data, other.data))

    def select(self, yes: JaxArray, no: JaxArray) -> JaxArray:
        return JaxArray(jnp.where(self.data, yes.data, no.data))

    def hide(self, allowed: JaxArray) -> JaxArray:
        return JaxArray(jnp.where(allowed.data, self.data, -jnp.inf))

    def empty(self, axis: int) -> JaxArray:
        return JaxArray(jnp.all(jnp.isneginf(self.data), axis=axis, keepdims=True))

    def reduce(self, f: str, axis: int) -> JaxArray:
        return JaxArray(getattr(jnp, f)(self.data, axis=axis, keepdims=True))

    def scan(self, f: str, axis: int) -> JaxArray:
        return JaxArray(jnp.cumsum(self.data, axis=axis))

    def matmul(self, other: JaxArray) -> JaxArray:
        return JaxArray(jnp.matmul(self.data, other.data))

    def reshape(self, shape: Sequence[DimLike]) -> JaxArray:
        return JaxArray(self.data.reshape(_sizes(shape)))

    def transpose(self, perm: Sequence[int]) -> JaxArray:
        return JaxArray(self.data.transpose(perm))

    def broadcast(self, shape: Sequence[DimLike]) -> JaxArray:
        return JaxArray(jnp.broadcast_to(self.data, _sizes(shape)))

    def slice(self, axis: int, start: DimLike, stop: DimLike) -> JaxArray:
        return JaxArray(jax.lax.slice_in_dim(self.data, *_sizes((start, stop)), axis=axis))

    def join(self, others: Sequence[JaxArray], axis: int) -> JaxArray:
        return JaxArray(jnp.concatenate([self.data, *(o.data for o in others)], axis))

    def take(self, indices: JaxArray, axis: int) -> JaxArray:
        return JaxArray(jnp.take(self.data, indices.data, axis))

    def take_at(self, indices: Sequence[JaxArray]) -> JaxArray:
        return JaxArray(self.data[tuple(each.data for each in indices)])

    def topk(self, k: int) -> tuple[JaxArray, JaxArray]:
        values, indices = jax.lax.top_k(self.data, k)
        return JaxArray(values), JaxArray(indices.astype(jnp.int64))

    def iota(self, length: DimLike) -> JaxArray:
        return JaxArray(jnp.arange(*_sizes((length,)), dtype=jnp.int64))

    def cast(self, dtype: DType) -> JaxArray:
        return JaxArray(self.data.astype(dtype.value))


def _sizes(dims: Sequence[DimLike]) -> tuple[int, ...]:
    return tuple(int(as_dim(d)) for d in dims)


def side(job: Job) -> Forward:
    """All outputs, under `jax.jit`. Weights are arguments: as constants they made nothing faster,
    and compiling three times as long."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)  # int64, as the graph has it
    graph = job.graph()
    given = {**Seeded(graph.params), **job.arrays(), **job.past()}
    arrays = {name: jnp.asarray(array) for name, array in given.items()}

    def run(given: dict[str, Any]) -> list[Any]:
        known = {name: JaxArray(array) for name, array in given.items()}
        for node, results in evaluate(graph, known.copy(), {}, JaxArray(jnp.zeros(()))):
            known.update(zip((value.name for value in node.outputs), results, strict=True))
        return [known[output.value.name].data for output in graph.outputs]

    compiled = jax.jit(run)

    def forward() -> NDArray:
        first, *_ = jax.block_until_ready(compiled(arrays))
        return np.asarray(first)

    return forward
