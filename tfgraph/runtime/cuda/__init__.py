"""Artifacts for NVIDIA GPUs: the driver and its devices, TVM's CUDA runtime, the code for a device,
and arrays that lie there.
"""
