"""Memory that is kept for the next call, and how much at most."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tfgraph import ops
from tfgraph.api import compile
from tfgraph.runtime.pool import KEPT, Pool

if TYPE_CHECKING:
    from pathlib import Path


def test_the_pool_is_emptied_before_it_passes_its_limit() -> None:
    emptied: list[int] = []
    pool = Pool(lambda: emptied.append(1))
    for _ in range(3):
        pool.before("small", KEPT // 2)
        pool.before("other", KEPT // 2)
    assert not emptied
    pool.before("third", 1)
    assert len(emptied) == 1
    pool.before("small", KEPT // 2)  # beside the third
    assert len(emptied) == 1


def test_a_call_that_needs_more_keeps_its_own_memory() -> None:
    emptied: list[int] = []
    pool = Pool(lambda: emptied.append(1))
    for _ in range(3):
        pool.before("large", 5 * KEPT)
    assert not emptied
    pool.before("small", 1)
    pool.before("large", 5 * KEPT)
    assert len(emptied) == 2
    pool.clear()
    pool.clear()
    assert len(emptied) == 3


SCRIPT = """
import ctypes, resource, sys, tfgraph
from tfgraph.runtime.pool import KEPT

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Info

def taken():  # from malloc, in its heap and beside it
    info = mallinfo2()
    return info.uordblks + info.hblkhd

with tfgraph.load(sys.argv[1]) as model:
    x = model.example({"rows": 4096})["x"]
    for _ in range(3):
        model(x=x)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        model(x=x)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert faults < 500, f"{faults} page faults: memory is taken anew"
    kept = taken()
    for rows in range(1000, 1100):  # 4 MB each, of a size of its own
        model(x=x[:rows])
    assert taken() < kept + KEPT, f"{taken() - kept} bytes more than before"
    kept = taken()
assert taken() < kept - KEPT // 4, "closing the model gave nothing back"
"""


def test_equal_calls_reuse_memory_and_unequal_ones_do_not_pile_up(tmp_path: Path) -> None:
    with ops.graph("steps") as g:
        x = g.input("x", "f32", g.symbol("rows", 1, 4096, example=4096), 512)
        g.output("y", ops.softmax(ops.exp(x)))
    compile(g.build(), output=tmp_path / "a").close()
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "a")], check=True)
