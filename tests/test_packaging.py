"""What is built and installed: the wheel's contents, and pins that agree with the lock."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
from helpers.packages import build

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
# Where each folder of the tree is installed.
FOLDERS = {"tfgraph": "tfgraph", "passes": "tfgraph/passes", "backends": "tfgraph/backends"}
PINNED = ("apache-tvm", "apache-tvm-ffi", "apache-tvm-ffi-orcjit")


def installed_names() -> Iterator[str]:
    """The name in the wheel of each file of the three folders, links and bytecode left out."""
    for folder, installed in FOLDERS.items():
        for directory, _, names in os.walk(ROOT / folder):  # does not follow links
            inside = Path(directory).relative_to(ROOT / folder)
            if "__pycache__" not in inside.parts:
                yield from (str(installed / inside / name) for name in names)


def names_in(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads, so that building leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(
            ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel_names(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return names_in(build("wheel", source, tmp_path_factory.mktemp("wheel")))


def test_the_top_level_of_the_wheel_is_tfgraph_alone(wheel_names: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tfgraph"}
    assert len(tops) == 2


def test_the_wheel_holds_every_file_of_the_tree_once(wheel_names: list[str]) -> None:
    packed = sorted(name for name in wheel_names if ".dist-info/" not in name)
    assert packed == sorted(installed_names())
    assert "tfgraph/py.typed" in packed


def test_the_wheel_says_what_it_needs_and_offers(source: Path, tmp_path: Path) -> None:
    with ZipFile(build("wheel", source, tmp_path)) as archive:
        read = {Path(n).name: archive.read(n).decode() for n in archive.namelist() if "-info/" in n}
    assert "tfgraph = tfgraph.cli:main" in read["entry_points.txt"]
    assert "License-Expression: Apache-2.0" in read["METADATA"]
    assert "Apache License" in read["LICENSE"]
    for name in PINNED:
        (need,) = re.findall(rf"Requires-Dist: {name}==.*", read["METADATA"])
        assert "sys_platform" in need  # other platforms install without it


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")  # of unpacking archives
def test_a_wheel_built_from_the_sdist_is_the_same(
    source: Path, wheel_names: list[str], tmp_path: Path
) -> None:
    (tmp_path / "sdist").mkdir()
    (tmp_path / "wheel").mkdir()
    sdist = build("sdist", source, tmp_path / "sdist")
    shutil.unpack_archive(sdist, tmp_path)
    (unpacked,) = tmp_path.glob("tfgraph-*")
    assert sorted(names_in(build("wheel", unpacked, tmp_path / "wheel"))) == sorted(wheel_names)


def test_the_links_are_not_needed_to_build(
    source: Path, wheel_names: list[str], tmp_path: Path
) -> None:
    copy = shutil.copytree(source, tmp_path / "unlinked", symlinks=True)
    for link in ("passes", "backends"):
        (copy / "tfgraph" / link).unlink()
    (tmp_path / "wheel").mkdir()
    assert sorted(names_in(build("wheel", copy, tmp_path / "wheel"))) == sorted(wheel_names)


def test_every_folder_with_code_is_a_package() -> None:
    code = {str(Path(name).parent) for name in installed_names() if name.endswith(".py")}
    assert sorted(code - {str(Path(n).parent) for n in installed_names() if "__init__" in n}) == []


def read_lock() -> dict[str, tuple[str, int]]:
    """Of each locked package: its version, and the number of hashes."""
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=[a-z])", text.strip())
    locked = {}
    for entry in entries:
        match = re.match(r"([a-z0-9-]+)==([^\s;]+)", entry)
        assert match, f"not pinned: {entry[:80]}"
        locked[match[1]] = (match[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)))
    return locked


def requirements() -> list[str]:
    pyproject: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [*pyproject["project"]["dependencies"], *pyproject["dependency-groups"]["dev"]]


def test_the_lock_holds_hashes_but_no_address_or_path() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.findall(r".*(?:/|\\\w|--find-links|--(?:extra-)?index|@ |\bfile:).*", text)
    assert all(hashes > 0 for _, hashes in read_lock().values())


def test_everything_required_is_locked_and_exact_pins_agree() -> None:
    locked = read_lock()
    for requirement in requirements():
        match = re.match(r"([\w.-]+?)(?:\[\w+\])?(==|>=)([^\s;]+)", requirement)
        assert match, requirement
        name = re.sub(r"[-_.]+", "-", match[1]).lower()
        assert name in locked, f"{name} is not in requirements.lock: run `make lock`"
        if match[2] == "==":
            assert locked[name][0] == match[3], f"{name}: run `make lock`"
    assert all(any(r.startswith(f"{name}==") for r in requirements()) for name in PINNED)
