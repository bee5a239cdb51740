"""The machine code that each kind of kernel becomes: no register goes to memory, the limits of the
architecture are kept, and products of 16-bit floats run on tensor cores.

The plain run compiles a few kernels for four architectures; `long` compiles all for all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import pytest
from helpers.attention_cases import Case
from helpers.cuda_code import machine_code
from helpers.kernel_graphs import forms, samples
from helpers.tensor_attention import kernel_of
from tvm import relax

from tfgraph.backends.tvm.attention_mask import (
    Alibi,
    ByDistance,
    Causal,
    Dense,
    DenseBias,
    Mask,
    Padding,
    Prefix,
    Segments,
    Window,
)
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda import attention as plain_attention
from tfgraph.backends.tvm.cuda.activations import ACTIVATIONS
from tfgraph.backends.tvm.cuda.arch import WARP, parse_arch
from tfgraph.backends.tvm.cuda.attention_mask import KeyMask
from tfgraph.backends.tvm.cuda.kernels import CudaKernels
from tfgraph.backends.tvm.cuda.linear import linear
from tfgraph.backends.tvm.cuda.matmul import matmul
from tfgraph.backends.tvm.cuda.norm import layer_norm, rms_norm
from tfgraph.backends.tvm.cuda.softmax import softmax
from tfgraph.backends.tvm.emitters import lower
from tfgraph.ir import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.backends.tvm.cuda.launch import Kernel

Functions = dict[str, Any]
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
DTYPES = ("float16", "bfloat16", "float32")
REGISTERS = 64 * 1024
"""Of a multiprocessor; a warp takes them 256 at a time ("Technical Specifications per Compute
Capability" in NVIDIA's CUDA programming guide)."""
TERMS: dict[str, Any] = {
    "causal": Causal("past"),
    "window": Window(7, 3, "past"),
    "prefix": Prefix("past"),
    "padding": Padding("int64"),
    "keys": KeyMask(),
    "segments": Segments(),
    "dense": Dense(),
    "bias": DenseBias(),
    "alibi": Alibi("past"),
    "distance": ByDistance(),
}
PLANS: tuple[tuple[str, ...], ...] = (
    (),
    ("causal",),
    ("causal", "padding"),
    ("window", "segments", "dense"),
    ("causal", "dense", "keys", "bias", "alibi"),
    tuple(TERMS),
)
WIDTHS = (8, 32, 64, 80, 128, 192, 256)
TIGHT = 128
"""The width whose sums leave the fewest registers for masks."""


def attention(width: int, terms: Sequence[str], dtype: str, arch: str) -> Functions:
    """Attention of heads that wide. With an even number of masks and biases four heads share keys;
    with two and more the scores have a cap."""
    found = [TERMS[name] for name in terms]
    plan = MaskPlan(
        tuple(term for term in found if isinstance(term, Mask)),
        tuple(term for term in found if not isinstance(term, Mask)),
    )
    case = Case(plan, heads=8, kv_heads=8 if len(terms) % 2 else 2, width=width, value_width=width)
    case = replace(case, softcap=20.0 if len(terms) > 1 else None)
    name = "_".join(("attention", str(width), *terms))
    if dtype != "float32":
        return {name: kernel_of(case, dtype, arch)}
    made = plain_attention.attention(case.shape, plan, scale=0.1, softcap=case.softcap)
    return {name: made}


def products(dtype: str, arch: str) -> Functions:
    """GEMMs of every tile, each with and without whole chunks, and with each activation."""
    found = {
        "linear": linear(("m",), 512, 512, dtype=dtype),
        "linear_odd": linear(("b", "s"), 70, 65, dtype=dtype, bias=True, gate=True),
        "matmul": matmul(("b", "h"), ("b", 1), "m", "n", "depth", dtype=dtype),
        "matmul_aligned": matmul(("b",), ("b",), "m", 64, 64, dtype=dtype),
        "matmul_transposed": matmul(("b",), (), "m", "n", 64, dtype=dtype, transpose_b=True),
        "weighted_sum": matmul(("b",), ("b",), "m", "n", "k", dtype=dtype, skip_zeros=True),
    }
    if dtype == "float32" and arch != "sm_75":  # which has no tf32
        found["linear_tf32"] = linear(("m",), 512, 512, tf32=True, bias=True)
        found["matmul_tf32"] = matmul(("b",), ("b",), "m", "n", "depth", tf32=True)
    for activation in ACTIVATIONS:
        found[f"linear_{activation}"] = linear(
            ("m",), 512, 512, dtype=dtype, bias=True, activation=activation, gate=True
        )
    return found


def others(dtype: str) -> Functions:
    """Norms, softmax and what is generated from the ops' bodies, besides all other forms."""
    kind = DType(dtype)
    graphs = {**forms(kind), **{f"sample_{op}": s.graph for op, s in samples(kind).items()}}
    found: Functions = {
        "wide_norm": layer_norm(("m",), 16384, eps=1e-5, add=True, keep_sum=True, dtype=dtype)
    }
    for name, graph in graphs.items():
        module = lower(graph, {}, CudaKernels()).module
        found |= {
            f"{item.name_hint}_{name}": function
            for item, function in module.functions_items()
            if not isinstance(function, relax.Function)
        }
    return found


def attentions(dtype: str, arch: str) -> Functions:
    """Attention of all widths with plans from none to all masks and biases."""
    widths = WIDTHS if dtype == "float16" else (64, 128, 256)
    found: Functions = {}
    for width, terms in product(widths, PLANS):
        found |= attention(width, terms, dtype, arch)
    return found


def check(functions: Functions, arch: str) -> None:
    """Of each kernel the registers, the memory, where it multiplies and how it copies."""
    limit = parse_arch(arch).shared_bytes_per_block
    for code in machine_code(functions, parse_arch(arch)):
        kernel, usage = code.kernel, code.usage
        assert not usage.spills, (kernel.name, usage)
        assert usage.stack == 0, (kernel.name, usage)
        warps = -(-kernel.threads // WARP)
        assert warps * -(-usage.registers * WARP // 256) * 256 <= REGISTERS, kernel.name
        assert usage.shared >= kernel.static_shared_bytes
        assert usage.shared + kernel.dynamic_shared_bytes <= limit, kernel.name
        assert code.on_tensor_cores == multiplies_there(kernel), kernel.name
        tiled = kernel.name.startswith("linear") and kernel.number > 0
        if tiled or (code.on_tensor_cores and kernel.name.startswith("attention")):
            assert code.copies_ahead == (arch != "sm_75"), kernel.name


def multiplies_there(kernel: Kernel) -> bool:
    """Whether a kernel is to run on tensor cores: of 16-bit floats all products but those of up to
    four rows, which are dot products, and all attention but the launch that puts parts together.
    Where a product's weight is an input, a graph of 16 bits has kernels of float32, too."""
    types = {type_ for _, type_ in kernel.parameters}
    if types.isdisjoint(("float16*", "bfloat16*")) and "tf32" not in kernel.name:
        return False
    return {
        "linear": kernel.number > 0,
        "matmul": True,
        "attention": kernel.number != 1,
    }.get(kernel.name.partition("_")[0], False)


@pytest.mark.parametrize(
    ("arch", "dtype"),
    [
        ("sm_75", "float16"),
        ("sm_80", "bfloat16"),
        ("sm_90", "float32"),
        ("sm_120", "float16"),
    ],
)
def test_some_kernels(arch: str, dtype: str) -> None:
    functions = {
        "linear": linear(
            ("m",), 512, 512, dtype=dtype, bias=True, activation="gelu_tanh", gate=True
        ),
        "matmul": matmul(("b", "h"), ("b", 1), "m", "n", "depth", dtype=dtype),
        "softmax": softmax(("m",), "n", dtype=dtype),
        "norm": rms_norm(("m",), 768, eps=1e-5, add=True, keep_sum=True, dtype=dtype),
        **attention(TIGHT, PLANS[-2], dtype, arch),
    }
    check(functions, arch)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arch", "dtype"), [pair for pair in product(ARCHS, DTYPES) if pair != ("sm_75", "bfloat16")]
)
@pytest.mark.parametrize("kind", ["products", "others", "attention"])
def test_all_kernels(arch: str, dtype: str, kind: str) -> None:
    if kind == "products":
        check(products(dtype, arch), arch)
    elif kind == "others":
        check(others(dtype), arch)
    else:
        check(attentions(dtype, arch), arch)


@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHS)
def test_two_masks_or_biases_where_registers_are_few(arch: str) -> None:
    """What spills is decided by heuristics of ptxas: a pair may where three do not."""
    functions: Functions = {}
    for pair in combinations(TERMS, 2):
        functions |= attention(TIGHT, pair, "float16", arch)
    check(functions, arch)
