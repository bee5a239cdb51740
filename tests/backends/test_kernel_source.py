"""The text of the CPU's kernels in an artifact: is it of the code that runs, and can it be read?"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest
from helpers.elf import defined_symbols
from helpers.small_model import build_small

from tfgraph.backends.tvm.cpu import source
from tfgraph.runtime import format as layout
from tfgraph.text import parse_graph, print_node

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def texts(artifact: Path) -> dict[str, str]:
    folder = artifact / layout.KERNELS
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.py")}


def test_each_kernel_of_the_objects_has_its_text(artifact: Path, texts: dict[str, str]) -> None:
    objects = [path.read_bytes() for path in (artifact / layout.KERNELS).glob("*.o")]
    symbols = {name for data in objects for name in defined_symbols(data)}
    kernels = {m[1] for name in symbols if (m := re.fullmatch(r"__tvm_ffi_([a-z]\w*)", name))}
    shapes = {name for name in kernels if name.startswith("shape_func")}  # TVM's own, of sizes
    assert kernels - shapes == set(texts) - {"main"}
    assert {"attention", "compact_keys", "linear", "add_layer_norm"} <= kernels
    assert not [name for name in kernels if name.startswith("reshape")], "views need no kernel"
    assert set(layout.read_manifest(artifact)["files"]) >= {f"kernels/{n}.py" for n in texts}


def test_a_text_is_a_function_in_python(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        assert [function.name for function in functions] == [name]
        assert text.startswith(f"# {name}: ")


def test_every_node_is_in_the_text_of_its_kernel(artifact: Path, texts: dict[str, str]) -> None:
    graph = parse_graph((artifact / layout.GRAPH).read_text("utf-8"))
    views = {"reshape", "slice"}  # attention reads a slice where it is
    for node in graph.nodes:
        if node.op not in views and not graph.weight_values.issuperset(node.outputs):
            line = f"#   {print_node(node)}\n"
            names = [name for name, text in texts.items() if line in text]
            assert any(name.startswith(node.op.removesuffix("_activation")) for name in names), node


def test_names_and_numbers_are_those_of_the_kernels(texts: dict[str, str]) -> None:
    gemm = texts["linear"]
    for word in ("x: T.Buffer((m, ", "w: T.Buffer(", "panel[0]", "sums_1[0:", "fma(T.Broadcast(x["):
        assert word in gemm
    for text in texts.values():
        assert "T.int64(" not in text
        assert "llvm.fma" not in text.partition("T.sblock")[2]


def test_what_is_too_long_loses_its_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_LINES", 100)
    text = (build_small(tmp_path) / "kernels/attention.py").read_text("utf-8")
    (cut,) = re.findall(r"^# \.\.\. (\d+) of (\d+) lines are left out here \.\.\.$", text, re.M)
    body = text[text.index("from typing") :].splitlines()
    assert len(body) == 101
    assert int(cut[0]) == int(cut[1]) - 100 > 0
