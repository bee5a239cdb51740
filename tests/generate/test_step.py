"""The step of a model: fed in any pieces, padded or alone, in any capacity, a row's logits have the
bits that the whole model gives."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.generating import DECODERS, VOCABULARY, YAML, compiled, model
from helpers.processes import python
from helpers.tolerance import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tfgraph
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.backends.tvm.cpu.backend import CpuBackend
from tfgraph.errors import TfgraphError
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline
from tfgraph.runtime.format import read_manifest
from tfgraph.runtime.jit import aligned_empty
from tfgraph.runtime.source import Uncached, encode
from tfgraph.runtime.state import State

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]


def whole(name: str, row: list[int], source: list[int] | None = None) -> Array:
    """The logits behind a row, by the whole model: nothing kept, nothing padded."""
    run = compiled(name)
    given: dict[str, Any] = {"input_ids": np.array([row])}
    if source is not None:
        given = {"input_ids": np.array([source]), "decoder_input_ids": given["input_ids"]}
    for port in run.inputs:
        if port.name == "attention_mask":
            given[port.name] = np.ones_like(given["input_ids"])
        elif port.name == "token_type_ids":
            given[port.name] = np.zeros_like(given["input_ids"])
    logits: Array = run(**given)["logits"][0, -1]
    return logits


@pytest.mark.parametrize("name", YAML)
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=3),
    st.sets(st.integers(1, 89), max_size=5),
    st.integers(0, 99),
)
@example([70, 66, 1], {64, 65}, 0)
@example([90], set(range(80, 90)), 1)
def test_pieces_padding_and_the_whole_agree_bit_for_bit(
    name: str, lengths: list[int], cuts: set[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, VOCABULARY, n).tolist() for n in lengths]
    sources = None
    memory: dict[str, Array] = {}
    if "encoder" in name:
        size = 7 if "no mask" in name else None
        sources = [rng.integers(0, VOCABULARY, size or rng.integers(1, 70)).tolist() for _ in rows]
        memory = encode(compiled(name), sources)
    longest = max(lengths)
    ids = np.array([[0] * (longest - len(row)) + row for row in rows])
    first = [longest - n for n in lengths]
    state = State(compiled(name).functions["step"], len(rows), first, memory)
    for start, stop in pairwise(sorted({0, longest} | {c for c in cuts if c < longest})):
        logits = state.feed(ids[:, start:stop])
        for i, row in enumerate(rows):
            seen = row[: max(0, stop - first[i])]
            if seen:
                want = whole(name, seen, sources and sources[i])
                assert logits[i].tobytes() == want.tobytes(), (start, stop, i)


@pytest.mark.parametrize("name", DECODERS)
def test_what_stands_behind_the_end_is_of_no_meaning(name: str) -> None:
    """NaN there, and padding's keys and values NaN as well: no bit of the logits changes."""
    step = compiled(name).functions["step"]
    ids = np.arange(2 * 9).reshape(2, 9) % VOCABULARY
    found = []
    for filled in (0.0, np.nan):
        given: dict[str, Any] = {"input_ids": ids, "first": np.array([0, 4])}
        for port in step.inputs:
            if port.is_state:
                given[port.name] = aligned_empty((2, 100, int(port.shape[2])), np.float32)
                given[port.name][...] = filled
        step(dims={"end": 9}, **given)
        for array in given.values():
            if array.ndim == 3:
                array[1, :4] = filled
        found.append(step(dims={"end": 10}, **{**given, "input_ids": ids[:, :1]})["logits"])
    assert found[0].tobytes() == found[1].tobytes()
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("name", YAML)
def test_the_reference_of_each_function_is_that_of_the_model(name: str) -> None:
    """On NumPy, unfused: the step after `encode` against the whole, as far as rounding goes."""
    run = compiled(name, "numpy")
    sources = [[3, 1, 4, 1, 5]] if "encoder" in name else None
    want = Uncached(run, sources)
    memory = encode(run, sources) if sources else {}
    state = State(run.functions["step"], 1, None, memory)
    for piece in ([2, 7, 1], [8], [2, 8]):
        got = state.feed(np.array([piece]))
        assert_close(got, want.feed([piece]), length=24)


@pytest.mark.parametrize("name", YAML)
def test_fused_steps_have_the_weights_of_the_whole(name: str) -> None:
    """Each layer's Q, K and V are one product, as in the whole model, and every weight is one."""
    made, passes = model(name), parse_pipeline(DEFAULT_PIPELINE)
    step, _ = run_pipeline(made.functions["step"], passes)
    ops = [node.op for node in step.nodes]
    cross = 2 * ("encoder" in name)
    assert ops.count("attention") == 2 + cross
    assert ops.count("append_kv") + ops.count("rotary_append_kv") == 2
    assert ops.count("softmax") == 2 * (name == "experts")  # that of their router
    manifest = compiled(name).manifest  # type: ignore[attr-defined]
    of_main = {w["name"] for w in manifest["weights"]}
    shapes = [w["shape"] for w in manifest["functions"]["step"]["weights"]]
    names = [w["name"] for w in manifest["functions"]["step"]["weights"]]
    own = [shape for name, shape in zip(names, shapes, strict=True) if name not in of_main]
    assert own in ([], [[1, 24]])  # the row of the first token type
    small = NumpyExecutable(step, made.weights)
    assert {p.name for p in small.inputs} >= {"input_ids", "first", "layers.0.k", "layers.1.v"}


_SMALL = "layers: 1\nwidth: 8\nvocabulary: 9\n"
_DECODER = _SMALL + "kind: decoder\nhead: lm\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_SMALL + "head: lm\n", "an encoder's tokens depend on those behind them"),
        ("kind: decoder\nlayers: 1\nwidth: 8\n", "it has no vocabulary"),
        (_SMALL + "kind: decoder\n", "it has no `head: lm`"),
        (_DECODER + "mask: padding\n", "its mask lets tokens see later ones"),
        (
            _DECODER + "mask: [{kind: window, left: 3, right: 1}]\n",
            "its mask lets tokens see later ones",
        ),
        (
            _DECODER + "positions: {kind: learned, max: 20, padding_id: 1}\n",
            "its positions skip padding_id, wherever it stands",
        ),
        (
            "inputs: {x: 'f32[2]'}\nnodes: {y: relu(x)}\noutputs: {y: y}\n",
            "its file lists nodes",
        ),
    ],
)
def test_models_that_do_not_generate_say_why(text: str, reason: str) -> None:
    made = model(text)
    assert not made.functions
    with pytest.raises(TfgraphError) as error:
        tfgraph.compile(made, "numpy").generate([1])
    assert error.value.message == f"model does not generate: {reason}"


def test_a_target_of_main_alone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("cpu", "cuda"):
        out = tmp_path / target
        tfgraph.build(model(_DECODER), target, out, check=False, prove=False)
        assert "no_generation" not in read_manifest(out)
    monkeypatch.setattr(CpuBackend, "has_functions", False)
    tfgraph.build(model(_DECODER), "cpu", tmp_path / "main", check=False, prove=False)
    assert read_manifest(tmp_path / "main")["no_generation"] == "target 'cpu' takes `main` alone"


LONG = """if True:
    import json
    import numpy as np
    from helpers.generating import compiled
    from helpers.processes import resident
    from tfgraph.runtime.state import State
    step, ids = compiled("none").functions["step"], np.zeros((8, 1), np.int64)

    def generate():
        state = State(step, 8)
        for _ in range(200):
            state.feed(ids)
        for _ in range(400):
            state.truncate(199)
            state.feed(ids)

    for _ in range(2):
        generate()
    grown, before = [], resident()
    for _ in range(8):
        generate()
        grown.append(resident() - before)
    print(json.dumps(grown))"""


def test_memory_of_a_long_generation_is_that_of_its_state() -> None:
    """Neither the arrays that a state grew out of nor those of its calls stay: the former take two
    MB a generation, a copy of the caches at each call 300."""
    grown = json.loads(python(LONG, timeout=600))
    assert max(grown) < 6 << 20, grown  # what malloc keeps free moves by four
