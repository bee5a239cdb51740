"""Other people's libraries as witnesses: by name in comparisons, on the exported graph or the file
itself; and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from faults.models import SIZES, model, onnx_file

import tfgraph
from tfgraph.backends.layouts import unpacked
from tfgraph.backends.original import OriginalFile
from tfgraph.errors import MissingTool, TfgraphError

if TYPE_CHECKING:
    pass

WITNESSES = ("onnxruntime", "onnx-reference")


@pytest.mark.parametrize("witness", WITNESSES)
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_a_witness_agrees_with_the_reference(name: str, witness: str) -> None:
    report = tfgraph.compare(model(name), ("numpy", witness), dims=SIZES)
    assert report.ok, report
    assert len(report.intermediates) > 60


def test_two_witnesses_are_compared() -> None:
    assert tfgraph.compare(model("window"), WITNESSES, dims=SIZES).ok


def test_an_onnx_model_is_compared_with_its_own_file(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Path] = []
    start = OriginalFile.__init__

    def watched(self: Any, graph: Any, path: Path, witness: str) -> None:
        ran.append(path)
        start(self, graph, path, witness)

    monkeypatch.setattr(OriginalFile, "__init__", watched)
    assert tfgraph.compare(onnx_file(), ("onnxruntime", "numpy"), dims=SIZES).ok
    assert ran == [onnx_file()]
    edited = tfgraph.load_source(onnx_file()).intervene({"embeddings.tokens[3]": 0})
    assert tfgraph.compare(edited, ("onnxruntime", "numpy"), dims=SIZES).ok
    assert len(ran) == 1  # the file does not hold what was edited


@pytest.mark.parametrize("witness", WITNESSES)
def test_every_node_of_a_file_is_compared(witness: str) -> None:
    found = tfgraph.bisect(onnx_file(), dims=SIZES, witness=witness)
    assert found.ok
    assert found.imported is not None
    assert found.imported.witness == witness
    assert found.imported.compared > 0.8 * found.imported.of
    assert [s.name for s in found.steps][:2] == ["recover-constants", "recover-rotary-parts"]


def test_a_witness_is_no_target() -> None:
    with pytest.raises(TfgraphError, match="'onnxruntime' is a witness in comparisons") as raised:
        tfgraph.compile(model("encoder"), "onnxruntime")
    assert raised.value.hint == "tfgraph compare MODEL --backends numpy,onnxruntime"


def test_a_library_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tfgraph.backends import onnxruntime
    from tfgraph.cli import main

    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr(
        onnxruntime, "importlib", type("Gone", (), {"import_module": staticmethod(absent)})
    )
    with pytest.raises(MissingTool, match="onnxruntime is not installed"):
        tfgraph.compare(model("encoder"), ("numpy", "onnxruntime"), dims=SIZES)
    path = str(model("encoder").path)
    assert main(["compare", path, "--backends", "numpy,onnxruntime", "--dim", "seq=3"]) == 3
    assert capsys.readouterr().err == (
        "error: onnxruntime is not installed\nhint: pip install onnxruntime\n"
    )
    # Without it the other witness looks at how a file was translated.
    found = tfgraph.bisect(onnx_file(), dims=SIZES, passes="dce")
    assert found.imported is not None
    assert found.imported.witness == "onnx-reference"


def test_layouts_are_undone() -> None:
    """Against the definition: panel p holds columns p * c and on, the last padded with zeros."""
    k, n, c = 5, 7, 3
    weight = np.arange(k * n, dtype=np.float32).reshape(k, n)
    panels = np.zeros((3, k, c), np.float32)
    for column in range(n):
        panels[column // c, :, column % c] = weight[:, column]
    cases: list[tuple[str, Any, tuple[int, ...], Any]] = [
        ("packed3", panels, (k, n), weight),
        ("transposed-packed3", panels, (n, k), weight.T),
        ("plain", weight, (k, n), weight),
        ("packed3", panels, (k + 1, n), None),
        ("packed3", panels, (k, 10), None),
        ("plain", weight, (n, k), None),
        ("of another backend", weight, (k, n), None),
    ]
    for layout, stored, shape, want in cases:
        got = unpacked(layout, stored, shape)
        assert (got is None) == (want is None)
        assert want is None or np.array_equal(got, want)  # type: ignore[arg-type]


@pytest.mark.parametrize("witness", WITNESSES)
def test_a_number_is_no_row_of_one(witness: str) -> None:
    """An input of rank 0 reaches the library as such."""
    with tfgraph.graph("number") as g:
        g.output("y", tfgraph.ops.neg(g.input("x", "f32")))
    report = tfgraph.compare(g.build(), ("numpy", witness), {"x": np.asarray(2, np.float32)})
    assert report.ok, report
