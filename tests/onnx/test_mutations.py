"""Damaged files end in an error, or in a graph; never in another exception."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from helpers.onnx_files import NAMES, export_path
from helpers.onnx_mutations import mutated

from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx
from tfgraph.ops import verify


def check(tmp_path: Path, seeds: range) -> None:
    logging.getLogger("tfgraph").setLevel(logging.ERROR)
    path, refused = tmp_path / "m.onnx", 0
    for seed in seeds:
        path.write_bytes(mutated(export_path(NAMES[seed % len(NAMES)]).read_bytes(), seed))
        try:
            graph, weights = import_onnx(path)
        except TfgraphError:
            refused += 1
            continue
        verify(graph)
        for param in graph.params:
            assert weights[param.value.name].shape == tuple(map(int, param.value.type.shape))
    assert len(seeds) // 2 < refused < len(seeds)


def test_a_hundred(tmp_path: Path) -> None:
    check(tmp_path, range(100))


@pytest.mark.long
def test_two_thousand(tmp_path: Path) -> None:
    check(tmp_path, range(100, 2100))
