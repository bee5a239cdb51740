"""`compare A B`, `--intervene` and `--inputs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = """\
kind: decoder
layers: 1
width: 16
heads: 2
ffn: 12
vocabulary: 30
head: lm
symbols: {seq: {max: 16, example: 5}}
"""
OTHER = "tiny.tfg other.tfg"


@pytest.fixture(autouse=True)
def models(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    text = (tmp_path / "tiny.tfg").read_text()
    (tmp_path / "other.tfg").write_text(text.replace("softmax(%y)", "sigmoid(%y)"))
    (tmp_path / "m.yaml").write_text(MODEL)


def test_two_models(tfgraph: Callable[..., Any]) -> None:
    found = tfgraph("compare", "tiny.tfg", "other.tfg", "--dim", "n=4", "--json")
    assert found.code == 0
    assert list(found.json) == ["a", "b", "dims", "made", "outputs", "only_a", "only_b"]
    assert (found.json["a"], found.json["b"]) == ("tiny.tfg", "other.tfg")
    (z,) = found.json["outputs"]
    assert list(z) == ["name", "shapes", "max_abs", "mean_abs", "relative", "cosine", "top"]
    assert z["shapes"] == [[4, 4], [4, 4]]
    text = tfgraph("compare", "tiny.tfg", "other.tfg", "--dim", "n=4").out
    assert text.startswith("a: tiny.tfg\nb: other.tfg\nat n=4; made up: x\n  output  shape ")
    assert tfgraph("compare", "tiny.tfg", "other.tfg", "-q").out == "different\n"
    assert tfgraph("compare", "tiny.tfg", "tiny.tfg", "-q").out == "equal\n"


def test_an_artifact_and_its_model(tfgraph: Callable[..., Any]) -> None:
    assert tfgraph("compile", "tiny.tfg", "--no-verify").code == 0
    found = tfgraph("compare", "tiny.cpu.tfgraph", "tiny.tfg", "--json").json
    assert 0 < found["outputs"][0]["max_abs"] < 1e-6  # kernels round otherwise
    same = tfgraph("compare", "tiny.cpu.tfgraph", "tiny.tfg", "--target", "cpu", "-q")
    assert same.out == "equal\n"


def test_before_and_after_an_intervention(tfgraph: Callable[..., Any]) -> None:
    np.savez("in.npz", input_ids=np.array([[5, 6, 7], [8, 9, 1]]))
    Path("in.json").write_text(json.dumps({"input_ids": [[5, 6, 7], [8, 9, 1]]}))
    edit = ("--intervene", "layers.0.heads.1=0", "--intervene", "layers.0.ffn.w1[3]=row.npy")
    np.save("row.npy", np.ones(16, np.float32))
    result = tfgraph("compare", "m.yaml", *edit, "--inputs", "in.npz")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[:3] == [
        "a: m.yaml",
        "b: m.yaml with layers.0.heads.1=0, layers.0.ffn.w1[3]=row.npy",
        "at batch=2, seq=3",
    ]
    assert lines[5] == "likeliest by logits"
    assert [line.split()[:2] for line in lines[7:17:5]] == [["0", "2"], ["1", "2"]]
    found = tfgraph("compare", "m.yaml", *edit, "--inputs", "in.json", "--json").json
    assert found["outputs"][0]["max_abs"] > 0
    top = found["outputs"][0]["top"][1]
    assert (top["row"], top["position"], len(top["a"]), len(top["b"])) == (1, 2, 5, 5)
    assert list(top["a"][0]) == ["id", "probability", "text"]
    # Two of the same, and one of the two intervened in, are that too.
    two = tfgraph("compare", "m.yaml", "m.yaml", *edit, "--inputs", "in.json", "--json").json
    assert two["outputs"] == found["outputs"]
    none = tfgraph("compare", "m.yaml", "--intervene", "layers.0.heads.1=1", "-q")
    assert none.out == "equal\n"


def test_the_backends_of_a_model_intervened_in(tfgraph: Callable[..., Any]) -> None:
    line = ("compare", "m.yaml", "--backends", "numpy,numpy", "--json")
    plain, edited = (
        tfgraph(*line, *edit) for edit in ((), ("--intervene", "layers.0.heads.1=0.5"))
    )
    assert (plain.code, edited.code) == (0, 0)
    counts = [result.json["intermediates"]["of"] for result in (plain, edited)]
    assert counts[1] - counts[0] == 4  # two runs of factors, their row, and the product


def test_compile_takes_an_intervention_and_keeps_it(tfgraph: Callable[..., Any]) -> None:
    edit = ("--intervene", "w[1]=0")
    assert tfgraph("compile", "tiny.tfg", *edit).code == 0
    manifest = json.loads(Path("tiny.cpu.tfgraph/manifest.json").read_text())
    assert " ".join(edit) in " ".join(manifest["command"])
    pair = ("tiny.cpu.tfgraph", "tiny.tfg", "--target", "cpu")
    assert tfgraph("compare", *pair, *edit, "-q").out == "equal\n"
    assert tfgraph("compare", *pair, "-q").out == "different\n"


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (f"{OTHER} --backends numpy,cpu", "--backends is for one model", "--target runs two"),
        (f"{OTHER} --passes cse", "--passes is for one model", "--target runs two"),
        ("tiny.tfg --target cpu", "--target is for two models", "--backends names"),
        ("tiny.tfg m.yaml", "only one has x of a (tiny) and input_ids of b (m)", "the same inputs"),
        ("m.yaml --intervene layers.0.heads.1", "expected NAME=VALUE", "such as layers.3"),
        ("m.yaml --intervene layers.0.heads.1=x", "'x' is not a number, nor a .npy file", None),
        ("m.yaml --intervene layers.0.heads.9=0", "layers.0 has heads 0..1", None),
        ("m.yaml --intervene a.heads.1=0 --intervene a.heads.1=2", "is given twice", None),
        ("m.yaml --intervene layers.0.ffn.w1[1]=no.npy", "no.npy: No such file", None),
        (f"{OTHER} --inputs no.npz", "--inputs no.npz: No such file", None),
        (f"{OTHER} --inputs bad.npz", "--inputs bad.npz: it cannot be read", None),
        (f"{OTHER} --inputs bad.json", "--inputs bad.json: it is not JSON", ".npz"),
        (f"{OTHER} --inputs list.json", "expected an object of lists by input name", None),
        (f"{OTHER} --inputs other.json", "the model has no input 'xx'", "did you mean 'x'"),
        (f"{OTHER} --inputs text.json", "x is not an array of float32: expected numbers", None),
        (f"{OTHER} --inputs good.json --input x=x.npy", "'x' is in --inputs good.json too", None),
        ("m.yaml m.yaml --inputs floats.json", "input_ids is not an array of int64", None),
        (f"{OTHER} --inputs wide.npz", "input 'x' is float64, expected float32", ".astype"),
    ],
)
def test_mistakes(tfgraph: Callable[..., Any], line: str, message: str, hint: str | None) -> None:
    for name, text in {
        "bad.npz": "no archive",
        "bad.json": "{",
        "list.json": "[1]",
        "other.json": '{"xx": [[1]]}',
        "text.json": '{"x": [["a"]]}',
        "good.json": f'{{"x": [{[1] * 8}]}}',
        "floats.json": '{"input_ids": [[1.5]]}',
    }.items():
        Path(name).write_text(text)
    np.save("x.npy", np.ones((1, 8), np.float32))
    np.savez("wide.npz", x=np.ones((1, 8)))
    result = tfgraph("compare", *line.split(" "))
    assert result.code == 2
    assert message in result.err
    assert (hint is None) == ("hint:" not in result.err)
    assert (hint or "") in result.err


def test_an_artifact_takes_no_intervention(tfgraph: Callable[..., Any]) -> None:
    assert tfgraph("compile", "tiny.tfg", "--no-verify").code == 0
    line = ("compare", "tiny.tfg", "tiny.cpu.tfgraph", "--intervene", "w[1]=0")
    assert "--intervene is for models; tiny.cpu.tfgraph is an artifact" in tfgraph(*line).err
    assert "is an artifact, expected a model" in tfgraph("compare", "tiny.cpu.tfgraph").err
