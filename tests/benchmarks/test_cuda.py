"""The GPU's benchmark at tiny sizes, on an emulated GPU: it runs, and all its kernels are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cuda_emulator.driver.build import environment

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cuda.py"
BREAKING = """
import os, signal, sys
import cuda

def measure(row, case, folder, torch, limits, say):
    if row["dtype"] == "bfloat16":
        if case.name == "gemm 1 x 40 x 24":
            os._exit(3)
        if case.name.startswith("attention 1 x 2 x 20"):
            raise RuntimeError("no kernel\\nand more")
        if case.name.startswith("bert"):
            say(row | {"ok": True, "us": 2.0, "half": True})
            os.kill(os.getpid(), signal.SIGSEGV)
    print("what others print")
    row |= {"ok": True, "us": 1.0}

cuda.measure = measure
sys.exit(cuda.main())
"""


def test_every_case_is_right(fake_cuda: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, str(SCRIPT), "--tiny", "--json", str(out)]
    env = {**os.environ, **environment(fake_cuda)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 14
    for row in rows:
        assert row["ok"] is True, row
        assert row["us"] > 0
    names = {row["name"].partition(" ")[0] for row in rows}
    assert names == {"gemm", "attention", "bert", "llama"}


def test_what_breaks_takes_no_other_row_with_it(tmp_path: Path) -> None:
    """A process that ends, an error, a process that ends while PyTorch is measured."""
    script, out = tmp_path / "breaking.py", tmp_path / "rows.json"
    script.write_text(BREAKING)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), *sys.path])}
    command = [sys.executable, str(script), "--tiny", "--json", str(out)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "what others print" in done.stderr
    assert "what others print" not in done.stdout
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 14
    broken = {row["name"]: row for row in rows if row.get("us") != 1}
    assert {row["dtype"] for row in broken.values()} == {"bfloat16"}
    reasons = {name: row.get("reason") or row["PyTorch"] for name, row in broken.items()}
    assert reasons == {
        "gemm 1 x 40 x 24": "its process ended with 3",
        "attention 1 x 2 x 20 x 20 x 16": "RuntimeError: no kernel",
        "bert layer 1 x 9": "its process ended with -11",
    }
    assert broken["bert layer 1 x 9"]["us"] == 2
    late = subprocess.run([*command, "--seconds", "0"], env=env, capture_output=True, check=False)
    assert late.returncode == 0
    assert late.stdout.count(b"not measured: no time left") == 14
