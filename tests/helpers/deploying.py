"""The page on deployment, and what its tests share."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from helpers.artifacts import ROOT
from helpers.small_model import small_model

import tfgraph
from tfgraph.backends.base import Target

PAGE = (ROOT / "docs" / "deploy.md").read_text()
COMPILER = shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH")


def package(name: str) -> Path:
    """The folder of an installed package."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0])


RUNTIME = package("tvm") / "lib" / "libtvm_runtime.so"


def blocks(language: str) -> list[str]:
    """The code blocks of the page in that language, without their indentation."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE, re.M | re.S)
    return [re.sub(rf"^{indent}", "", text, flags=re.M) for indent, text in found]


def build_shared(folder: Path) -> Path:
    """The small model, with a shared library where there is a compiler."""
    target = Target("cpu", shared=COMPILER is not None)
    tfgraph.build(small_model(), target, folder, check=False)
    return folder
