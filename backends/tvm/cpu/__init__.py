"""CPU kernels: PrimFuncs written in Python with TVM's IRBuilder, sized for one `CpuMachine`.

One file a kernel. Each function returns a PrimFunc that a Relax function calls through `call_tir`.
"""
