"""The TVM backend: kernels of our own, lowered by LLVM (`cpu/`) or to CUDA source (`cuda/`).

Only this package imports `tvm`, and it is imported on use. It needs nothing at run time: what it
builds is loaded by `tfgraph.runtime`. May import: passes, ops, ir, errors, numpy, tvm.
"""
