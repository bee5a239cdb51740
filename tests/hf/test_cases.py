"""Checkpoints of the BERT family against what transformers computes from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.checkpoints import CASES, NAMES, NDArray, import_model, reference
from helpers.tolerance import TRANSFORMERS, assert_within

import tfgraph


def check(got: dict[str, NDArray], want: dict[str, NDArray], mask: NDArray) -> None:
    """All outputs are near enough, at real positions where the output has positions."""
    for name, expected in want.items():
        assert got[name].shape == expected.shape
        assert got[name].dtype == expected.dtype
        real = mask if expected.ndim == 3 else np.ones(len(expected), bool)
        assert_within(got[name][real], expected[real], TRANSFORMERS, name)


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_case(tmp_path: Path, case: str, backend: str) -> None:
    model = import_model(CASES / case, tmp_path / "model.yaml", hidden_states=True)
    assert not model.seeded
    executable = tfgraph.compile(model.graph, backend, weights=model.weights)

    inputs = reference(case, "in")
    if "token_type_ids" in {port.name for port in executable.inputs}:
        inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])  # what transformers takes
    mask = inputs["attention_mask"].astype(bool)
    assert not mask.all()
    outputs, hidden = reference(case, "out"), reference(case, "hidden")
    assert {port.name for port in executable.outputs} == {*outputs, *hidden}

    got = executable(**inputs)
    check(got, outputs | hidden, mask)
    ones = np.ones_like(inputs["attention_mask"])
    unmasked = executable(**inputs | {"attention_mask": ones})
    check(unmasked, reference(case, "nomask"), ones.astype(bool))
    # and the test can fail: the mask matters far more than the tolerance
    real = {k: mask if v.ndim == 3 else np.ones(len(v), bool) for k, v in outputs.items()}
    apart = [np.abs(unmasked[k] - v)[real[k]].max() for k, v in outputs.items()]
    assert max(apart) > 100 * TRANSFORMERS


@pytest.mark.parametrize("case", NAMES)
def test_inputs_and_sizes(tmp_path: Path, case: str) -> None:
    model = import_model(CASES / case, tmp_path / "model.yaml")
    types = ["token_type_ids"] if case in ("bert", "bert_mlm", "albert") else []
    assert [i.value.name for i in model.graph.inputs] == ["input_ids", "attention_mask", *types]
    batch, seq = model.graph.symbols
    longest = 38 if case == "roberta" else 40  # there, two rows stand before the first position
    assert (batch.name, batch.low, batch.high) == ("batch", 1, 256)
    assert (seq.name, seq.low, seq.high) == ("seq", 1, longest)
