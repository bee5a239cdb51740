"""A disk that is full, or may only be read: one line says so, exit code 2, and nothing is left."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from helpers.artifacts import check_whole, environment
from helpers.compiling import BIG, CLI, MODEL

from tfgraph.runtime import format as layout

if TYPE_CHECKING:
    from pathlib import Path


def limited(folder: Path, size: int) -> subprocess.CompletedProcess[str]:
    """`tfgraph compile` where no file may be larger than `size` bytes."""
    (folder / "g.tfg").write_text(MODEL.format(name="g"))
    return subprocess.run(
        [sys.executable, "-c", CLI, "compile", "g.tfg", "-o", "out.tfgraph", "--no-verify"],
        cwd=folder, env=environment(PYTHONDONTWRITEBYTECODE="1"), capture_output=True, text=True,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )  # fmt: skip


def test_a_file_that_the_system_refuses_to_grow(tmp_path: Path) -> None:
    done = limited(tmp_path, BIG // 2)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines() == ["error: cannot write out.tfgraph: File too large"]
    assert [p.name for p in tmp_path.iterdir()] == ["g.tfg"]


def disk(script: str, folder: Path, size: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with a small disk of its own at `disk` in `folder`; it prints what is on
    the disk in the end."""
    (folder / "g.tfg").write_text(MODEL.format(name="g"))
    (folder / "disk").mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o size={size} tmpfs disk && {{ {script}; code=$?; ls -A disk; }}"
    line = ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{mount}; exit $code"]
    env = environment(PY=f"{sys.executable}", CLI=CLI, PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(
        line, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
    )


def may_mount() -> bool:
    line = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(line, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


needs_mount = pytest.mark.skipif(not may_mount(), reason="may not mount a small disk here")
COMPILE = '"$PY" -c "$CLI" compile g.tfg --no-verify'


@needs_mount
def test_a_full_disk(tmp_path: Path) -> None:
    done = disk(f"{COMPILE} -o disk/out.tfgraph", tmp_path, f"{BIG * 2 // 3}")
    assert done.returncode == 2, done.stderr
    assert done.stderr == "error: cannot write disk/out.tfgraph: No space left on device\n"
    assert "out.tfgraph" not in done.stdout.splitlines()


@needs_mount
def test_a_small_disk_for_temporary_files(tmp_path: Path) -> None:
    """LLVM ends the process where it cannot write, so it is given none of the disk's files."""
    done = disk(f"TMPDIR=$PWD/disk {COMPILE} -o out.tfgraph", tmp_path, "8k")
    assert done.returncode == 0, done.stderr
    check_whole(tmp_path / "out.tfgraph")
    objects = (tmp_path / "out.tfgraph" / layout.KERNELS).glob("*.o")
    assert max(path.stat().st_size for path in objects) > 8192


@needs_mount
def test_a_full_disk_for_outputs(tmp_path: Path) -> None:
    run = '"$PY" -c "$CLI" run out.tfgraph --dim n=300 --save disk/saved'
    done = disk(f"{COMPILE} -q -o out.tfgraph && {run}", tmp_path, "64k")
    assert done.returncode == 2
    assert done.stderr == "error: cannot write disk/saved/z.npy: No space left on device\n"
    assert "z.npy" not in done.stdout


@needs_mount
def test_a_disk_that_may_only_be_read(tmp_path: Path) -> None:
    """An artifact runs from there, and none is written there."""
    run = '"$PY" -c "$CLI" run disk/out.tfgraph -q && "$PY" -c "$CLI" run disk/out.tfgraph -q'
    again = f"{COMPILE} -q -o disk/out.tfgraph"
    script = f"{COMPILE} -q -o disk/out.tfgraph && mount -o remount,ro disk && {run} && {again}"
    done = disk(script, tmp_path, "4m")
    assert done.returncode == 2, done.stderr
    assert done.stderr == "error: cannot write disk/out.tfgraph: Read-only file system\n"
    assert done.stdout.count("  z  float32[3,4000]") == 2
    assert done.stdout.splitlines()[-1] == "out.tfgraph"
