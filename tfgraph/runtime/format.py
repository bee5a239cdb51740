"""The artifact on disk: names of its files, its version, its hashes. Written by the backends, read
here, so that both agree. May import: files, manifest, the standard library, errors.

    manifest.json          inputs, outputs, symbols, weights, target, hashes of the other files,
                           how it was verified, the command that made it
    graph.before.tfg       the graph as it was read        graph.tfg    after the passes
    graph.NAME.tfg         the graph of another function that the model has, after the passes
    kernels/*.o            object files                    kernels/*.py, *.cu    their source
    kernels/kernels.cl, .metal, .wgsl   source alone       kernels/launch.json   how it is launched
    kernels/model.so       the object files as a library, on --shared
    kernels/*.cubin, *.ptx code for GPUs                   kernels/launch.json   its launches
    weights.safetensors    the weights in compiled layout  passes.json  what the passes did
    tokenizer.json         the model's tokenizer, where it has one, byte for byte

An artifact without a tokenizer, or without "generation" or "no_generation" (why the model does not
generate) in its manifest, is whole: these came later, and the version changes only where what was
written before would be read in another way.

What stays in every version, so that any can say what it cannot read: the manifest is the JSON that
`seal` writes, and holds "format", "sha256", "target", "command" and the version of tfgraph in
"tools". Files that the manifest does not list are never looked at, and a link stands for the file
that it names: what counts is the bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tfgraph.errors import TfgraphError
from tfgraph.runtime.files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from io import BufferedReader

VERSION = 1
MANIFEST = "manifest.json"
GRAPH_BEFORE = "graph.before.tfg"
GRAPH = "graph.tfg"
WEIGHTS = "weights.safetensors"
PASSES = "passes.json"
TOKENIZER = "tokenizer.json"
KERNELS = "kernels"
SHARED = "kernels/model.so"
CUDA_SOURCE = "kernels/kernels.cu"
LAUNCHES = "kernels/launch.json"
SOURCE_ONLY = ("opencl", "metal", "webgpu")
"""Targets whose kernels are source, with a plan of their launches in place of object files."""
SUFFIX = ".tfgraph"
MAX_MANIFEST = 100_000_000  # bytes
_MAX_WHOLE = 4 << 30
"""Bytes of what is read whole: object files, a tokenizer."""
_ALWAYS = (GRAPH_BEFORE, GRAPH, WEIGHTS, PASSES)


def graph_of(function: str) -> str:
    """The file with the graph of a function beside `main`, after the passes."""
    return f"graph.{function}.tfg"


def seal(manifest: dict[str, Any]) -> str:
    """The text of manifest.json: canonical JSON with the hash of everything else in "sha256"."""
    body = {k: v for k, v in manifest.items() if k != "sha256"}
    digest = hashlib.sha256(_text(body).encode()).hexdigest()
    return _text({**body, "sha256": digest})


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an artifact. Raises TfgraphError, naming the file, where it is missing,
    damaged, of another format version, or says what no manifest says."""
    path = folder / MANIFEST
    if folder.is_file():
        raise TfgraphError(
            f"{folder} is a file; an artifact is a folder",
            hint=f"tfgraph compile {folder} makes one",
        )
    if not folder.is_dir():
        raise TfgraphError(f"{folder}: no such artifact")
    if not path.exists():
        raise TfgraphError(f"{folder} is not an artifact: it has no {MANIFEST}")
    try:
        with _opened(path, MAX_MANIFEST) as file:
            text = file.read().decode()
        manifest: dict[str, Any] = json.loads(text)
        whole = text == seal(manifest)
    except (ValueError, RecursionError, AttributeError) as cause:
        raise TfgraphError(f"{path}: damaged: {cause}", hint=_REBUILD) from cause
    if not whole:
        raise _damaged(path)
    version: object = manifest.get("format")
    if type(version) is not int:  # true is none, nor is 1.0
        raise TfgraphError(f'{path}: damaged: "format" is not an integer', hint=_REBUILD)
    if version != VERSION:
        raise TfgraphError(
            f"{path}: format {version}; this tfgraph reads format {VERSION}",
            hint=_other_version(folder, manifest, version),
        )
    from tfgraph.runtime.manifest import problem  # needs numpy, as names of files do not

    wrong = problem(manifest)
    if wrong is not None:
        raise TfgraphError(f"{path}: damaged: {wrong}", hint=_REBUILD)
    functions = [graph_of(name) for name in manifest.get("functions", {})]
    absent = [name for name in (*_ALWAYS, *functions) if name not in manifest["files"]]
    if manifest["target"] in SOURCE_ONLY:
        absent += [name for name in (LAUNCHES,) if name not in manifest["files"]]
    elif not any(name.endswith(".o") for name in manifest["files"]):
        absent.append(f"{KERNELS}/*.o")
    if absent:
        raise TfgraphError(f'{path}: damaged: "files" lists no {absent[0]}', hint=_REBUILD)
    return manifest


def _other_version(folder: Path, manifest: dict[str, Any], version: int) -> str:
    """What to do about an artifact of another format: take a newer tfgraph, or make it anew."""
    if version > VERSION:
        tools = manifest.get("tools")
        made_by = cast("dict[str, object]", tools) if isinstance(tools, dict) else {}
        which = (
            f"tfgraph {made_by['tfgraph']}, which" if "tfgraph" in made_by else "the tfgraph that"
        )
        return f"it needs {which} made it, or a newer one"
    command, target = manifest.get("command"), manifest.get("target", "cpu")
    if not isinstance(command, list) or command[:1] != ["tfgraph"]:
        return f"build its graph again: tfgraph.build(graph, '{target}', '{folder}')"
    words = [str(word) for word in cast("list[object]", command)]
    return f"make it again: {shlex.join([*words, '-o', str(folder)])}"


def check_file(folder: Path, name: str, sha256: str | None) -> None:
    """Raise TfgraphError, naming the file, unless it is there, with that hash if one is given."""
    with _opened(folder / name) as file:
        if sha256 is not None and hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise _damaged(folder / name)


def read_checked(folder: Path, name: str, sha256: str) -> bytes:
    """The bytes of a file, which are those that were hashed."""
    with _opened(folder / name, _MAX_WHOLE) as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise _damaged(folder / name)
    return data


@contextmanager
def held(folder: Path) -> Generator[Callable[[], bool]]:
    """Asked inside the block: whether the path still names the folder that it names now. The folder
    is open meanwhile, so that the system gives its number to no other."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield lambda: True  # there is none, which is for others to say
        return
    try:
        mine = os.fstat(descriptor)
        yield lambda: folder.exists() and os.path.samestat(folder.stat(), mine)
    finally:
        os.close(descriptor)


@contextmanager
def _opened(path: Path, limit: int | None = None) -> Generator[BufferedReader]:
    """The file, to read. A pipe in its place is refused rather than waited for."""
    try:
        with open_file(path, limit) as file:
            yield file
    except OSError as cause:
        raise TfgraphError(f"{path}: {cause.strerror}", hint=_REBUILD) from cause


def _damaged(path: Path) -> TfgraphError:
    return TfgraphError(f"{path}: damaged: its hash does not match", hint=_REBUILD)


_REBUILD = "compile the model again"


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
