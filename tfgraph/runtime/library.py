"""Finds TVM's runtime library, which registers the virtual machine, without importing tvm.

Where `libtvm_runtime.so` is looked for, in this order: the file that TFGRAPH_TVM_RUNTIME names, the
package apache-tvm, the folders of the dynamic linker (LD_LIBRARY_PATH, ldconfig). May import: the
standard library, errors.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

from tfgraph.errors import MissingTool

VARIABLE = "TFGRAPH_TVM_RUNTIME"
NAME = "libtvm_runtime.so"


@cache
def load_tvm_runtime() -> None:
    """Load it once, for all of the process; `tvm_ffi` is imported before.

    Raises MissingTool where there is none, or the one that is found cannot be loaded.
    """
    # Otherwise TVM changes the affinity of the threads that call it. Read at each configuration.
    os.environ["TVM_BIND_THREADS"] = "0"
    # How often a worker looks for work before it sleeps: for about a millisecond, which spans the
    # serial kernels of a model. TVM's own 300,000 takes a core for a tenth of a second after every
    # call, from NumPy's threads among others.
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "2000")
    found = _library()
    try:
        ctypes.CDLL(found, ctypes.RTLD_GLOBAL)
    except OSError as cause:
        if found == NAME:
            raise MissingTool(
                f"TVM's runtime library, {NAME}, is not here",
                hint=f"pip install apache-tvm, or name the file in {VARIABLE}",
            ) from cause
        origin = f" ({VARIABLE})" if found == os.environ.get(VARIABLE) else ""
        raise MissingTool(f"TVM's runtime library cannot be loaded{origin}: {cause}") from cause


def library_path(name: str) -> str:
    """The file of another of TVM's runtime libraries, which lies beside the first."""
    found = _library()
    return name if found == NAME else str(Path(found).with_name(name))


def _library() -> str:
    """The file to load, or its bare name, which the dynamic linker looks for."""
    named = os.environ.get(VARIABLE)
    if named and "tvm" not in sys.modules:  # two copies in one process would not get on
        return named
    package = importlib.util.find_spec("tvm")
    if package is None or package.origin is None:
        return NAME
    return str(Path(package.origin).parent / "lib" / NAME)
