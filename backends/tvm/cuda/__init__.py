"""tfgraph.backends.tvm.cuda: CUDA kernels of our own, and the CUDA C they become."""
