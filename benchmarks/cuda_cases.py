"""What is timed on a GPU: graphs with sizes, and the same in PyTorch. May import: tfgraph, work,
torch_code, graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from graphs import at_sizes
from torch_code import to_torch
from work import count_work

from tfgraph import ops
from tfgraph.ir import Graph, rsqrt
from tfgraph.ir.mask import causal
from tfgraph.model import read_model

NDArray = np.ndarray[Any, Any]
Call = Callable[[], Any]
Others = Callable[[Any, Mapping[str, Any], Mapping[str, NDArray]], Mapping[str, Call]]
"""PyTorch's ways to compute it, by name, of torch, the inputs on the GPU, and the weights."""


SMALL = 150
"""The largest size that is verified: more than a tile of any kernel."""


@dataclass(frozen=True)
class Case:
    """A graph at sizes of its symbols, in some dtypes, and what it is measured beside.

    `small` is the same graph for sizes at which the reference takes seconds: it is verified.
    `limit`: what bounds it, "matrix" or "copy".
    """

    name: str
    graph: Graph
    small: Graph
    sizes: Mapping[str, int]
    others: Others
    limit: str = "matrix"
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    weights: Mapping[str, NDArray] = field(default_factory=dict[str, NDArray])

    @property
    def flops(self) -> int:
        """Operations of its products."""
        return count_work(self.graph, self.sizes).flops

    @property
    def numbers(self) -> int:
        """Elements that it reads or writes once."""
        values = [*(i.value for i in self.graph.inputs), *(p.value for p in self.graph.params)]
        values += [o.value for o in self.graph.outputs]
        sizes = [[d.evaluate(self.sizes) for d in value.type.shape] for value in values]
        return sum(int(np.prod(shape, dtype=np.int64)) for shape in sizes)


def gemm(m: int, k: int, n: int) -> Case:
    """x @ w, which PyTorch gives to cuBLAS."""

    def graph(most: int) -> Graph:
        with ops.graph("gemm") as g:
            x = g.input("x", "f32", g.symbol("m", high=most), k)
            y: Any = ops.linear(x, g.param("w", "f32", k, n))
            g.output("y", y)
        return g.build()

    def others(torch: Any, x: Mapping[str, Any], weights: Mapping[str, NDArray]) -> dict[str, Call]:
        w = torch.from_numpy(weights["w"]).to(x["x"]).t().contiguous()  # as torch.nn.Linear has it
        return {"cuBLAS": lambda: torch.nn.functional.linear(x["x"], w)}

    limit = "copy" if m <= 16 else "matrix"
    dtypes = ("float16", "bfloat16", "float32")
    name = f"gemm {m} x {k} x {n}"
    return Case(name, graph(65536), graph(SMALL), {"m": m}, others, limit, dtypes)


def attention(batch: int, heads: int, length: int, size: int, *, queries: int = 0) -> Case:
    """Causal attention, or that of a few queries behind a cache."""

    def graph(most: int) -> Graph:
        with ops.graph("attention") as g:
            b, t = g.symbol("batch", high=max(batch, 2)), g.symbol("t", high=most)
            s = g.symbol("s", high=max(queries, 2)) if queries else t
            q = g.input("q", "f32", b, s, heads * size)
            k, v = (g.input(n, "f32", b, t, heads * size) for n in "kv")
            given = (q, k, v) if queries else (q, k, v, causal())
            y: Any = ops.attention(*given, heads=heads, kv_heads=heads, scale=rsqrt(size))
            g.output("y", y)
        return g.build()

    def others(torch: Any, x: Mapping[str, Any], weights: Mapping[str, NDArray]) -> dict[str, Call]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (x[n].unflatten(-1, (heads, size)).transpose(1, 2) for n in "qkv")

        def run(backend: Any) -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=not queries
                )

        kinds = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
        return {name: partial(run, kind) for name, kind in kinds.items()}

    sizes = {"batch": batch, "t": length} | ({"s": queries} if queries else {})
    name = f"attention {batch} x {heads} x {queries or length} x {length} x {size}"
    limit = "copy" if queries else "matrix"
    return Case(name, graph(65536), graph(2 * SMALL if queries else SMALL), sizes, others, limit)


_BERT = """
kind: encoder
layers: 1
width: {width}
heads: {heads}
ffn: {ffn}
activation: gelu
norm: {{kind: layer_norm, placement: post, eps: 1e-12}}
symbols: {{batch: {{max: {batch}}}, seq: {{max: {seq}}}}}
"""
_LLAMA = """
kind: decoder
layers: 1
width: {width}
heads: {heads}
kv_heads: {kv_heads}
ffn: {ffn}
activation: silu
gated: true
bias: false
norm: {{kind: rms_norm, placement: pre}}
positions: {{kind: rotary}}
mask: causal
symbols: {{batch: {{max: {batch}}}, seq: {{max: {seq}}}}}
"""


def layer(kind: str, batch: int, length: int, **sizes: int) -> Case:
    """A layer of a model, beside PyTorch's compiler on the same graph as straight code."""
    text = _BERT if kind == "bert" else _LLAMA
    model = read_model(f"{kind}.yaml", text.format(batch=64, seq=4096, **sizes))
    small = read_model(f"{kind}.yaml", text.format(batch=2, seq=SMALL, **sizes))
    at = {"batch": batch, "seq": length}
    code = to_torch(at_sizes(model.graph, at))

    def others(torch: Any, x: Mapping[str, Any], weights: Mapping[str, NDArray]) -> dict[str, Call]:
        made: dict[str, Any] = {}
        exec(code, made)
        kind = next(t for t in x.values() if t.is_floating_point())
        constants = made["constants"]({n: torch.from_numpy(w).to(kind) for n, w in weights.items()})
        compiled = torch.compile(made["forward"], mode="max-autotune-no-cudagraphs")
        return {
            "torch.compile": lambda: compiled(constants, x),
            "eager": lambda: made["forward"](constants, x),
        }

    weights = {p.value.name: model.weights[p.value.name] for p in model.graph.params}
    name = f"{kind} layer {batch} x {length}"
    return Case(name, model.graph, small.graph, at, others, weights=weights)


def cases(tiny: bool) -> list[Case]:
    """All of them; `tiny` ones take an emulated GPU seconds, and what is verified is timed."""
    if tiny:
        few = [
            gemm(20, 40, 24),
            gemm(1, 40, 24),
            attention(1, 2, 20, 16),
            attention(1, 2, 300, 16, queries=1),
            layer("bert", 1, 9, width=32, heads=2, ffn=64),
            layer("llama", 1, 9, width=32, heads=4, kv_heads=2, ffn=48),
        ]
        return [replace(case, graph=case.small) for case in few]
    return [
        gemm(4096, 4096, 4096),
        gemm(8192, 8192, 8192),
        gemm(1024, 768, 3072),
        gemm(128, 768, 768),
        gemm(1, 4096, 4096),
        gemm(16, 4096, 11008),
        attention(1, 32, 4096, 128),
        attention(8, 12, 512, 64),
        attention(8, 32, 4096, 128, queries=1),
        layer("bert", 8, 128, width=768, heads=12, ffn=3072),
        layer("bert", 1, 512, width=768, heads=12, ffn=3072),
        layer("llama", 1, 2048, width=4096, heads=32, kv_heads=8, ffn=14336),
    ]
