"""Kernels read no element that is not there: beside their arrays lie pages that nobody may touch,
in a process of its own, since who reads there crashes."""

from __future__ import annotations

import json
import signal

import pytest
from helpers.processes import python

KERNELS = """if True:
    import json
    import numpy as np
    from helpers.guarded import guarded
    from helpers.kernels import compile_kernels
    from tfgraph.backends.tvm.attention_mask import (
        Alibi, ByDistance, Causal, Dense, DenseBias, Padding, Prefix, Segments
    )
    from tfgraph.backends.tvm.attention_plan import MaskPlan
    from tfgraph.backends.tvm.cpu.attention import attention
    from tfgraph.backends.tvm.cpu.attention_mask import KeyList
    from tfgraph.backends.tvm.kernels import AttentionShape
    from tfgraph.backends.tvm.target import cpu_machine

    BATCH, HEADS, KV_HEADS, WIDTH, VALUES = 8, 4, 2, 21, 9  # no widths of whole vectors
    SHAPE = AttentionShape(
        HEADS, KV_HEADS, WIDTH, VALUES, HEADS * WIDTH, KV_HEADS * WIDTH, KV_HEADS * VALUES
    )
    SIZES = [(1, 36), (5, 36), (40, 37), (40, 101)]  # a few queries, and blocks that are not full
    PLANS = {
        "plain": MaskPlan(),
        "padding": MaskPlan((Padding(),)),
        "keys": MaskPlan((KeyList(),)),
        "prefix": MaskPlan((Prefix(0),)),
        "segments": MaskPlan((Segments(),)),
        "segments of int32": MaskPlan((Segments("int32", "int32"), Causal())),
        "dense": MaskPlan((Dense(),)),
        "dense of queries": MaskPlan((Dense(False, False, True, "int32"),)),
        "dense of heads": MaskPlan((Dense(True, True, False, "int64"),)),
        "bias": MaskPlan((), (DenseBias(),)),
        "bias of queries": MaskPlan((), (DenseBias(False, False, True),)),
        "by distance": MaskPlan((), (ByDistance(),)),
        "alibi": MaskPlan((), (Alibi(),)),
    }
    names = {name: f"k{i}" for i, name in enumerate(PLANS)}
    machine = cpu_machine()
    functions = {
        names[name]: attention(names[name], SHAPE, plan, machine, scale=0.3)
        for name, plan in PLANS.items()
    }
    rng = np.random.default_rng(0)

    def array(parameter, sizes, listed):
        shape = [sizes[n] if isinstance(n, str) else n for n in parameter.shape]
        if parameter.name == "count":
            return np.full(BATCH, sizes["keys"], np.int32)
        if parameter.name == "keys" and parameter.dtype == "int32" and listed:
            return np.tile(np.arange(sizes["keys"], dtype=np.int32), (BATCH, 1))
        if parameter.dtype == "float32":
            return rng.standard_normal(shape, np.float32)
        return rng.integers(0, 2, shape).astype(parameter.dtype)

    done = []
    with compile_kernels(functions, threads=2) as program:
        for s, t in SIZES:
            sizes = {"batch": BATCH, "heads": HEADS, "queries": s, "keys": t,
                     "distances": s + t - 1}
            for name, plan in PLANS.items():
                shapes = [(BATCH, s, SHAPE.q_pitch), (BATCH, t, SHAPE.k_pitch),
                          (BATCH, t, SHAPE.v_pitch)]
                given = [rng.standard_normal(shape, np.float32) for shape in shapes]
                given += [array(parameter, sizes, name == "keys") for parameter in plan.parameters]
                want = program.call(names[name], given)[0]
                for behind in (True, False):
                    print(name, s, t, behind, flush=True)
                    placed = [guarded(a, behind=behind) for a in given]
                    got = program.call(names[name], placed)[0]
                    assert got.tobytes() == want.tobytes()
                done.append(name)
    print(json.dumps(done))"""


def test_attention_reads_its_arrays_alone() -> None:
    """Lanes past the last query, keys past the last tile, columns past a head's width."""
    done = json.loads(python(KERNELS, timeout=600).splitlines()[-1])
    assert len(done) == 4 * 13


TOUCH = """if True:
    import sys
    import numpy as np
    from helpers.guarded import guarded
    array = guarded(np.arange(48, dtype=np.float32), behind=sys.argv[1] == "behind")
    assert array.ctypes.data % 64 == 0
    assert (array == np.arange(48)).all()
    step = 4 if sys.argv[1] == "behind" else -4
    print("touching", flush=True)
    np.lib.stride_tricks.as_strided(array, (49,), (step,))[48 if step > 0 else 1] + 1
    print("touched")"""


@pytest.mark.parametrize("side", ["behind", "before"])
def test_who_reads_on_crashes(side: str) -> None:
    with pytest.raises(AssertionError, match=f"exit {-signal.SIGSEGV}\ntouching\n"):
        python(TOUCH, side)
