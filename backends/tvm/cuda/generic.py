"""A GPU schedule for functions that nobody wrote a kernel for: elementwise and shape ops, mostly.

All spatial loops are fused and dealt out to threads, one element a thread; reductions run inside.
That is correct for every TensorIR function and fast for elementwise ones. May import: tvm.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import dlight

THREADS = 256


def is_scheduled(function: Any) -> bool:
    """Whether this PrimFunc binds its own threads, or is not one that runs on the GPU."""
    attributes = function.attrs or {}
    return bool(attributes.get("tirx.is_scheduled") or attributes.get("tirx.is_host_func"))


def schedule(function: Any, target: Any) -> Any:
    """The same PrimFunc with producers inlined and its loops bound to blocks of 256 threads."""
    limited = tvm.target.Target(
        {"kind": "cuda", "arch": target.attrs["arch"], "max_num_threads": THREADS}
    )
    scheduled: Any = dlight.gpu.Fallback().apply(function, limited, False)
    if scheduled is None:
        raise ValueError(f"no schedule for {function}")
    return scheduled.mod["main"].with_attr("tirx.is_scheduled", True)


def schedule_module(mod: Any, target: Any) -> Any:
    """`schedule` for every PrimFunc of the module that is not scheduled yet."""
    updated = {
        name: schedule(function, target)
        for name, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc) and not is_scheduled(function)
    }
    scheduled = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    scheduled.update(tvm.IRModule(updated))
    return scheduled
