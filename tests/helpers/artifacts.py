"""Artifacts in tests: their files, copies with another manifest, and the command line on them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tfgraph.runtime import format as layout

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files by name."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def edit_manifest(artifact: Path, copy: Path, **changes: Any) -> Path:
    """A copy, or the artifact itself, whose manifest has other entries and is still whole."""
    if copy != artifact:
        shutil.copytree(artifact, copy)
    manifest = json.loads((artifact / layout.MANIFEST).read_text())
    (copy / layout.MANIFEST).write_text(layout.seal({**manifest, **changes}), encoding="utf-8")
    return copy


def check_whole(folder: Path) -> None:
    """Fail unless every file that the manifest lists is there with its hash."""
    for name, sha256 in layout.read_manifest(folder)["files"].items():
        layout.check_file(folder, name, sha256)


def python(
    *arguments: str, cwd: Path | None = None, timeout: float = 120, **env: str
) -> subprocess.CompletedProcess[str]:
    """A fresh Python on this checkout, with `env` in its environment; it may take `timeout` s."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment(**env),
        timeout=timeout,
    )


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with the checkout and the tests to import from."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]), **more}
