"""The GPU's benchmark at tiny sizes, on an emulated GPU: it runs, and all its kernels are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cuda_emulator.driver.build import environment

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cuda.py"


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
