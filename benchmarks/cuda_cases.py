"""What is timed on a GPU: graphs with sizes, and the same in PyTorch. May import: tfgraph, work,
torch_code, graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


SMALL = 300
"""The largest size that is verified: at it as at larger ones hosts choose the largest tiles, and
share the keys of a decoding step."""


@dataclass(frozen=True)
class Case:
    """A graph at sizes of its symbols, in some dtypes, and what it is measured beside.

    It is verified at the sizes `checked`, at which the same kernels run and the reference takes
    seconds. `limit`: what bounds it, "matrix" or "copy".
    """

    name: str
    graph: Graph
    sizes: Mapping[str, int]
    checked: Mapping[str, int]
    others: Others
    limit: str = "matrix"
    dtypes: tuple[str, ...] = ("float16", "bfloat16")

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
    with ops.graph("gemm") as g:
        y: Any = ops.linear(g.input("x", "f32", "m", k), g.param("w", "f32", k, n))
        g.output("y", y)

    def others(torch: Any, x: Mapping[str, Any], weights: Mapping[str, NDArray]) -> dict[str, Call]:
        w = torch.from_numpy(weights["w"]).to(x["x"]).t().contiguous()  # as torch.nn.Linear has it
        return {"cuBLAS": lambda: torch.nn.functional.linear(x["x"], w)}

    limit = "copy" if m <= 16 else "matrix"
    dtypes = ("float16", "bfloat16", "float32")
    name = f"gemm {m} x {k} x {n}"
    return Case(name, g.build(), {"m": m}, {"m": min(m, SMALL)}, others, limit, dtypes)


def attention(batch: int, heads: int, length: int, size: int, *, queries: int = 0) -> Case:
    """Causal attention, or that of a few queries behind a cache."""
    with ops.graph("attention") as g:
        q = g.input("q", "f32", "batch", "s" if queries else "t", heads * size)
        k, v = (g.input(n, "f32", "batch", "t", heads * size) for n in "kv")
        given = (q, k, v) if queries else (q, k, v, causal())
        y: Any = ops.attention(*given, heads=heads, kv_heads=heads, scale=rsqrt(size))
        g.output("y", y)

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
    checked = sizes | {"batch": min(batch, 2), "t": min(length, 2 * SMALL if queries else SMALL)}
    return Case(name, g.build(), sizes, checked, others, limit)


_BERT = """
kind: encoder
layers: 1
width: {width}
heads: {heads}
ffn: {ffn}
activation: gelu
norm: {{kind: layer_norm, placement: post, eps: 1e-12}}
symbols: {{batch: {{max: 64}}, seq: {{max: 4096}}}}
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
symbols: {{batch: {{max: 64}}, seq: {{max: 4096}}}}
"""


def layer(kind: str, batch: int, length: int, tuned: bool = False, **sizes: int) -> Case:
    """A layer of a model, beside PyTorch's compiler on the same graph as straight code; `tuned`:
    also with a search among kernels, which takes it a minute or more."""
    text = _BERT if kind == "bert" else _LLAMA
    model = read_model(f"{kind}.yaml", text.format(**sizes))
    at = {"batch": batch, "seq": length}
    code = to_torch(at_sizes(model.graph, at))

    def others(torch: Any, x: Mapping[str, Any], weights: Mapping[str, NDArray]) -> dict[str, Call]:
        made: dict[str, Any] = {}
        exec(code, made)
        kind = next(t for t in x.values() if t.is_floating_point())
        constants = {  # made on the CPU, angles in float32
            n: c.to(kind if c.is_floating_point() else kind.device)
            for n, c in made["constants"](
                {n: torch.from_numpy(w) for n, w in weights.items()}
            ).items()
        }
        forward = made["forward"]

        def compiled(mode: str | None) -> Call:
            return partial(torch.compile(forward, mode=mode), constants, x)

        found: dict[str, Call] = {
            "torch.compile": compiled(None),
            "eager": partial(forward, constants, x),
        }
        if tuned:
            found["max-autotune"] = compiled("max-autotune-no-cudagraphs")
        return found

    name = f"{kind} layer {batch} x {length}"
    rows = min(batch * length, SMALL)
    checked = {"batch": min(batch, 2), "seq": rows // min(batch, 2)}
    return Case(name, model.graph, at, checked, others)


def cases(tiny: bool, tuned: bool = False) -> list[Case]:
    """All of them; `tiny` ones take an emulated GPU seconds. `tuned` as `layer` takes it."""
    if tiny:
        return [
            gemm(20, 40, 24),
            gemm(1, 40, 24),
            attention(1, 2, 20, 16),
            attention(1, 2, 300, 16, queries=1),
            layer("bert", 1, 9, width=32, heads=2, ffn=64),
            layer("llama", 1, 9, width=32, heads=4, kv_heads=2, ffn=48),
        ]
    bert = partial(layer, "bert", tuned=tuned, width=768, heads=12, ffn=3072)
    return [
        gemm(4096, 4096, 4096),
        gemm(8192, 8192, 8192),
        gemm(1024, 768, 3072),
        gemm(128, 768, 768),
        gemm(1, 8192, 8192),
        gemm(16, 4096, 11008),
        attention(1, 32, 4096, 128),
        attention(8, 12, 512, 64),
        attention(8, 32, 4096, 128, queries=1),
        bert(8, 128),
        bert(1, 512),
        layer("llama", 1, 2048, tuned, width=2048, heads=32, kv_heads=8, ffn=8192),
    ]
