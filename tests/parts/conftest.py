"""The graph of all parts, compiled once for the tests of this folder."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.part_graphs import GRAPH, IDS, WEIGHTS, X

import tfgraph


@pytest.fixture(scope="package", params=["numpy", "cpu"])
def run(request: pytest.FixtureRequest) -> Any:
    model = tfgraph.compile(GRAPH, request.param, weights=WEIGHTS)
    return lambda x=X, ids=IDS: model(x=x, ids=ids)
