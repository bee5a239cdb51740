"""Checkpoints against what transformers computes from them, through the importer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.checkpoints import CASES, NAMES, NDArray, import_model, reference
from helpers.tolerance import TRANSFORMERS, assert_within

import tfgraph
from tfgraph.runtime.state import State

if TYPE_CHECKING:
    from tfgraph.backends.base import Executable

DECODERS = tuple(name for name in NAMES if reference(name, "leftpad"))


def check(got: dict[str, NDArray], want: dict[str, NDArray], mask: NDArray | None) -> None:
    """Outputs are near enough, at real positions where they have such."""
    for name, expected in want.items():
        assert got[name].shape == expected.shape, name
        assert got[name].dtype == expected.dtype, name
        real: Any = slice(None)
        if mask is not None and expected.shape[:2] == mask.shape:
            real = mask
        assert_within(got[name][real], expected[real], TRANSFORMERS, name)


def check_all(run: Executable, case: str) -> None:
    """Outputs and hidden states, without a mask, and with padding on the left."""
    inputs = reference(case, "in")
    if any(port.name == "token_type_ids" for port in run.inputs):
        inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])  # what transformers takes
    outputs, hidden = reference(case, "out"), reference(case, "hidden")
    assert {port.name for port in run.outputs} == {*outputs, *hidden}
    given = inputs.get("attention_mask")
    mask = None if given is None else given.astype(bool)
    assert mask is None or not mask.all()
    got = run(**inputs)
    if "decoder_input_ids" in inputs:  # a decoder's states have no padding
        check(got, {k: v for k, v in hidden.items() if k.startswith("encoder")}, mask)
        check(got, outputs | {k: v for k, v in hidden.items() if k.startswith("decoder")}, None)
    else:
        check(got, outputs | hidden, mask)
    if given is not None:
        unmasked = run(**inputs | {"attention_mask": np.ones_like(given)})
        check(unmasked, reference(case, "nomask"), None)
        if case not in DECODERS:  # what a causal mask hides is not seen there
            # the first token is real, and sees the padding: the mask matters far more than that
            apart = max(np.abs(unmasked[k][:, 0] - v[:, 0]).max() for k, v in outputs.items())
            assert apart > 100 * TRANSFORMERS
    if case in DECODERS:
        left = reference(case, "leftpad")
        expected = left.pop("logits")
        real = left["attention_mask"].astype(bool)
        assert not real[:, 0].all()
        assert_within(run(**left)["logits"][real], expected[real], TRANSFORMERS, "leftpad")


@pytest.mark.parametrize("case", NAMES)
def test_case(tmp_path: Path, case: str) -> None:
    model = import_model(CASES / case, tmp_path / "model.yaml", hidden_states=True)
    assert not model.seeded
    for backend in ("numpy", "cpu"):
        check_all(tfgraph.compile(model.graph, backend, weights=model.weights), case)


BERTS = ("bert", "bert_mlm", "roberta", "distilbert", "albert", "mpnet")


@pytest.mark.parametrize("case", BERTS)
def test_inputs_and_sizes(tmp_path: Path, case: str) -> None:
    model = import_model(CASES / case, tmp_path / "model.yaml")
    types = ["token_type_ids"] if case in ("bert", "bert_mlm", "albert") else []
    assert [i.value.name for i in model.graph.inputs] == ["input_ids", "attention_mask", *types]
    batch, seq = model.graph.symbols
    # There, two rows stand before the first position.
    longest = 38 if case in ("roberta", "mpnet") else 40
    assert (batch.name, batch.low, batch.high) == ("batch", 1, 256)
    assert (seq.name, seq.low, seq.high) == ("seq", 1, longest)


@pytest.mark.parametrize("case", [c for c in NAMES if c not in ("opt", *BERTS)])
def test_functions_that_generate(tmp_path: Path, case: str) -> None:
    """Every decoder has a step, and every encoder before one its part."""
    model = import_model(CASES / case, tmp_path / "model.yaml")
    none, two = ("deberta_v2", "modernbert", "vit"), ("t5", "t5_gated", "marian", "whisper")
    expected = [] if case in none else ["step", "encode"] if case in two else ["step"]
    assert list(model.functions) == expected


def test_whisper_steps_behind_sound(tmp_path: Path) -> None:
    """What `encode` makes of sound, and steps of any pieces behind it, have the whole's bits."""
    model = import_model(CASES / "whisper", tmp_path / "model.yaml")
    run = tfgraph.compile(model, "cpu")
    given = reference("whisper", "in")
    sound, ids = given["input_features"], given["decoder_input_ids"]
    state = State(run.functions["step"], 2, None, run.functions["encode"](input_features=sound))
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        logits = state.feed(ids[:, start:stop])
        for row in range(2):
            want = run(input_features=sound[row : row + 1], decoder_input_ids=ids[[row], :stop])
            assert logits[row].tobytes() == want["logits"][0, -1].tobytes()
