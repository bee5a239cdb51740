"""The artifact on disk: names of its files, its version, its hashes. Written by the backends, read
here, so that both agree. May import: the standard library, errors.

    manifest.json          inputs, outputs, symbols, weights, target, hashes of the other files,
                           how it was verified
    graph.before.tfg       the graph as it was read        graph.tfg    after the passes
    kernels/*.o            object files                    kernels/*.py, *.cu    their source
    kernels/model.so       the object files as a library, on --shared
    weights.safetensors    the weights in compiled layout  passes.json  what the passes did
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tfgraph.errors import TfgraphError

VERSION = 1
MANIFEST = "manifest.json"
GRAPH_BEFORE = "graph.before.tfg"
GRAPH = "graph.tfg"
WEIGHTS = "weights.safetensors"
PASSES = "passes.json"
KERNELS = "kernels"
SHARED = "kernels/model.so"
SUFFIX = ".tfgraph"
_CHUNK = 1 << 20


def seal(manifest: dict[str, Any]) -> str:
    """The text of manifest.json: canonical JSON with the hash of everything else in "sha256"."""
    body = {k: v for k, v in manifest.items() if k != "sha256"}
    digest = hashlib.sha256(_text(body).encode()).hexdigest()
    return _text({**body, "sha256": digest})


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an artifact. Raises TfgraphError, naming the file, where it is missing,
    damaged, or of another format version."""
    path = folder / MANIFEST
    if folder.is_file():
        raise TfgraphError(
            f"{folder} is a file; an artifact is a folder",
            hint=f"tfgraph compile {folder} makes one",
        )
    if not folder.is_dir():
        raise TfgraphError(f"{folder}: no such artifact")
    try:
        text = path.read_text(encoding="utf-8")
        manifest: dict[str, Any] = json.loads(text)
        whole = text == seal(manifest)
    except FileNotFoundError:
        raise TfgraphError(f"{folder} is not an artifact: it has no {MANIFEST}") from None
    except (OSError, ValueError, RecursionError, AttributeError) as cause:
        raise TfgraphError(f"{path}: damaged: {cause}", hint=_REBUILD) from cause
    if not whole:
        raise TfgraphError(f"{path}: damaged: its hash does not match", hint=_REBUILD)
    version = manifest.get("format")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        hint = "update tfgraph" if newer else "compile the model again"
        raise TfgraphError(
            f"{path}: format {version}; this tfgraph reads format {VERSION}", hint=hint
        )
    return manifest


def check_file(folder: Path, name: str, sha256: str) -> None:
    """Raise TfgraphError, naming the file, unless it is there with that hash."""
    if file_hash(folder / name) != sha256:
        raise TfgraphError(f"{folder / name}: damaged: its hash does not match", hint=_REBUILD)


def read_checked(folder: Path, name: str, sha256: str) -> bytes:
    """The bytes of a file, which are those that were hashed."""
    try:
        data = (folder / name).read_bytes()
    except OSError as cause:
        raise TfgraphError(f"{folder / name}: {cause.strerror}", hint=_REBUILD) from cause
    if hashlib.sha256(data).hexdigest() != sha256:
        raise TfgraphError(f"{folder / name}: damaged: its hash does not match", hint=_REBUILD)
    return data


def file_hash(path: Path) -> str:
    """The sha256 of a file, read in chunks."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as cause:
        raise TfgraphError(f"{path}: {cause.strerror}", hint=_REBUILD) from cause
    return digest.hexdigest()


_REBUILD = "compile the model again"


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
