"""The TVM backends: kernels of our own, lowered by LLVM (`cpu/`), to CUDA source (`cuda/`), or to
that of OpenCL, Metal and WebGPU (`portable/`).

Only this package imports `tvm`, and it is imported on use. It needs nothing at run time: what it
builds is loaded by `tfgraph.runtime`. May import: passes, ops, ir, errors, numpy, tvm.
"""
