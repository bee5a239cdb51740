"""`make demo`: from a model file to verified kernels, in one script that can be read.

Compiles encoder.yaml for the CPU, checks it against the reference and runs it; builds the same
graph in Python; writes CUDA source for it; compares NumPy and CPU value by value.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tfgraph
from tfgraph.backends import Target
from tfgraph.backends.tvm.cuda.arch import default_archs
from tfgraph.runtime.cores import default_threads

HERE = Path(__file__).parent
OUT = HERE.parent / "build" / "demo"
ROUNDS, CALLS = 5, 3


def main() -> int:
    """Run the demo; 1 if something is not as it should be."""
    started = time.perf_counter()
    model = tfgraph.load_source(str(HERE / "encoder.yaml"))
    graph, text = model.graph, tfgraph.print_graph(model.graph)
    say("read", f"examples/encoder.yaml: {len(graph.nodes)} nodes, weights made from a seed")

    twin = tfgraph.load_source(str(HERE / "encoder.py") + ":model")
    if tfgraph.print_graph(twin.graph) != text:
        return fail("examples/encoder.py builds another graph than encoder.yaml")
    say("twin", "examples/encoder.py builds the same graph in Python, letter for letter")

    clock = time.perf_counter()
    report = tfgraph.build(graph, Target("cpu"), OUT / "encoder.cpu.tfgraph", weights=model.weights)
    applied = {rule: n for p in report.passes for rule, n in p.applied.items() if "fuse" in rule}
    took = time.perf_counter() - clock
    before, after = len(graph.nodes), len(report.compiled.nodes)
    say("compile", f"for this CPU: {before} nodes before the passes, {after} after")
    say("", f"{took:.1f} s with the verification")
    for rule, n in applied.items():
        say("", f"{n:3} x {rule}")
    for d in report.verification.outputs:
        points = len(report.verification.dims)
        say("verify", f"{d.name}: error {d.max_abs:.1e}, bound {d.bound:.1e}, at {points} sizes")

    cuda = Target("cuda", *(str(part) for part in chosen_arch()))
    emitted = tfgraph.build(graph, cuda, OUT / "encoder.cuda.tfgraph", weights=model.weights)
    source = (emitted.artifact / "kernels" / "kernels.cu").read_text()
    say("cuda", f"{source.count('__global__')} kernels for {cuda.arch} ({cuda.arch_origin})")
    say("", f"verification {emitted.verification.reason}")

    compared = tfgraph.compare(graph, weights=model.weights)
    if not compared.ok:
        print(compared)
        return fail("NumPy and CPU differ")
    worst = max(compared.outputs, key=lambda d: d.max_abs)
    say("compare", f"NumPy and CPU agree in {len(compared.intermediates)} values on the way,")
    say("", f"in the output to {worst.max_abs:.1e}, bound {worst.bound:.1e}")

    with tfgraph.load(report.artifact) as encoder:
        inputs = encoder.example()
        reference = tfgraph.compile(graph, "numpy", weights=model.weights)
        fast, slow = alternate(lambda: encoder(**inputs), lambda: reference(**inputs))
        shape = list(encoder(**inputs)["last_hidden_state"].shape)
    say("run", f"input_ids {list(inputs['input_ids'].shape)} -> last_hidden_state {shape}")
    say("", f"CPU kernels {fast * 1e3:.1f} ms, the NumPy reference {slow * 1e3:.0f} ms, which is")
    say("", "plain and exact rather than quick; `make bench` has fair opponents")
    say("", f"(medians of {ROUNDS} alternating turns, {default_threads()} threads)")

    tool = Path(sys.executable).parent / "tfgraph"
    shown = tool.relative_to(Path.cwd()) if tool.is_relative_to(Path.cwd()) else tool
    decoder = "build/demo/decoder.cpu.tfgraph"
    print(f"\n{time.perf_counter() - started:.0f} s, the making of .venv not counted. Try")
    print(f"  {shown} inspect examples/encoder.yaml --fusion --cost")
    print(f"  {shown} run build/demo/encoder.cpu.tfgraph --dim batch=1 --dim seq=77")
    print(f"  {shown} compile examples/decoder.yaml --print-after fuse-add-norm -o {decoder}")
    return 0


def chosen_arch() -> tuple[str, str]:
    """The CUDA architecture that `compile --target cuda` takes, and why."""
    archs, origin = default_archs(None, None)
    return archs[0].name, origin


def alternate(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[float, float]:
    """Median seconds of each over turns, so that both meet the same noise. Of a turn's calls the
    quickest counts: in the first one the other side's threads still spin."""
    times: tuple[list[float], list[float]] = ([], [])
    for call in (first, second):
        call()
    for _ in range(ROUNDS):
        for call, found in zip((first, second), times, strict=True):
            taken: list[float] = []
            for _ in range(CALLS):
                clock = time.perf_counter()
                call()
                taken.append(time.perf_counter() - clock)
            found.append(min(taken))
    return statistics.median(times[0]), statistics.median(times[1])


def say(what: str, text: str) -> None:
    """A line of the demo."""
    print(f"{what:8} {text.rstrip()}", flush=True)


def fail(reason: str) -> int:
    """What went wrong; the exit code."""
    print(f"demo: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
