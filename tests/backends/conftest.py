"""The artifact that several tests copy and damage, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.small_model import build_small


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model, compiled for this CPU; not to be changed."""
    return build_small(tmp_path_factory.mktemp("artifact"))


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(artifact, tmp_path / "copy.tfgraph"))
