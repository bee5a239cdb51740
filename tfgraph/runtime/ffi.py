"""`tvm_ffi` and its JIT linker, imported without PyTorch. May import: tvm_ffi, tvm_ffi_orcjit,
absent.
"""

from __future__ import annotations

from tfgraph.runtime.absent import without_pytorch

with without_pytorch():
    import tvm_ffi
    from tvm_ffi_orcjit import ExecutionSession

__all__ = ["ExecutionSession", "tvm_ffi"]
