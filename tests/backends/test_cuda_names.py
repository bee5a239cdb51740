"""Symbols of a graph may be called as CUDA or C++ call something: the kernels still compile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu
from helpers.tolerance import assert_close

from tfgraph import graph, ops
from tfgraph.backends.base import Target
from tfgraph.backends.tvm.cuda.backend import CudaBackend
from tfgraph.backends.tvm.cuda.names import plain_name
from tfgraph.backends.tvm.cuda.norm import layer_norm

# Words of the languages, of CUDA, of <math.h>; names that the kernels give; letters beyond ASCII.
NAMES = [
    "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "__restrict__", "__syncthreads",
    "half", "dim3", "float4", "int2", "uint", "signed", "template", "this", "new", "operator",
    "int64_t", "sqrtf", "expf", "rsqrtf", "fmaxf", "INFINITY", "NAN", "std", "linux", "assert",
    "INT_MAX", "uint8_t", "_Bool", "_", "__", "y1", "main", "thread", "row", "x", "out", "eps",
    "total", "rest", "element", "größe", "长度", "size_threadIdx",
]  # fmt: skip


def test_every_name_compiles_and_computes(tmp_path: Path) -> None:
    functions = {f"k{i}": layer_norm((name,), 40, eps=1e-5) for i, name in enumerate(NAMES)}
    functions["both"] = layer_norm(("threadIdx", "size_threadIdx"), 40, eps=1e-5)
    run = CudaOnCpu(functions, tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 40)).astype(np.float32)
    scale, bias = rng.standard_normal((2, 40)).astype(np.float32)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias
    for name in [f"k{i}" for i in range(len(NAMES))]:
        kernel = run.kernels[f"{name}_kernel"]
        (size,) = (p for p, kind in kernel.parameters if kind == "int64")
        got = np.full_like(x, np.nan)
        given = [x, scale, bias, got]
        arrays = [p for p, kind in kernel.parameters if kind.endswith("*")]
        order = {str(p.name): v for p, v in zip(functions[name].params, given, strict=True)}
        arguments = {f"{p.removesuffix('_ptr')}_ptr": order[p.removesuffix("_ptr")] for p in arrays}
        run.launch(kernel.name, {**arguments, size: 3})
        assert_close(got, want, length=40, name=name)
    sizes = [p for p, kind in run.kernels["both_kernel"].parameters if kind == "int64"]
    assert len(set(sizes)) == 2


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("batch", "batch"),
        ("seq", "seq"),
        ("T", "T"),
        ("threadIdx", "size_threadIdx"),
        ("__restrict__", "size_restrict"),
        ("größe", "gruf6udfe"),
        ("again", "size_again"),  # functions, constants, types and macros of the prelude
        ("BF16", "size_BF16"),
        ("Format", "size_Format"),
        ("DEVICE", "size_DEVICE"),
    ],
)
def test_what_a_size_is_called(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_source_and_launches_agree() -> None:
    with graph("g") as g:
        g.output("y", ops.exp(g.input("x", "f32", "threadIdx", 8)))
    files = CudaBackend().build(g.build(), {}, Target("cuda", "sm_80")).files
    assert "int64_t size_threadIdx" in files["kernels/kernels.cu"].decode()
    assert '"name": "size_threadIdx"' in files["kernels/launch.json"].decode()
