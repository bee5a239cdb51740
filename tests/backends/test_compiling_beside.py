"""Kernels compile while weights are made and written: what goes wrong on either side is told as if
one came after the other, and nothing is left behind."""

from __future__ import annotations

import errno
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.artifacts import check_whole
from helpers.compiling import graph

from tfgraph.backends.artifact import write_artifact
from tfgraph.backends.base import Target
from tfgraph.backends.staging import Staging
from tfgraph.backends.tvm.cpu.backend import CpuBackend
from tfgraph.cache import Cache, active, using
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tfgraph.backends.base import Built

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def built() -> Built:
    weights = {"w": np.ones((64, 4000), np.float32)}
    found = CpuBackend().build(graph(), weights, Target("cpu"))
    files = found.make_files()
    return replace(found, make_files=lambda: files)  # compiled once


def write(folder: Path, built: Built, made: Callable[[], Any], packed: Callable[[], Any]) -> None:
    """Write it as `build` does; `made` is called before its files are, `packed` before weights."""

    def make_files() -> Mapping[str, bytes]:
        made()
        return built.make_files()

    def make() -> Any:
        packed()
        return weight.make()

    (weight,) = built.weights
    slow = replace(built, make_files=make_files, weights=(replace(weight, make=make),))
    with Staging(folder / "out.tfgraph") as staging:
        g, target = graph(), Target("cpu")
        write_artifact(staging.folder, g, g, slow, target, [], writing=staging.writing)
        staging.publish()


def fail(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_both_are_under_way_at_once(tmp_path: Path, built: Built) -> None:
    meet = threading.Barrier(2, timeout=60)
    write(tmp_path, built, meet.wait, meet.wait)
    check_whole(tmp_path / "out.tfgraph")


@pytest.mark.parametrize("error", [FULL, TfgraphError("no such kernel"), KeyboardInterrupt()])
def test_what_fails_to_compile_is_told_as_it_is(
    tmp_path: Path, built: Built, error: BaseException
) -> None:
    """An error of the system is not taken for one of the artifact's disk."""
    with pytest.raises(type(error)) as told:
        write(tmp_path, built, fail(error), lambda: None)
    assert told.value is error
    assert list(tmp_path.iterdir()) == []


def test_what_fails_to_write_is_told_with_the_artifact(tmp_path: Path, built: Built) -> None:
    """Also where it still compiles, which is waited for."""
    ended = threading.Event()

    def compile_long() -> None:
        time.sleep(0.2)
        ended.set()

    with pytest.raises(TfgraphError, match=r"^cannot write .*out\.tfgraph: No space left"):
        write(tmp_path, built, compile_long, fail(FULL))
    assert ended.is_set()
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_that_of_who_asks(tmp_path: Path, built: Built) -> None:
    found: list[Cache | None] = []
    cache = Cache(tmp_path / "cache")
    with using(cache):
        write(tmp_path, built, lambda: found.append(active()), lambda: None)
    assert found == [cache]
