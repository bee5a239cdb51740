"""TVM by itself: what `tfgraph export` writes, through TVM's own importer, passes and code
generator, and none of tfgraph's kernels. It schedules no loops for a CPU. May import: sides; TVM.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnx
import tvm
from sides import Forward, Job, NDArray
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def side(job: Job) -> Forward:
    """Constant sizes, and weights in the module."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.onnx"
        graph = job.export(file)
        model = onnx.load(file)
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    module: Any = from_onnx(model)
    del model
    device = tvm.cpu()
    run = relax.VirtualMachine(tvm.compile(module, target), device)["main"]
    given = job.arrays() | job.past()
    inputs = [tvm.runtime.tensor(given[i.value.name], device) for i in graph.inputs]

    def forward() -> NDArray:
        found = run(*inputs)
        first: NDArray = (found[0] if len(graph.outputs) > 1 else found).numpy()
        return first

    return forward
