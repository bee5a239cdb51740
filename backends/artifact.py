"""Writes an artifact. The same inputs give the same bytes: nothing in it depends on the time, the
host or the folder. May import: base, staging, passes, runtime, text, ir, errors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np

from tfgraph.backends.base import (
    Built,
    CompiledWeight,
    NDArray,
    Target,
    constraints_of,
    input_ports,
    output_ports,
    symbol_ranges,
)
from tfgraph.backends.staging import write_file
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph
from tfgraph.passes import PassReport
from tfgraph.runtime import format as layout
from tfgraph.runtime.tensors import DTYPES
from tfgraph.runtime.text import TokenRules
from tfgraph.text import print_graph

ALIGNMENT = 64
_PIECE = 64 << 10
"""Bytes of a table that are written at a time. The system keeps what one write brings in pages of
up to two megabytes, and maps a page whole: of large ones, a call that reads a few rows of a table
would hold all of it. Packed matrices are read through, fastest in large pages."""


def write_artifact(
    folder: Path,
    before: Graph,
    after: Graph,
    built: Built,
    target: Target,
    reports: Sequence[PassReport],
    tokenizer: bytes | None = None,
    generation: TokenRules | None = None,
    no_generation: str | None = None,
    command: Sequence[str] | None = None,
    taps: Collection[str] = (),
    writing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Write an artifact into `folder`, an empty one or none; `command` makes it again. `taps` are
    the outputs that the model itself does not have, `no_generation` why it does not generate. What
    writes does so inside of `writing`, and what compiles does not."""
    parts = [built.weights, *(f.weights for f in built.functions.values())]
    weights = {weight.name: weight for part in parts for weight in part}
    with ThreadPoolExecutor(1, "compiling") as beside:
        compiled = beside.submit(copy_context().run, built.make_files)
        with writing():
            folder.mkdir(parents=True, exist_ok=True)
            hashed = write_weights(folder / layout.WEIGHTS, list(weights.values()))
        texts = built.make_texts()
        made = compiled.result()
    functions = built.functions.items()
    files = {
        layout.GRAPH_BEFORE: print_graph(before).encode(),
        layout.GRAPH: print_graph(after).encode(),
        **{layout.graph_of(name): print_graph(f.graph).encode() for name, f in functions},
        layout.PASSES: _json([report.to_json() | _without_place(report) for report in reports]),
        **built.files,
        **texts,
        **made,
        **({} if tokenizer is None else {layout.TOKENIZER: tokenizer}),
    }
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    hashes[layout.WEIGHTS] = hashed
    manifest = _manifest(before, after, built, target, hashes)
    for port in manifest["outputs"]:
        port |= {"tap": True} if port["name"] in taps else {}
    if generation is not None:
        manifest["generation"] = generation.to_json()
    if no_generation is not None:
        manifest["no_generation"] = no_generation
    text = layout.seal({**manifest, "command": None if command is None else list(command)})
    files[layout.MANIFEST] = text.encode()
    with writing():
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, data)


def record_verification(folder: Path, outcome: Mapping[str, Any]) -> str:
    """Add to the manifest how the artifact, which ran for that, was verified; the final hash."""
    text = layout.seal({**layout.read_manifest(folder), "verification": dict(outcome)})
    write_file(folder / layout.MANIFEST, text.encode())
    return str(json.loads(text)["sha256"])


def _manifest(
    before: Graph, graph: Graph, built: Built, target: Target, hashes: Mapping[str, str]
) -> dict[str, Any]:
    """`before` tells how inputs are used, and so how examples of them are made: were a pass to drop
    a mask, verification should see it."""
    from tfgraph.runtime.version import VERSION

    functions = {
        name: {**_interface(f.graph, f.graph, f.scalars, f.weights), **f.manifest}
        for name, f in built.functions.items()
    }
    return {
        "format": layout.VERSION,
        "name": graph.name,
        "target": target.name,
        "arch": target.arch,
        "arch_origin": target.arch_origin,
        **_interface(before, graph, built.scalars, built.weights),
        **({"functions": functions} if functions else {}),
        **built.manifest,
        "tools": {"tfgraph": VERSION, **built.manifest.get("tools", {})},
        "files": dict(hashes),
    }


def _interface(
    before: Graph, graph: Graph, scalars: Sequence[str], weights: Sequence[CompiledWeight]
) -> dict[str, Any]:
    """What a caller of the function that computes `graph` passes and gets."""
    return {
        "inputs": [
            {
                "name": p.name,
                "dtype": p.dtype,
                "shape": list(p.shape),
                "generator": p.fill,
                "limit": p.limit,
            }
            # From 0 on, unless the ids are shifted before they index.
            | ({} if p.least == (None if p.limit is None else 0) else {"least": p.least})
            for p in input_ports(before)
        ],
        "outputs": [
            {"name": p.name, "dtype": p.dtype, "shape": list(p.shape)}
            | ({"attention": True} if p.attention else {})
            for p in output_ports(graph)
        ],
        "symbols": {
            name: {"min": s.low, "max": s.high, "example": s.example}
            for name, s in symbol_ranges(graph).items()
        },
        "constraints": [str(c) for c in constraints_of(graph)],
        "scalars": list(scalars),
        "weights": [
            {
                "name": w.name,
                "dtype": w.dtype,
                "shape": list(w.shape),
                "layout": w.layout,
                "sources": list(w.sources),
            }
            for w in weights
        ],
    }


def write_weights(path: Path, weights: Sequence[CompiledWeight]) -> str:
    """Write weights as safetensors; the sha256 of the file. While one is written, another thread
    packs the next and a third hashes the one before, so that these three are held in memory.

    Tensors whose size is a multiple of 64 bytes come first, and the header is padded, so that
    those start at a multiple of 64 and can be mapped; the format allows no holes.
    """
    names = {numpy: short for short, numpy in DTYPES.items()}
    sized = [
        (w, int(np.prod(w.shape, dtype=np.int64)) * np.dtype(w.dtype).itemsize) for w in weights
    ]
    sized.sort(key=lambda item: item[1] % ALIGNMENT != 0)
    header: dict[str, Any] = {}
    offset = 0
    for weight, size in sized:
        header[weight.name] = {
            "dtype": names[weight.dtype],
            "shape": list(weight.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(head)
    with path.open("wb") as file, ThreadPoolExecutor(1, "hashing") as hashing:
        file.write(head)
        hashed: Future[None] | None = None
        for (weight, size), data in zip(sized, _packed([w for w, _ in sized]), strict=True):
            if data.nbytes != size or str(data.dtype) != weight.dtype:
                raise TfgraphError(f"weight {weight.name} is {data.dtype}{list(data.shape)}")
            plain = data.reshape(-1).view(np.uint8).data
            if hashed is not None:
                hashed.result()
            hashed = hashing.submit(digest.update, plain)
            piece = _PIECE if weight.layout == "plain" else max(size, 1)
            for start in range(0, size, piece):
                file.write(plain[start : start + piece])  # `tofile` hides the system's errors
    return digest.hexdigest()


def _packed(weights: Sequence[CompiledWeight]) -> Iterator[NDArray]:
    """Each weight as it is written; the next is made in another thread meanwhile."""
    with ThreadPoolExecutor(1, "packing") as packing:
        following: Future[NDArray] | None = None
        for weight in weights:
            made, following = following, packing.submit(weight.make)
            if made is not None:
                yield np.ascontiguousarray(made.result())
        if following is not None:
            yield np.ascontiguousarray(following.result())


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _without_place(report: PassReport) -> dict[str, Any]:
    """Declined entries without the folder of the user's file: artifacts hold no paths."""
    declined: list[dict[str, Any]] = []
    for d in report.declined:
        where = d.location
        place = f"{Path(where.file).name}:{where.line}:{where.column}" if where else None
        declined.append({"rule": d.rule, "at": d.at, "reason": d.reason, "location": place})
    return {"declined": declined}
