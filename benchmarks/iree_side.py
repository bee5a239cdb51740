"""IREE: what `tfgraph export` writes, compiled for this CPU. May import: sides; IREE."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import iree.compiler
import iree.runtime
from sides import Forward, Job, NDArray

SETTINGS = (
    "--iree-llvmcpu-target-cpu=host",
    # MiniLM takes three quarters of the time with it. Under --iree-opt-level=O2 and O3 it does not
    # compile, and without their fusion it takes longer.
    "--iree-opt-data-tiling",
)


def side(job: Job) -> Forward:
    """Constant sizes, weights in the module, and inputs on the device, which is this process."""
    with tempfile.TemporaryDirectory() as folder:
        onnx, mlir = Path(folder) / "m.onnx", Path(folder) / "m.mlir"
        graph = job.export(onnx)
        tool = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(onnx), "-o", str(mlir)]
        subprocess.run(tool, check=True)
        onnx.unlink()
        code = iree.compiler.compile_file(
            str(mlir), input_type="onnx", target_backends=["llvm-cpu"], extra_args=SETTINGS
        )
    iree.runtime.flags.parse_flags(f"--task_topology_group_count={job.threads}")
    config = iree.runtime.Config("local-task")
    loaded = iree.runtime.VmModule.copy_buffer(config.vm_instance, code)
    module: Any = iree.runtime.load_vm_module(loaded, config)
    given = job.arrays() | job.past()
    inputs = [iree.runtime.asdevicearray(config.device, given[i.value.name]) for i in graph.inputs]
    run = module[graph.name]

    def forward() -> NDArray:
        found = run(*inputs)
        first = found[0] if len(graph.outputs) > 1 else found
        result: NDArray = first.to_host()
        return result

    return forward
