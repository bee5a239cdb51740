"""The same inputs give the same bytes, wherever and however they are compiled: from two checkouts
and two copies of the model in other folders, by fresh processes that share nothing else."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.artifacts import ROOT, contents

MODEL = """\
kind: decoder
layers: 2
width: 32
heads: 4
vocabulary: 90
"""
COMPILE = """if True:
    import os, sys
    os.umask(int(sys.argv[2], 8))
    if sys.argv[3] == "one CPU":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    import tfgraph
    from tfgraph.cli import main
    assert tfgraph.__file__.startswith(os.environ["PYTHONPATH"]), tfgraph.__file__
    for target in ("cpu", "cuda"):
        shared = ["--shared"] if target == "cpu" and sys.argv[4] == "shared" else []
        arch = ["--arch", "sm_90"] if target == "cuda" else []
        out = ["-o", f"{sys.argv[1]}/{target}", "--target", target]
        code = main(["compile", "model.yaml", *out, *shared, *arch, "-q"])
        assert code == 0, code"""

WAYS = [
    ("022", "all CPUs", {"LC_ALL": "C", "TZ": "UTC", "HOME": "/nonexistent", "USER": "a"}),
    ("077", "one CPU", {"LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "COLUMNS": "40", "USER": "b"}),
]


def checkout(folder: Path) -> Path:
    """A copy of the package, links followed, and of the model beside it."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tfgraph", folder / "source" / "tfgraph", ignore=skip)
    (folder / "models").mkdir()
    (folder / "models" / "model.yaml").write_text(MODEL)
    return folder


NVCC = {"cuda/kernels/sm_90.cubin", "cuda/manifest.json"}
"""What nvcc decides: in few of hundreds of runs it chose other registers, and not the next time."""


@pytest.mark.parametrize("times", [2, pytest.param(16, marks=pytest.mark.long)])
def test_two_checkouts_give_the_same_bytes(tmp_path: Path, times: int) -> None:
    folders = [checkout(tmp_path / "here"), checkout(tmp_path / "some" / "deeper folder")]
    shared = "shared" if any(map(shutil.which, ("cc", "gcc", "clang"))) else ""
    count = itertools.count()

    def compiled(number: int) -> dict[str, bytes]:
        folder, (umask, cpus, more) = folders[number % 2], WAYS[number // 2 % 2 ^ number % 2]
        out = folder / f"out {next(count)}"
        # Paths of many lengths: nvcc's compiler allocates memory for them.
        temporary = folder / f"temporary {'9' * (11 * number)}{number}"
        temporary.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", COMPILE, str(out), umask, cpus, shared],
            cwd=folder / "models", capture_output=True, text=True, check=False,
            env={
                **os.environ, **more, "PYTHONPATH": str(folder / "source"),
                "TMPDIR": str(temporary), "PYTHONHASHSEED": str(number),
            },
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert list(temporary.iterdir()) == []
        return contents(out)

    first = compiled(0)
    assert {"cpu/manifest.json", "cuda/kernels/kernels.cu", "cuda/kernels/host0.o"} <= set(first)
    for number in range(times):
        made = compiled(number) if number else first
        assert list(made) == list(first)
        others = {name for name, data in made.items() if data != first[name]}
        assert others <= NVCC, number
        if others:
            pairs = itertools.product([first, compiled(0)], [made, compiled(number)])
            assert any(a == b for a, b in pairs), number
        for name, data in made.items():
            for text in (tmp_path, ROOT):
                assert str(text).encode() not in data, (name, text)
