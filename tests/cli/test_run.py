"""`tfgraph run`: inputs from files or made up, outputs saved, the trace, and few imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

from tfgraph.cli.execute import safe_names

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
NUMPY = ("run", "tiny.tfg", "--target", "numpy")


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def weight() -> np.ndarray[Any, Any]:
    """The seeded weight of tiny.tfg."""
    from tfgraph.text import parse_graph
    from tfgraph.weights import Seeded

    graph = parse_graph(Path("tiny.tfg").read_text(), "tiny.tfg")
    return np.asarray(Seeded(graph.params)["w"], np.float64)


def test_a_model_on_given_inputs(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 8)
    np.save("x.npy", x)
    found = tfgraph(*NUMPY, "--input", "x=x.npy", "--save", tmp_path / "out", "--json").json
    path = str(tmp_path / "out" / "z.npy")
    assert found == {
        "dims": {"n": 5},
        "outputs": {"z": {"shape": [5, 4], "dtype": "float32", "file": path}},
    }
    assert_close(np.load(path), softmax(x @ weight()), length=8 + 4)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["z.npy"]


def test_an_artifact_gives_what_the_model_gives(tfgraph: Callable[..., Any]) -> None:
    tfgraph("compile", "tiny.tfg", "--no-verify", "-o", "art")
    for spec, out in (("art", "a"), ("tiny.tfg", "b")):
        result = tfgraph("run", spec, "--dim", "n=70", "--seed", "5", "--save", out, "--json")
        assert result.json["dims"] == {"n": 70}
    assert_close(np.load("a/z.npy"), np.load("b/z.npy"), length=8 + 4)


def test_made_up_inputs_follow_the_seed(tfgraph: Callable[..., Any]) -> None:
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        tfgraph(*NUMPY, "--seed", seed, "--save", out)
    assert np.array_equal(np.load("a/z.npy"), np.load("b/z.npy"))
    assert not np.array_equal(np.load("a/z.npy"), np.load("c/z.npy"))


def test_made_up_inputs_fit_the_given_ones(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "two.tfg").write_text(
        "graph two(%a: f32[n,2], %b: f32[n,m]) {\n"
        "  symbol m: 1..9, example 4\n  symbol n: 1..9, example 3\n"
        "  %c = concat(%a, %b) {axis=1} : f32[n,m + 2]\n  return %c\n}\n"
    )
    np.save("a.npy", np.ones((7, 2), np.float32))
    found = tfgraph("run", "two.tfg", "--target", "numpy", "--input", "a=a.npy", "--json").json
    assert found["dims"] == {"n": 7, "m": 4}
    assert found["outputs"]["c"]["shape"] == [7, 6]


CACHED = """\
graph cached(%q: f32[seq,4], %k: f32[past + seq,4]) {
  symbol past: 1..40, example 30
  symbol seq: 1..20, example 3
  %kt = transpose(%k) {perm=[1,0]} : f32[4,past + seq]
  %s = matmul(%q, %kt) : f32[seq,past + seq]
  return s=%s
}
"""


@pytest.mark.parametrize(
    ("given", "dims"),
    [
        ({"q": 5, "k": 12}, {"past": 7, "seq": 5}),
        ({"k": 37}, {"past": 30, "seq": 7}),  # the example of one of the two tells the other
        ({"k": 12}, {"past": 1, "seq": 11}),  # its example leaves nothing for the other
        ({"k": 60}, {"past": 40, "seq": 20}),
        ({"q": 5}, {"past": 30, "seq": 5}),
        ({}, {"past": 30, "seq": 3}),
    ],
)
def test_sizes_that_a_shape_tells_through_a_sum(
    tfgraph: Callable[..., Any], tmp_path: Path, given: dict[str, int], dims: dict[str, int]
) -> None:
    (tmp_path / "cached.tfg").write_text(CACHED)
    inputs = []
    for name, rows in given.items():
        np.save(f"{name}.npy", np.ones((rows, 4), np.float32))
        inputs += ["--input", f"{name}={name}.npy"]
    found = tfgraph("run", "cached.tfg", "--target", "numpy", *inputs, "--json").json
    assert found["dims"] == dims


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"q": 5, "k": 5}, "past is 0 in axis 0 of 'k', expected 1 to 40"),
        ({"q": 5, "k": 46}, "past is 41 in axis 0 of 'k', expected 1 to 40"),
        ({"k": 61}, "seq is 31 in axis 0 of 'k', expected 1 to 20"),
    ],
)
def test_sizes_that_do_not_fit_a_sum(
    tfgraph: Callable[..., Any], tmp_path: Path, rows: dict[str, int], message: str
) -> None:
    (tmp_path / "cached.tfg").write_text(CACHED)
    inputs = []
    for name, count in rows.items():
        np.save(f"{name}.npy", np.ones((count, 4), np.float32))
        inputs += ["--input", f"{name}={name}.npy"]
    result = tfgraph("run", "cached.tfg", "--target", "numpy", *inputs)
    assert (result.code, result.err) == (2, f"error: {message}\n")


BAD = {
    "shape": (np.ones((5, 7), np.float32), "error: axis 1 of 'x' is 7, expected 8\n"),
    "dtype": (
        np.ones((5, 8)),
        "error: input 'x' is float64, expected float32\nhint: convert it with .astype('float32')\n",
    ),
    "size": (
        np.ones((301, 8), np.float32),
        "error: n is 301 in axis 0 of 'x', expected 1 to 300\n",
    ),
    "empty": (np.ones((0, 8), np.float32), "error: n is 0 in axis 0 of 'x', expected 1 to 300\n"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_wrong_array(tfgraph: Callable[..., Any], what: str) -> None:
    array, error = BAD[what]
    np.save("x.npy", array)
    result = tfgraph(*NUMPY, "--input", "x=x.npy")
    assert (result.code, result.out, result.err) == (2, "", error)


def test_a_size_that_contradicts_an_input(tfgraph: Callable[..., Any]) -> None:
    np.save("x.npy", np.ones((5, 8), np.float32))
    result = tfgraph(*NUMPY, "--input", "x=x.npy", "--dim", "n=6")
    assert (result.code, result.err) == (2, "error: n is 6 in dims, but 5 in axis 0 of 'x'\n")


def test_an_absurd_size_is_refused_before_memory_is_taken(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph(*NUMPY, "--dim", "n=1000000000000")
    assert result.err == "error: n is 1000000000000 in dims, expected 1 to 300\n"


def test_files_that_are_no_arrays(tfgraph: Callable[..., Any]) -> None:
    np.savez("x.npz", x=np.ones(3))
    error = tfgraph(*NUMPY, "--input", "x=x.npz").err
    assert error.startswith("error: --input x: x.npz is an .npz archive, expected one .npy array\n")
    np.save("x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    error = tfgraph(*NUMPY, "--input", "x=x.npy").err
    assert error == (
        "error: --input x: x.npy cannot be read: it holds Python objects, expected numbers\n"
    )
    # A header that promises 4 TB, and a file that is cut short.
    np.save("x.npy", np.ones((5, 8), np.float32))
    data = Path("x.npy").read_bytes()
    Path("x.npy").write_bytes(data.replace(b"(5, 8), }   ", b"(999999999999, 8), }   ")[:200])
    cut = "error: --input x: x.npy cannot be read: it is cut short\n"
    assert tfgraph(*NUMPY, "--input", "x=x.npy").err == cut
    for content in (data[:140], data[:20], data[:7], Path("x.npy").read_bytes()):
        Path("x.npy").write_bytes(content)
        result = tfgraph(*NUMPY, "--input", "x=x.npy")
        assert result.code == 2
        assert result.err.startswith("error: --input x: x.npy cannot be read: ")
    result = tfgraph(*NUMPY, "--input", "x=.")
    assert (result.code, result.err) == (2, "error: --input x: .: Is a directory\n")


def test_damage_is_told_by_file(tfgraph: Callable[..., Any]) -> None:
    tfgraph("compile", "tiny.tfg", "--no-verify", "-o", "art")
    kernel = next(Path("art/kernels").glob("*.o"))
    kernel.write_bytes(kernel.read_bytes()[:-1])
    result = tfgraph("run", "art")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: {kernel}: damaged")
    Path("art/manifest.json").unlink()
    assert tfgraph("run", "art").code == 2


def test_the_names_of_saved_files_are_safe() -> None:
    names = ["a/b", "../up", "a_b", "", ".hidden", "x" * 300, "ok-1.2"]
    found = safe_names(names)
    assert list(found) == names
    assert list(found.values()) == ["a_b", "_up", "a_b_1", "output", "hidden", "x" * 100, "ok-1.2"]


def test_the_trace_shows_every_value_in_order(tfgraph: Callable[..., Any]) -> None:
    np.save("x.npy", np.arange(8, dtype=np.float32).reshape(1, 8))
    text = tfgraph("run", "tiny.tfg", "--trace", "--input", "x=x.npy").out
    lines = text.splitlines()
    assert lines[0] == "tiny at n=1"
    assert lines[1] == "%x = input  float32 1x8"
    assert " ".join(lines[2].split()) == "min 0 max 7 mean 3.5 first 0 1 2 3 ..."
    assert [line.split()[:3] for line in lines[3::2]] == [
        ["%w", "=", "weight"],
        ["%y", "=", "linear"],
        ["%z", "=", "softmax"],
    ]
    found = tfgraph("run", "tiny.tfg", "--trace", "--input", "x=x.npy", "--json").json
    assert [(v["name"], v["op"], v["shape"]) for v in found["trace"]] == [
        ("x", "input", [1, 8]),
        ("w", "weight", [8, 4]),
        ("y", "linear", [1, 4]),
        ("z", "softmax", [1, 4]),
    ]
    y = np.arange(8) @ weight()
    assert_close(found["trace"][2]["mean"], y.mean(), length=8 + 4, dtype="float32")
    assert_close(found["trace"][2]["first"], y, length=8, dtype="float32")
    assert found["trace"][2]["location"] == "tiny.tfg:3:8"


def test_running_an_artifact_imports_little(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    tfgraph("compile", "tiny.tfg", "--no-verify", "-o", "art")
    code = (
        "import sys; from tfgraph.cli import main; code = main(sys.argv[1:]); "
        "print(*sorted(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(tmp_path / "art"), "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["dims"] == {"n": 3}
    loaded = set(done.stderr.split())
    absent = {"tvm", "onnx", "networkx", "rich", "ruamel", "safetensors", "typer", "pydantic"}
    assert loaded & (absent | {"numpy.ma"}) == set()
    ours = {name for name in loaded if name.startswith("tfgraph.")}
    allowed = ("tfgraph.cli", "tfgraph.runtime", "tfgraph.errors")
    assert {name for name in ours if not name.startswith(allowed)} == set()
