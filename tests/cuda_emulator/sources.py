"""The kernels of these tests: true CUDA C, behind the words that generated kernels use."""

from __future__ import annotations

from pathlib import Path

import tfgraph.backends.tvm.cuda

KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.cu"))
PRELUDE = Path(tfgraph.backends.tvm.cuda.__file__).with_name("ptx.cuh")
_INCLUDES = "#include <cstdint>\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


def kernels(name: str) -> str:
    """The text of kernels/NAME.cu with what stands before kernels."""
    own = Path(__file__).parent / "kernels" / f"{name}.cu"
    return f"{_INCLUDES}{PRELUDE.read_text('utf-8')}\n{own.read_text('utf-8')}"
