"""Every kind of source, and the JSON Schema."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfgraph.errors import TfgraphError
from tfgraph.model import SCHEMA_PATH, load_source
from tfgraph.model.schema import Activation, FfnActivation, json_schema
from tfgraph.ops import ACTIVATIONS
from tfgraph.text import print_graph

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = """
from tfgraph.ops import graph, relu

with graph("g") as g:
    x = g.input("x", "f32", "n", 4)
    g.output("y", relu(x))

builder = g
built = g.build()
number = 3

def made():
    return built

def broken():
    return 1 / 0

def wrong():
    with graph("h") as h:
        a = h.input("a", "f32", "n", 4)
        b = h.input("b", "f32", "m", 4)
        return a + b
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "g.py").write_text(PYTHON)
    return tmp_path


@pytest.mark.parametrize("name", ["g", "builder", "built", "made"])
def test_python(folder: Path, name: str) -> None:
    model = load_source(f"{folder / 'g.py'}:{name}")
    assert [node.op for node in model.graph.nodes] == ["relu"]
    assert model.seeded
    location = model.graph.nodes[0].location
    assert location is not None
    assert (location.file, location.line) == (str(folder / "g.py"), 6)


def test_python_may_import_its_neighbours(folder: Path) -> None:
    (folder / "neighbour_of_g.py").write_text("from tfgraph.ops import graph\n")
    (folder / "h.py").write_text(
        "from neighbour_of_g import graph\nwith graph('h') as h:\n"
        "    h.output('y', h.input('x', 'f32', 3))\nmodel = h\n"
    )
    before = list(sys.path)
    assert load_source(f"{folder / 'h.py'}:model").name == "h"
    assert sys.path == before


def test_text(folder: Path) -> None:
    graph = load_source(f"{folder / 'g.py'}:g").graph
    for name in ("g.tfg", "g.txt", "plain"):
        (folder / name).write_text(print_graph(graph))
        model = load_source(str(folder / name))
        assert model.graph == graph
        assert model.name == "g"


@pytest.mark.parametrize(
    ("spec", "place", "message"),
    [
        ("g.py", "g.py", "which graph of the file?"),
        ("g.py:buit", "g.py", "the file has no 'buit'"),
        ("g.py:number", "g.py", "'number' is a int, expected a graph"),
        ("g.py:broken", "g.py:16", "ZeroDivisionError: division by zero"),
        ("g.py:wrong", "g.py:22:16", "add: shapes [n,4] and [m,4] do not broadcast"),
        ("none.py:g", "none.py", "no such file"),
        ("none.yaml", "none.yaml", "cannot read the model: no such file"),
        ("none", "none", "cannot read the model: no such file"),
        ("-", "-", "cannot read the model: this is not a file"),
        ("/dev/null", "/dev/null", "cannot read the model: this is not a file"),
        ("empty.tfg", "empty.tfg", "the file is empty"),
        ("binary.tfg", "binary.tfg", "cannot read the graph: this is not text"),
        ("syntax.py:g", "syntax.py:2:5", "not Python: invalid syntax"),
        ("import.py:g", "import.py:1", "ModuleNotFoundError: No module named 'nonesuch'"),
        ("exit.py:g", "exit.py:2", "SystemExit: 3"),
        (".", "", "is a folder"),
        ("data.bin", "data.bin", "is not a model"),
        ("bad.tfg", "bad.tfg:2:8", "unknown op 'reluu'"),
    ],
)
def test_errors(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str, place: str, message: str
) -> None:
    monkeypatch.chdir(folder)
    Path("syntax.py").write_text("a = 1\nb = = 2\n")
    Path("import.py").write_text("import nonesuch\n")
    Path("exit.py").write_text("import sys\nsys.exit(3)\n")
    Path("data.bin").write_bytes(b"\0\1\2")
    Path("binary.tfg").write_bytes(b"graph \xff")
    Path("empty.tfg").write_text("\n")
    Path("bad.tfg").write_text("graph g(%x: f32[n]) {\n  %0 = reluu(%x) : f32[n]\n  return %0\n}\n")
    with pytest.raises(TfgraphError) as caught:
        load_source(spec)
    assert message in caught.value.message
    assert str(caught.value.location).startswith(place)
    assert spec not in caught.value.message.split(), "the place names it already"


ONE = "name a Graph, or a function of no arguments that returns one"
HELPERS = """
import numpy as np
import tfgraph as nope_
from os import path as nop
from tfgraph.blocks import attention as nopes
from tfgraph.ops import graph

class Nope: ...

_nope = 1

def block(x, /, mask, *rest, name="b", **more):
    return graph(name)

def noper(*rest, scale=1, **more):
    with graph("h") as h:
        h.output("y", h.input("x", "f32", 3))
    return h

lambda_ = lambda width: width
call = block.__call__
"""


@pytest.mark.parametrize(
    ("spec", "place", "message", "hint"),
    [
        ("h.py:nope", "h.py", "the file has no 'nope'", "did you mean 'noper'?"),
        ("h.py:xyz", "h.py", "the file has no 'xyz'", "it has noper"),
        (
            "g.py:xyz",
            "g.py",
            "the file has no 'xyz'",
            "it has g, builder, built, made, broken, wrong",
        ),
        ("e.py:xyz", "e.py", "the file has no 'xyz'", "it has no graph, nor a function"),
        ("h.py:np", "h.py", "'np' is a module, expected a graph", ONE),
        ("h.py:block", "h.py:12", "'block' takes arguments (x, mask): there are none to give", ONE),
        (
            "h.py:nopes",
            "h.py",
            "'nopes' takes arguments (q, k, v): there are none to give",
            ONE,
        ),
        (
            "h.py:lambda_",
            "h.py:20",
            "'lambda_' takes arguments (width): there are none to give",
            ONE,
        ),
    ],
)
def test_what_of_a_python_file_is_a_graph(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str, place: str, message: str, hint: str
) -> None:
    """Hints name graphs and functions that are written there and need no arguments."""
    monkeypatch.chdir(folder)
    Path("h.py").write_text(HELPERS)
    Path("e.py").write_text("import sys\nnumber = 3\n")
    with pytest.raises(TfgraphError) as caught:
        load_source(spec)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert str(caught.value.location) == place
    assert load_source("h.py:noper").name == "h"


def test_the_schema_file_is_up_to_date(request: pytest.FixtureRequest) -> None:
    text = json.dumps(json_schema(), indent=2) + "\n"
    if request.config.getoption("--update-golden"):
        SCHEMA_PATH.write_text(text, encoding="utf-8")
    assert SCHEMA_PATH.read_text("utf-8") == text, "`make golden` rewrites it"


def test_the_schema_allows_short_forms() -> None:
    properties = json_schema()["$defs"]["HighLevel"]["properties"]
    accepts: Callable[[str], str] = lambda key: json.dumps(properties[key])  # noqa: E731
    assert "rms_norm" in accepts("norm")
    assert "sinusoidal" in accepts("positions")
    assert "causal" in accepts("mask")
    assert '"none"' in accepts("head")


def test_activations_are_those_of_the_ops() -> None:
    assert Activation.__args__ == ACTIVATIONS
    assert FfnActivation.__args__ == ("none", *ACTIVATIONS)


def test_a_checkpoint_folder_says_how_to_import_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(TfgraphError) as caught:
        load_source(str(tmp_path))
    assert caught.value.hint == f"tfgraph import hf {tmp_path} -o model.yaml"


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(TfgraphError, match="this is a folder") as caught:
        load_source(str(tmp_path))
    assert "a checkpoint's folder (with config.json)" in (caught.value.hint or "")
