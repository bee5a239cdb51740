"""The readers, each as a function of bytes, and what else must hold of what they read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfgraph.ir import Graph

PARTS = b"\n\0\n"
"""Between the files of an input that has several."""
WEIGHTS_BYTES = 1 << 20
"""Of the weights behind a checkpoint's header: more than the recorded ones have."""


def text(_: Path, data: bytes) -> None:
    """A graph as text. What is read is legal, and prints to text that parses to the same."""
    from tfgraph.text import parse_graph

    _is_whole(parse_graph(data.decode("utf-8", "surrogateescape"), "input.tfg"))


def yaml(folder: Path, data: bytes) -> None:
    """A model file in either form, its graph and the graphs with which it generates."""
    from tfgraph.model import read_model

    path = folder / "input.yaml"
    path.write_bytes(data)
    model = read_model(path)
    for graph in (model.graph, *model.functions.values()):
        _is_whole(graph)


def onnx(folder: Path, data: bytes) -> None:
    """An ONNX file. What is read is legal, and its weights have the shapes that the graph says."""
    from tfgraph.onnx import import_onnx

    path = folder / "input.onnx"
    path.write_bytes(data)
    graph, weights = import_onnx(path)
    _is_whole(graph)
    for param in graph.params:
        array = weights[param.value.name]
        assert array.shape == tuple(map(int, param.value.type.shape)), param


def checkpoint(folder: Path, data: bytes) -> None:
    """A folder: config.json, the header of model.safetensors, and generation_config.json."""
    from tfgraph.hf import import_checkpoint
    from tfgraph.model import read_model

    inside = folder / "input"
    inside.mkdir(exist_ok=True)
    config, header, generation = [*data.split(PARTS), b"", b""][:3]
    (inside / "config.json").write_bytes(config)
    (inside / "generation_config.json").write_bytes(generation or b"{}")
    with (inside / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + WEIGHTS_BYTES)  # zeros
    path = folder / "input.yaml"
    model = read_model(path, import_checkpoint(inside, path))
    _is_whole(model.graph)


def manifest(folder: Path, data: bytes) -> None:
    """An artifact's manifest, sealed anew, with the other files of an artifact: it is loaded."""
    from tfgraph.runtime import format as layout
    from tfgraph.runtime.model import load

    inside = folder / "input.tfgraph"
    try:
        given: Any = json.loads(data)
        sealed = layout.seal(given).encode() if isinstance(given, dict) else data
    except (ValueError, RecursionError):
        sealed = data
    (inside / layout.MANIFEST).write_bytes(sealed)
    with load(inside, threads=1) as model:
        model.example()


def tokenizer(folder: Path, data: bytes) -> None:
    """A tokenizer.json, as a model file names it and as an artifact's is used."""
    from tfgraph.model import read_model
    from tfgraph.runtime.text import Tokenizer, largest_id

    (folder / "input.json").write_bytes(data)
    read_model(folder / "input.yaml", "layers: 1\nwidth: 8\ntokenizer: input.json\n")
    largest_id(data)
    made = Tokenizer(data, "input.json")
    made.decode(made.encode("a few words")[:8])
    made.encode("a few words", limit=4)


def arrays(folder: Path, data: bytes) -> None:
    """Inputs of a call: .npy, .npz or JSON, by the first byte."""
    from tfgraph.cli.inputs import read_array, read_inputs_file
    from tfgraph.runtime.sizes import Port

    suffix = {b"P": "npz", b"\x93": "npy"}.get(data[:1], "json")
    path = folder / f"input.{suffix}"
    path.write_bytes(data)
    if suffix == "npy":
        assert isinstance(read_array("--input x", path), np.ndarray)
    else:
        read_inputs_file(path, [Port("x", "float32", (2, 3)), Port("ids", "int64", ("n",))])


def _is_whole(graph: Graph) -> None:
    from tfgraph.ops import verify
    from tfgraph.text import parse_graph, print_graph

    verify(graph)
    printed = print_graph(graph)
    assert print_graph(parse_graph(printed)) == printed


TARGETS: dict[str, Callable[[Path, bytes], object]] = {
    read.__name__: read for read in (text, yaml, onnx, checkpoint, manifest, tokenizer, arrays)
}
