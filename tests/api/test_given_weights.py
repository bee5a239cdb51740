"""Weights given in Python: of the names, shapes and dtypes of the parameters, or refused; on every
backend, and by everything that takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.foreign import Foreign
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NDArray = np.ndarray[Any, Any]


def two_layers() -> tfgraph.Graph:
    """linear(x, w) + b, of those rows that `keep` has."""
    with tfgraph.graph("layers") as g:
        y = ops.linear(g.input("x", "f32", "n", 4), g.param("layer.w", "f32", 4, 3))
        y = ops.add(y, g.param("layer.b", "f32", 3))
        g.output("y", ops.where(g.param("keep", "bool", 3, fill=tfgraph.Fill("ones")), y, y * 0))
    return g.build()


GRAPH = two_layers()
RNG = np.random.default_rng(0)
W: dict[str, Any] = {
    "layer.w": RNG.standard_normal((4, 3), np.float32),
    "layer.b": RNG.standard_normal(3, np.float32),
    "keep": np.array([True, False, True]),
}
X = RNG.standard_normal((5, 4), np.float32)


def but(name: str, value: Any) -> dict[str, Any]:
    return {**W, name: value}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in W.items() if name not in names}


AS_F32 = "convert it with .astype('float32')"
ALL = "give all parameters, or no weights for seeded ones"
FILE = "safetensors.numpy.load_file(path) gives one"
REFUSED: list[tuple[Any, str, str | None]] = [
    (but("layer.wt", 1), "weights: layers has no parameter 'layer.wt'", "did you mean 'layer.w'?"),
    (
        but("zzzzz", 1),
        "weights: layers has no parameter 'zzzzz'",
        "it has layer.w, layer.b, keep",
    ),
    (but(1, 1), "weights: layers has no parameter '1'", "it has layer.w, layer.b, keep"),  # type: ignore[arg-type]
    (without("layer.b"), "weights: 'layer.b' is missing", ALL),
    (without("layer.b", "keep"), "weights: 'layer.b', 'keep' (2 of 3) are missing", ALL),
    ({}, "weights: 'layer.w', 'layer.b', 'keep' (3 of 3) are missing", ALL),
    (
        but("layer.w", np.zeros((4, 2), np.float32)),
        "weight 'layer.w' has shape [4, 2], expected [4, 3]",
        None,
    ),
    (
        but("layer.w", np.zeros((8, 3), np.float32)),
        "weight 'layer.w' has shape [8, 3], expected [4, 3]",
        None,
    ),
    (
        but("layer.w", W["layer.w"].T),
        "weight 'layer.w' has shape [3, 4], expected [4, 3]",
        "a matrix is [in, out]: .T turns it round",
    ),
    (
        but("layer.b", np.zeros((1, 3), np.float32)),
        "weight 'layer.b' has shape [1, 3], expected [3]",
        None,
    ),
    (
        but("layer.b", np.float32(1)),
        "weight 'layer.b' has shape [], expected [3]",
        None,
    ),
    (but("layer.b", np.zeros(3)), "weight 'layer.b' is float64, expected float32", AS_F32),
    (but("layer.b", np.zeros(3, "f2")), "weight 'layer.b' is float16, expected float32", AS_F32),
    (but("layer.b", np.zeros(3, ">f4")), "weight 'layer.b' is >f4, expected float32", AS_F32),
    (but("layer.b", np.arange(3)), "weight 'layer.b' is int64, expected float32", AS_F32),
    (
        but("keep", np.ones(3, np.uint8)),
        "weight 'keep' is uint8, expected bool",
        "convert it with .astype('bool')",
    ),
    (
        but("keep", np.array([1, 2, 0], np.uint8).view(bool)),
        "weight 'keep' holds a byte that is neither 0 nor 1, expected bool",
        "make it of the bytes by != 0, not by .view(bool)",
    ),
    (
        but("layer.b", [0.0] * 3),
        "weight 'layer.b' is a list, expected an array",
        "numpy.asarray(x, 'float32') makes one",
    ),
    ([1.0], "weights is a list, expected a mapping from names to arrays", FILE),
    ("w.safetensors", "weights is a str, expected a mapping from names to arrays", FILE),
]

USES: dict[str, Callable[[Any, Path], object]] = {
    "numpy": lambda given, _: tfgraph.compile(GRAPH, "numpy", weights=given),
    "cpu": lambda given, _: tfgraph.compile(GRAPH, "cpu", weights=given),
    "artifact": lambda given, to: tfgraph.compile(GRAPH, output=to / "out", weights=given),
    "build": lambda given, to: tfgraph.build(GRAPH, "cuda", to / "out", weights=given),
    "compare": lambda given, _: tfgraph.compare(GRAPH, weights=given),
    "model": lambda given, _: tfgraph.compile(tfgraph.Model(GRAPH, given, "m"), "numpy"),
    "verify": lambda given, _: tfgraph.verify(tfgraph.compile(GRAPH, "numpy"), GRAPH, given),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("given", "message", "hint"), REFUSED, ids=[r[1][:50] for r in REFUSED])
def test_what_does_not_fit_is_refused(
    use: str, given: Any, message: str, hint: str | None, tmp_path: Path
) -> None:
    with pytest.raises(TfgraphError) as error:
        USES[use](given, tmp_path)
    assert (error.value.message, error.value.hint) == (message, hint)
    assert list(tmp_path.iterdir()) == []


def test_all_problems_are_told_at_once() -> None:
    given = {"layer.w": np.zeros((4, 3)), "layer.c": 1, "keep": np.ones(2, bool)}
    with pytest.raises(TfgraphError) as error:
        tfgraph.compile(GRAPH, weights=given)
    assert [each.message for each in (error.value, *error.value.related)] == [
        "weights: layers has no parameter 'layer.c'",
        "weights: 'layer.b' is missing",
        "weight 'layer.w' is float64, expected float32",
        "weight 'keep' has shape [2], expected [3]",
    ]


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_what_fits_is_used(backend: str) -> None:
    """Wherever its bytes lie, and whatever library it is of."""
    want = np.where(W["keep"], X.astype(np.float64) @ W["layer.w"] + W["layer.b"], 0)
    wide = np.zeros((4, 6), np.float32)
    wide[:, ::2] = W["layer.w"]
    for given in (
        W,
        but("layer.w", wide[:, ::2]),
        but("layer.w", np.asfortranarray(W["layer.w"])),
        but("layer.w", Foreign(W["layer.w"])),
    ):
        with tfgraph.compile(GRAPH, backend, weights=given) as model:
            assert_close(model(x=X)["y"], want, length=len(W["layer.w"]) + 1)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_weights_that_are_made_when_asked_for_are_checked_then(backend: str) -> None:
    """Of another graph, whose parameters have the same names."""
    with tfgraph.graph("other") as g:
        params = [g.param("layer.w", "f32", 4, 2), g.param("layer.b", "f32", 3)]
        params.append(g.param("keep", "bool", 3, fill=tfgraph.Fill("ones")))
        for number, param in enumerate(params):
            g.output(f"y{number}", param)
    with pytest.raises(TfgraphError) as error:
        tfgraph.compile(GRAPH, backend, weights=Seeded(g.build().params))(x=X)
    assert error.value.message == "weight 'layer.w' has shape [4, 2], expected [4, 3]"


def test_without_weights_they_are_seeded() -> None:
    seeded = dict(Seeded(GRAPH.params))
    with tfgraph.compile(GRAPH) as plain, tfgraph.compile(GRAPH, weights=seeded) as given:
        assert plain(x=X)["y"].tobytes() == given(x=X)["y"].tobytes()
