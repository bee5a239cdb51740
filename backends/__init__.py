"""Backends: NumPy, the reference; TVM for the CPU, CUDA, OpenCL, Metal and WebGPU. Found by
name, imported on use.

Imports passes, runtime, ops and ir; only `backends.tvm` imports tvm.
"""

from tfgraph.backends.base import (
    Backend,
    Built,
    CompilingBackend,
    Executable,
    Target,
    backend_names,
    find_backend,
    register_backend,
)

__all__ = [
    "Backend",
    "Built",
    "CompilingBackend",
    "Executable",
    "Target",
    "backend_names",
    "find_backend",
    "register_backend",
]
