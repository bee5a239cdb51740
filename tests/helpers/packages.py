"""Builds packages with the setuptools installed here: no pip, no network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def build(kind: str, source: Path, out: Path) -> Path:
    """Build "wheel" or "sdist" from the folder `source` into `out`; the file made."""
    code = f"import setuptools.build_meta as b; b.build_{kind}({str(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (made,) = (path for path in out.iterdir() if path.suffix in {".whl", ".gz"})
    return made
