"""What fuzzing starts from: the examples, the tests' models and checkpoints, ONNX's own tests."""

from __future__ import annotations

import atexit
import io
import json
import re
import shutil
import tempfile
import warnings
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.artifacts import python
from helpers.checkpoints import CASES
from helpers.checkpoints import NAMES as CHECKPOINTS
from helpers.onnx_files import export_path
from helpers.small_tokenizers import byte_level, sentence_piece, word_level
from helpers.text_samples import ENCODER
from reader_fuzz.targets import PARTS

from tfgraph.runtime.format import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
LARGEST = 30_000  # bytes of an ONNX file to start from: small ones are quick
EXPORTS = ("bert.legacy_static", "vit.legacy_dyn", "deberta_v2.dynamo_dyn")


@cache
def yaml() -> list[bytes]:
    """Model files: the examples, those of the documentation, and those of checkpoints."""
    files = [p.read_bytes() for p in sorted((ROOT / "examples").glob("*.yaml"))]
    files += [p.read_bytes() for p in sorted((ROOT / "tests" / "golden").glob("*.yaml"))]
    page = (ROOT / "docs" / "model.md").read_text("utf-8")
    blocks = [block.encode() for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    return [_small(file) for file in files] + [_whole(block) for block in blocks]


def _whole(block: bytes) -> bytes:
    """A part of a model file, with the keys that every model needs."""
    if re.search(rb"(?m)^(nodes|outputs):", block):
        return block
    block = re.sub(rb"(?m)^weights:\n(?:  .*\n|\n)+", b"", block)
    needed = (b"layers: 1\n", b"width: 64\n")
    return b"".join(key for key in needed if key[:6] not in block) + block


def _small(file: bytes) -> bytes:
    """With few layers, and without the file of weights, which is not there."""
    kept = re.sub(rb"(?m)^weights:\n(?:  .*\n|\n)+", b"", file)
    return re.sub(rb"(?m)^layers: \d+", b"layers: 1", kept)


@cache
def text() -> list[bytes]:
    """Graphs of the model files before and after the passes."""
    from tfgraph.errors import TfgraphError
    from tfgraph.model import read_model
    from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline
    from tfgraph.text import print_graph

    found = [ENCODER]
    for file in yaml():
        try:
            model = read_model("seed.yaml", file.decode())
        except TfgraphError:
            continue  # a part of a file, or one that needs others
        for graph in (model.graph, *model.functions.values()):
            fused = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))[0]
            found += [print_graph(graph), print_graph(fused)]
    return [one.encode() for one in dict.fromkeys(found) if len(one) < 6000]


@cache
def lines() -> list[str]:
    """The lines of these graphs that are nodes."""
    found = (line for graph in text() for line in graph.decode().splitlines())
    return sorted({line for line in found if " = " in line and "(" in line})


@cache
def onnx() -> list[bytes]:
    """ONNX's tests of the operators that the importer has, one small file each, and exports."""
    from onnx.backend.test.case.node import collect_testcases

    from tfgraph.onnx import operators

    with warnings.catch_warnings():  # that its own expected values overflow
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    known, found = set(operators()), [export_path(name).read_bytes() for name in EXPORTS]
    for case in cases:
        used = {node.op_type for node in case.model.graph.node} if case.model else set[str]()
        if used and used <= known:
            data = case.model.SerializeToString()
            found += [data] if len(data) < LARGEST else []
    return found


@cache
def onnx_nodes() -> list[Any]:
    """The nodes of these."""
    import onnx as package

    return [n for data in onnx() for n in package.ModelProto.FromString(data).graph.node]


@cache
def checkpoint() -> list[bytes]:
    """The recorded checkpoints: their config.json and the headers of their weights."""
    found: list[bytes] = []
    for name in CHECKPOINTS:
        weights = (CASES / name / "model.safetensors").read_bytes()
        length = int.from_bytes(weights[:8], "little")
        parts = [(CASES / name / "config.json").read_bytes(), weights[8 : 8 + length], b"{}"]
        found.append(PARTS.join(parts))
    return found


@cache
def artifact() -> Path:
    """The artifact of the tests' small model, which is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="tfgraph-seed-")
    atexit.register(folder.cleanup)
    code = "import sys; from pathlib import Path; from helpers.small_model import build_small; "
    code += "build_small(Path(sys.argv[1]))"
    # In another process: the compiler is large, and this one counts its memory.
    python("-c", code, folder.name).check_returncode()
    return next(Path(folder.name).glob("*.tfgraph"))


def manifest() -> list[bytes]:
    """That of the artifact."""
    return [(artifact() / MANIFEST).read_bytes()]


def tokenizer() -> list[bytes]:
    """The small ones of the tests."""
    made = (byte_level(), sentence_piece(), word_level())
    return [tokenizer.to_str().encode() for tokenizer in made]


def arrays() -> list[bytes]:
    """Arrays of both types and an odd one, alone, in an archive, and as JSON."""
    x, ids = np.ones((2, 3), np.float32), np.arange(4)
    found: list[bytes] = [b'{"x": [[1, 2, 3], [4, 5, 6.5]], "ids": [1, 2]}']
    plain = (x, ids, np.asfortranarray(x).astype(">f8"), np.zeros(2, "i4,f4"))
    found += [_saved(partial(np.save, arr=array)) for array in plain]
    return found + [_saved(partial(save, x=x, ids=ids)) for save in (np.savez, np.savez_compressed)]


def _saved(save: Callable[[io.BytesIO], None]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of model files."""
    found: dict[str, Any] = json.loads(
        (ROOT / "tfgraph" / "model" / "model.schema.json").read_text("utf-8")
    )
    return found


def options(part: dict[str, Any], whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The forms that a value may have by its schema."""
    if "$ref" in part:
        return options(whole["$defs"][part["$ref"].rpartition("/")[2]], whole)
    several = part.get("anyOf") or part.get("oneOf")
    return [o for one in several for o in options(one, whole)] if several else [part]


def plain_yaml(data: bytes) -> Any:
    """The data of a model file; None where it is none."""
    from tfgraph.errors import TfgraphError
    from tfgraph.model.read import read_document

    try:
        return read_document("seed.yaml", data.decode("utf-8", "replace")).data
    except TfgraphError:
        return None


def prepare(target: str, folder: Path) -> None:
    """Put what a target needs beside its input into the folder."""
    if target == "manifest":
        shutil.copytree(artifact(), folder / "input.tfgraph")


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    seed.__name__: seed for seed in (text, yaml, onnx, checkpoint, manifest, tokenizer, arrays)
}
