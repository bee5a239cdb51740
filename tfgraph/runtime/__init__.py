"""Load and run what `tfgraph compile` wrote, without the compiler.

May import: numpy, tvm_ffi, tvm_ffi_orcjit, the standard library and tfgraph.errors.
"""
