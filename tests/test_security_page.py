"""docs/security.md says what the code does: its limits, its exits, and what each file may do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfgraph.hf import config
from tfgraph.model import limits, read, schema_types, source
from tfgraph.runtime import format as layout
from tfgraph.runtime import tensors
from tfgraph.runtime.text import MAX_TOKENIZER
from tfgraph.text import lexer
from tfgraph.weights import checkpoint

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
LIMITS = {
    "bytes of a model file": read.MAX_BYTES,
    "values in a model file, an alias counted as all that it stands for": read.MAX_VALUES,
    "nesting of a model file": read.MAX_DEPTH,
    "bytes of a graph as text": source.MAX_TEXT,
    "nesting of a graph as text": lexer.DEEPEST,
    "bytes of `config.json`": config.MAX_BYTES,
    "bytes of the header of weights": tensors.MAX_HEADER,
    "bytes of `tokenizer.json`": MAX_TOKENIZER,
    "bytes of `manifest.json`": layout.MAX_MANIFEST,
    "layers": schema_types.MAX_LAYERS,
    "experts in all layers": schema_types.MAX_EXPERTS_IN_ALL,
    "parameters of a model file": limits.MAX_PARAMETERS,
    "bytes of seeded weights": limits.MAX_SEEDED_BYTES,
}


def test_the_limits() -> None:
    rows = re.findall(r"(?m)^\| (.+?) \| ([\d,]+) \|$", PAGE)
    assert {what: int(number.replace(",", "")) for what, number in rows} == LIMITS
    assert checkpoint.MAX_HEADER == tensors.MAX_HEADER


@pytest.mark.parametrize(
    ("call", "files"),
    [
        # Each is named on the page, in the section on what is code or what starts processes.
        (r"\b(?:exec|eval)\(", set[str]()),
        (r"pickle\.|allow_pickle=True|marshal\.", set[str]()),
        (r"runpy\.", {"tfgraph/model/source.py"}),
        (r"spec_from_file_location", {"tfgraph/plugins.py"}),
        (
            r"subprocess\.run|Popen",
            {"tfgraph/backends/tvm/link.py", "tfgraph/backends/tvm/cuda/toolkit.py"},
        ),
        (r"os\.system|os\.exec|os\.spawn|posix_spawn", set[str]()),
        (r"import socket|urllib|http\.client|requests\.", set[str]()),
        (
            r"CDLL\(",
            {
                "tfgraph/runtime/library.py",  # TVM's runtime
                "tfgraph/backends/staging.py",  # the C library, for renameat2
                "tfgraph/runtime/cuda/driver.py",  # the driver of the GPU
                "tfgraph/runtime/cuda/library.py",  # NVIDIA's runtime, and TVM's over it
                "tfgraph/backends/tvm/cuda/nvrtc.py",  # NVIDIA's compiler
                "tfgraph/parallel.py",  # NumPy's own library, for its number of threads
            },
        ),
    ],
)
def test_where_code_can_come_in(call: str, files: set[str]) -> None:
    folders = {"tfgraph": "tfgraph", "passes": "tfgraph/passes", "backends": "tfgraph/backends"}
    found: set[str] = set()
    for folder, name in folders.items():
        for path in (ROOT / folder).rglob("*.py"):
            if re.search(call, path.read_text("utf-8")):
                found.add(f"{name}/{path.relative_to(ROOT / folder)}")
    assert found == files


def test_it_is_linked() -> None:
    assert "(docs/security.md)" in (ROOT / "README.md").read_text("utf-8")
    assert "(security.md)" in (ROOT / "docs" / "deploy.md").read_text("utf-8")
