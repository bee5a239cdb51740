"""The command line takes ONNX files, and plugins add operators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.onnx_files import export_path, node, save

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx

PLUGIN = """
from tfgraph import ops
from tfgraph.onnx import Site, Tensor, translates

@translates("my.domain.Cubed")
def cube(at: Site, x: Tensor, /, *, scale=1):
    value = at.tensor(x)
    return ops.mul(value * value * value, scale)
"""


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfgraph", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_fusion_of_a_file() -> None:
    done = run("inspect", export_path("gptj.legacy_op11"), "--fusion", "--json")
    assert done.returncode == 0, done.stderr
    passes = {p["name"]: p["applied"] for p in json.loads(done.stdout)["fusion"]}
    assert passes["recover-norms"] == {"layer-norm": 3, "join-scale": 3, "join-bias": 3}
    assert passes["recover-masks"] == {"changes-empty-rows": 2}
    assert passes["recover-rotary"]["interleaved-rotary"] == 4
    assert passes["fuse-attention"]["fuse-attention"] == 2


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(export_path("bert.legacy_static").read_bytes()[:5000])
    done = run("inspect", path, "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["file"]) == ("bad-input", str(path))
    assert "truncated" in error["message"]
    assert "Traceback" not in done.stderr


def test_a_plugin_adds_an_operator(tmp_path: Path) -> None:
    cube = node("Cubed", "x", "y", scale=0.5)
    cube.domain = "my.domain"
    path = save(tmp_path / "m.onnx", [cube], {"x": ("f32", ["n"])}, ["y"])
    with pytest.raises(TfgraphError, match=r"my\.domain\.Cubed is not supported"):
        import_onnx(path)
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN)
    exec(compile(PLUGIN, str(plugin), "exec"), {"__name__": "plugin"})
    x = np.array([2, 3], np.float32)
    got = tfgraph.compile(str(path), target="numpy")(x=x)["y"]
    np.testing.assert_array_equal(got, 0.5 * x**3)
