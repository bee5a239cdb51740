"""The files that the sides are given: artifacts, ONNX files, weights for NumPy, and inputs.

May import: tfgraph, graphs, sides, torch_code, work,
workloads.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from graphs import at_sizes, decode, prefill
from sides import ARTIFACT, CONFIG, GRAPH, PAST, SIDES, TORCH, WEIGHTS, NDArray
from torch_code import to_torch
from work import Work, count_work
from workloads import ATTENTION, EXAMPLES, HAVE_NUMPY, Workload

from tfgraph import export_onnx, load, ops, print_graph
from tfgraph.api import build
from tfgraph.cache import default_cache
from tfgraph.ir import Graph, rsqrt
from tfgraph.model import Model, read_model
from tfgraph.model.read import read_document
from tfgraph.runtime.runnable import Runnable
from tfgraph.weights import Seeded

HEADS, HEAD_SIZE = 12, 64
"""Of the attention that is timed alone."""


def open_model(name: str, reach: Mapping[str, int] | None = None) -> Model:
    """A model of `examples/`, or attention alone; `reach` are the largest sizes of its symbols,
    where others than the file's, and positions reach as far."""
    if name == ATTENTION:
        made = _attention()
        return Model(made, Seeded(made.params), made.name)
    path = EXAMPLES / f"{name}.yaml"
    if reach is None:
        return read_model(path)
    data = read_document(path).data
    for symbol, most in reach.items():
        data["symbols"][symbol]["max"] = most
    data["positions"]["max"] = max(reach.values())
    return read_model(path, json.dumps(data))  # JSON is YAML


def _attention() -> Graph:
    with ops.graph(ATTENTION) as g:
        q, k, v = (g.input(n, "f32", "batch", "seq", HEADS * HEAD_SIZE) for n in "qkv")
        scale = rsqrt(HEAD_SIZE)
        y: Any = ops.attention(q, k, v, heads=HEADS, kv_heads=HEADS, scale=scale)
        g.output("y", y)
    return g.build()


def graph_of(model: Model, task: str) -> Graph:
    """The graph of a task as it is counted and exported."""
    if task == "forward":
        return model.graph
    return (prefill if task == "prefill" else decode)(model.functions["step"])


def symbols_of(workload: Workload) -> dict[str, int]:
    """The sizes of the symbols of `graph_of`."""
    sizes = dict(workload.sizes)
    return {"batch": sizes["batch"], "past": sizes["seq"]} if workload.task == "decode" else sizes


@dataclass(frozen=True)
class Ready:
    """A workload with its files, what it takes at least, and the bytes of the model's weights."""

    workload: Workload
    folder: Path
    inputs: Path
    work: Work
    weights: int

    def sides(self, names: Iterable[str]) -> dict[str, tuple[Path, Path]]:
        """Those of the named sides that are installed and have a program for it, as `measure` takes
        them."""
        found = (n for n in names if SIDES[n].installed)
        task = self.workload.task
        return {n: (self.folder, self.inputs) for n in found if SIDES[n].takes(self.folder, task)}


def make_ready(workload: Workload, base: Path, reach: Mapping[str, int] | None = None) -> Ready:
    """Prepare a workload in a folder of `base`; `reach` as for `open_model`."""
    print(f"preparing {workload.name}", file=sys.stderr)
    model = open_model(workload.model, reach)
    folder = base / (workload.model if reach is None else f"{workload.model}-scaling")
    prepare(workload.model, model, workload.task, folder)
    inputs = write_inputs(workload, folder)
    graph, sizes = graph_of(model, workload.task), symbols_of(workload)
    exact = at_sizes(graph, sizes)
    inputs.with_suffix(GRAPH).write_text(print_graph(exact))
    if SIDES["torch"].installed:
        inputs.with_suffix(TORCH).write_text(to_torch(exact))
    work = count_work(graph, sizes)
    print(f"measuring {workload.name}", file=sys.stderr)
    return Ready(workload, folder, inputs, work, weight_bytes(model))


def prepare(name: str, model: Model, task: str, folder: Path) -> None:
    """Compile a model into `folder`; beside it an ONNX file for the task, and the same weights
    where NumPy or PyTorch take part. What is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ARTIFACT).exists():
        build(model, "cpu", folder / ARTIFACT, check=False, prove=False, cache=default_cache())
    file = folder / f"{task}.onnx"
    if not file.exists():
        export_onnx(graph_of(model, task), file, weights=model.weights, check=False)
    if name in HAVE_NUMPY:
        data = read_document(EXAMPLES / f"{name}.yaml").data
        sizes = {key: data[key] for key in ("layers", "width", "heads", "ffn", "vocabulary")}
        sizes["positions"] = data["positions"]["max"]
        (folder / CONFIG).write_text(json.dumps(sizes))
    if (name in HAVE_NUMPY or SIDES["torch"].installed) and not (folder / WEIGHTS).exists():
        np.savez(folder / WEIGHTS, allow_pickle=False, **model.load())


def prepare_exact(model: Model, sizes: Mapping[str, int], folder: Path) -> None:
    """Compile the whole model for exact sizes."""
    if not (folder / ARTIFACT).exists():
        folder.mkdir(parents=True, exist_ok=True)
        exact = at_sizes(model.graph, sizes)
        build(
            exact,
            "cpu",
            folder / ARTIFACT,
            weights=model.weights,
            check=False,
            prove=False,
            cache=default_cache(),
        )


def write_inputs(workload: Workload, folder: Path) -> Path:
    """The inputs of a workload, without padding, which every side has to compute in full; for a
    decoded token the prompt, and what tfgraph made of it, besides."""
    file = folder / f"{workload.name}.npz"
    with load(folder / ARTIFACT, verify_weights=False) as model:
        arrays = model.example(workload.sizes)
        for port in model.inputs:
            if port.fill.startswith("prefix"):
                arrays[port.name] = np.ones_like(arrays[port.name])
        if workload.task == "decode":
            prompt = arrays["input_ids"]
            past = _past(model, prompt)
            arrays = {"input_ids": prompt[:, :1], "prompt": prompt, **past}
    np.savez(file, allow_pickle=False, **arrays)
    return file


def _past(model: Runnable, prompt: NDArray) -> dict[str, NDArray]:
    """The keys and values of a prompt."""
    step = model.functions["step"]
    batch, length = prompt.shape
    given = step.example({"batch": batch, "seq": length, "end": length, "capacity": length})
    given |= {"input_ids": prompt, "first": np.zeros(batch, np.int64)}
    found = step(dims={"end": length}, **given)
    return {f"{PAST}{name}": array for name, array in found.items() if name != "logits"}


def weight_bytes(model: Model) -> int:
    """Of all parameters: each element in 4 bytes."""
    shapes = (param.value.type.shape for param in model.graph.params)
    return 4 * sum(math.prod(map(int, shape)) for shape in shapes)
