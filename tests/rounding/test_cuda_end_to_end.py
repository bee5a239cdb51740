"""Whole models in float16 and bfloat16: the GPU's kernels, run on the CPU, are within the bounds
that verification derives for them, and these are no more than some times what is observed."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cuda_graphs import CudaGraphs
from helpers.typed_models import written

from tfgraph.api.allowed import Allowed
from tfgraph.api.bounds import difference
from tfgraph.api.fuse import fuse
from tfgraph.backends.base import Target, input_ports
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ir import DType
from tfgraph.passes import DEFAULT_PIPELINE
from tfgraph.runtime.examples import example
from tfgraph.weights import Seeded

CUDA = Target("cuda")
DTYPES = (DType.float32, DType.float16, DType.bfloat16)
MODELS = {f"{n}_{d.short}": (n, d) for n in ("encoder", "rotary", "relative") for d in DTYPES}
GRAPHS = {key: written(name, dtype) for key, (name, dtype) in MODELS.items()}
WEIGHTS = {key: dict(Seeded(graph.params)) for key, graph in GRAPHS.items()}
TIMES = 30
"""How many times the largest error a bound may be."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CudaGraphs:
    compiled = {key: fuse(g, CUDA, DEFAULT_PIPELINE).compiled for key, g in GRAPHS.items()}
    return CudaGraphs(compiled, tmp_path_factory.mktemp("models"), WEIGHTS)


@pytest.mark.parametrize("key", MODELS)
def test_a_model(run: CudaGraphs, key: str) -> None:
    graph, sizes = GRAPHS[key], {"batch": 2, "seq": 19}
    feeds = {port.name: example(port, sizes) for port in input_ports(graph)}
    want = NumpyExecutable(graph, WEIGHTS[key])(**feeds)
    got = run(key, feeds, sizes)
    allowed = Allowed(graph, WEIGHTS[key], CUDA, [sizes])
    for name, array in want.items():
        found = difference(name, array, got[name], allowed.bound(name, array))
        assert found.ok, found
        assert found.bound < TIMES * found.max_abs


def test_a_scale_that_is_off_is_seen() -> None:
    """Bounds of float16 are not so wide that they hide what is wrong."""
    graph, sizes = GRAPHS["encoder_f16"], {"batch": 2, "seq": 19}
    feeds = {port.name: example(port, sizes) for port in input_ports(graph)}
    weights = WEIGHTS["encoder_f16"]
    want = NumpyExecutable(graph, weights)(**feeds)
    name = next(n for n in weights if "norm" in n and n.startswith("layers"))
    wrong = NumpyExecutable(graph, {**weights, name: weights[name] * np.float16(1.125)})(**feeds)
    allowed = Allowed(graph, weights, CUDA, [sizes])
    assert not all(difference(n, a, wrong[n], allowed.bound(n, a)).ok for n, a in want.items())
