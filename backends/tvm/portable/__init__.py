"""OpenCL C, Metal and WGSL: the generic kernels as source, with all that a host needs to run them.

TVM lowers the kernels; their text is printed here, for its generators of these languages write
floats with seven digits, arrays of bool where none may be, and no 64-bit integers in WGSL.
"""
