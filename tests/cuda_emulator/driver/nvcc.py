"""An nvcc for the fake driver: in place of code for a GPU it writes a line that names a library of
emulated kernels. It takes the options that `backends/tvm/cuda/toolkit.py` gives.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from pathlib import Path

from cuda_emulator.build import host_library


def main(arguments: list[str]) -> int:
    """See the module."""
    options = [a for a in arguments if a.startswith("-")]
    arch = next(o for o in options if o.startswith("-arch=")).removeprefix("-arch=")
    source = sys.stdin.read()
    out = Path(arguments[arguments.index("-o") + 1])
    folder = Path(os.environ["FAKE_NVCC_LIBRARIES"])
    with (folder / "lock").open("w") as lock:  # one source is compiled for several architectures
        fcntl.flock(lock, fcntl.LOCK_EX)
        library = host_library(source, folder)
    head = "FAKE-CUBIN" if "-cubin" in options else "//FAKE-PTX 9.0"
    out.write_text(f"{head} {arch} {library}\n", encoding="utf-8")
    for name in re.findall(r"__global__ void\s+(\w+)\(", source):
        print(f"ptxas info    : Function properties for {name}", file=sys.stderr)
        print("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", file=sys.stderr)
        print("ptxas info    : Used 32 registers", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
