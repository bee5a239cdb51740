"""What masks cost: attention under structured masks against attention without one.

    python benchmarks/masks.py [--length 1024] [--threads 2]

Tiles that a mask hides wholly are skipped, so a causal mask should cost little more than half. The
graphs take turns; each time is the least of many calls, and CPU time is that of all threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tfgraph
from tfgraph import ops
from tfgraph.ir import rsqrt
from tfgraph.ir.mask import alibi, causal, padding, prefix, relative, segments, window

HEADS, SIZE, ROUNDS = 12, 64, 40


def graph_of(name: str) -> Any:
    """Attention of one sequence under one mask."""
    with ops.graph("attention") as g:
        q, k, v = (g.input(n, "f32", "batch", "seq", HEADS * SIZE) for n in "qkv")
        make: dict[str, Callable[[], Any]] = {
            "none": lambda: None,
            "causal": causal,
            "window of 128": lambda: window(128, 0),
            "half padding": lambda: padding(g.input("keep", "bool", "batch", "seq")),
            "half lengths": lambda: padding(g.input("lengths", "i64", "batch")),
            "prefix of 1/4": lambda: prefix(g.input("prefix", "i64", "batch")),
            "4 segments": lambda: segments(g.input("ids", "i64", "batch", "seq")),
            "causal, alibi": lambda: causal() & alibi(g.input("slopes", "f32", HEADS)),
            "causal, relative": lambda: causal() & relative(g.input("table", "f32", 32, HEADS)),
        }
        y: Any = ops.attention(
            q, k, v, make[name](), heads=HEADS, kv_heads=HEADS, scale=rsqrt(SIZE)
        )
        g.output("y", y)
    return g.build()


MASKS: tuple[str, ...] = (
    "none",
    "causal",
    "window of 128",
    "half padding",
    "half lengths",
    "prefix of 1/4",
)
MASKS += ("4 segments", "causal, alibi", "causal, relative")


def feeds(length: int) -> dict[str, Any]:
    """One sequence, and the tensors of all masks."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        n: rng.standard_normal((1, length, HEADS * SIZE), np.float32) for n in "qkv"
    }
    half = np.arange(length) < length // 2
    arrays |= {"keep": half[None], "lengths": np.array([length // 2])}
    arrays |= {"prefix": np.array([length // 4]), "ids": np.arange(length)[None] * 4 // length}
    arrays["slopes"] = (2.0 ** -np.arange(1, HEADS + 1)).astype(np.float32)
    arrays["table"] = rng.standard_normal((32, HEADS), np.float32)
    return arrays


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    arrays = feeds(given.length)
    models = {name: tfgraph.compile(graph_of(name), threads=given.threads) for name in MASKS}
    inputs = {
        name: {port.name: arrays[port.name] for port in model.inputs}
        for name, model in models.items()
    }
    wall: dict[str, list[float]] = {name: [] for name in MASKS}
    cpu: dict[str, list[float]] = {name: [] for name in MASKS}
    for _ in range(ROUNDS):
        for name, model in models.items():
            model(**inputs[name])  # wakes the threads up
            start, used = time.perf_counter(), time.process_time()
            model(**inputs[name])
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - used)
    print(f"{HEADS} heads of {SIZE}, length {given.length}, {given.threads} threads, float32\n")
    print("| mask | least ms | of no mask | CPU ms (median) | of no mask |")
    print("| --- | --- | --- | --- | --- |")
    for name in MASKS:
        least, used = min(wall[name]), float(np.median(cpu[name]))
        print(
            f"| {name} | {least * 1e3:.2f} | {least / min(wall['none']):.2f} "
            f"| {used * 1e3:.2f} | {used / float(np.median(cpu['none'])):.2f} |"
        )


if __name__ == "__main__":
    main()
