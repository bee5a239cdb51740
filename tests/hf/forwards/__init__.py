"""Forward passes of architectures in plain NumPy, float64, one file each, written from their papers
and from the formulas of transformers: what checkpoints are compared with where no outputs were
recorded. Nothing here comes from tfgraph.

Each file has CASES, a config.json for each way in which its checkpoints differ, `shapes`, the
tensors of a checkpoint, and `forward`, its outputs. `Tensors` are float64 by their stored names.
"""
