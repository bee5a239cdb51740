"""Classifiers and the like above recorded stacks: their logits by a line of NumPy each, from the
hidden states that transformers recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.checkpoints import NDArray, copy_case, import_model, reference
from helpers.tolerance import TRANSFORMERS, assert_within

import tfgraph

RNG = np.random.default_rng(6)
LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}}


def weight(*shape: int) -> NDArray:
    return RNG.normal(size=shape).astype(np.float32) / 4


def run(folder: Path, inputs: dict[str, NDArray]) -> dict[str, NDArray]:
    """The outputs on NumPy; token types, where there are such, are zeros."""
    model = import_model(folder, folder / "model.yaml")
    given = {p.value.name: np.zeros_like(inputs["input_ids"]) for p in model.graph.inputs}
    compiled = tfgraph.compile(model.graph, "numpy", weights=model.weights)
    return compiled(**(given | {k: v for k, v in inputs.items() if k in given}))


def copy(case: str, folder: Path, name: str, more: dict[str, NDArray], **config: object) -> Path:
    """The recorded case as another class, whose head has these tensors."""
    config = {"architectures": [name]} | LABELS | config
    heads = ("lm_head.", "predictions.", "head.", "decoder.") if case != "bert_mlm" else ()
    return copy_case(
        case, folder, config=config, rename=lambda n: None if n.startswith(heads) else n, add=more
    )


@pytest.mark.parametrize(("padding", "rows"), [(0, (8, 5)), (86, (8, 8)), (None, (8, 5))])
def test_the_last_token_that_is_no_padding(
    tmp_path: Path, padding: int | None, rows: tuple[int, int]
) -> None:
    """By its id, wherever it stands, and by the mask where there is none."""
    score = weight(3, 32)
    name = "GPT2ForSequenceClassification"
    folder = copy("gpt2", tmp_path / "c", name, {"score.weight": score}, pad_token_id=padding)
    inputs = reference("gpt2", "in")
    if padding == 86:
        inputs["attention_mask"] = np.ones_like(inputs["attention_mask"])
        hidden = None
    else:
        hidden = reference("gpt2", "hidden")["hidden.2"]
    got = run(folder, inputs)["logits"]
    if hidden is None:  # a token classifier has the logits of all
        tokens = copy("gpt2", tmp_path / "t", "GPT2ForTokenClassification", {"score.weight": score})
        want = run(tokens, inputs)["logits"][np.arange(2), rows]
    else:
        want = hidden[np.arange(2), rows] @ score.T
    assert_within(got, want, TRANSFORMERS)


def test_what_stands_behind_the_last_token_is_not_taken(tmp_path: Path) -> None:
    """A row of padding alone gives its first token's, as an argmax over zeros does."""
    score = weight(3, 32)
    folder = copy(
        "llama", tmp_path / "c", "LlamaForSequenceClassification", {"score.weight": score}
    )
    ids = np.array([[5, 0, 7, 0, 0], [0, 0, 0, 0, 0]])
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    states = run(copy("llama", tmp_path / "m", "LlamaModel", {}), inputs)["last_hidden_state"]
    want = states[np.arange(2), (2, 0)] @ score.T
    assert_within(run(folder, inputs)["logits"], want, TRANSFORMERS)


@pytest.mark.parametrize(
    ("case", "name", "last"),
    [("bert", "Bert", 2), ("llama", "Llama", 2), ("gpt2", "GPT2", 2), ("albert", "Albert", 2)],
)
def test_ends_of_a_span(tmp_path: Path, case: str, name: str, last: int) -> None:
    more = {"qa_outputs.weight": weight(2, 32), "qa_outputs.bias": weight(2)}
    folder = copy(case, tmp_path / "c", f"{name}ForQuestionAnswering", more)
    inputs = reference(case, "in")
    got, real = run(folder, inputs), inputs["attention_mask"] == 1
    hidden = reference(case, "hidden")[f"hidden.{last}"]
    both = hidden @ more["qa_outputs.weight"].T + more["qa_outputs.bias"]
    assert list(got) == ["start_logits", "end_logits"]
    for i, logits in enumerate(got.values()):
        assert_within(logits[real], both[..., i][real], TRANSFORMERS)


def test_a_span_below_another_prefix(tmp_path: Path) -> None:
    """Llama's files for questions call the stack `transformer`, not `model`."""
    more = {"qa_outputs.weight": weight(2, 32), "qa_outputs.bias": weight(2)}
    folder = copy_case(
        "llama",
        tmp_path / "c",
        config={"architectures": ["LlamaForQuestionAnswering"]},
        rename=lambda n: n.replace("model.", "transformer.") if "lm_head" not in n else None,
        add=more,
    )
    inputs = reference("llama", "in")
    hidden, real = reference("llama", "hidden")["hidden.2"], inputs["attention_mask"] == 1
    want = hidden @ more["qa_outputs.weight"][0] + more["qa_outputs.bias"][0]
    assert_within(run(folder, inputs)["start_logits"][real], want[real], TRANSFORMERS)


@pytest.mark.parametrize("pooling", ["mean", "cls", "tokens"])
def test_modernbert_classifies_behind_a_transform(tmp_path: Path, pooling: str) -> None:
    more = {
        "head.dense.weight": weight(32, 32), "head.dense.bias": weight(32),
        "head.norm.weight": 1 + weight(32),
        "classifier.weight": weight(3, 32), "classifier.bias": weight(3),
    }  # fmt: skip
    kind = "Token" if pooling == "tokens" else "Sequence"
    name = f"ModernBertFor{kind}Classification"
    config = {"classifier_pooling": pooling, "classifier_activation": "relu"}
    folder = copy("modernbert", tmp_path / "c", name, more, classifier_bias=True, **config)
    inputs = reference("modernbert", "in")
    x, mask = reference("modernbert", "hidden")["hidden.4"], inputs["attention_mask"]
    if pooling == "mean":
        x = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    elif pooling == "cls":
        x = x[:, 0]
    y = np.maximum(x @ more["head.dense.weight"].T + more["head.dense.bias"], 0)
    y = y - y.mean(-1, keepdims=True)
    y *= more["head.norm.weight"] / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5)
    want, got = y @ more["classifier.weight"].T + more["classifier.bias"], run(folder, inputs)
    real = mask == 1 if pooling == "tokens" else slice(None)
    assert_within(got["logits"][real], want[real], TRANSFORMERS)


def test_the_encoder_alone(tmp_path: Path) -> None:
    folder = copy_case(
        "t5",
        tmp_path / "c",
        config={"architectures": ["T5EncoderModel"], "is_encoder_decoder": False},
        rename=lambda n: n if n.startswith(("encoder.", "shared.")) else None,
    )
    inputs = {k: v for k, v in reference("t5", "in").items() if not k.startswith("decoder")}
    got, real = run(folder, inputs)["last_hidden_state"], inputs["attention_mask"] == 1
    want = reference("t5", "hidden")["encoder.hidden.2"]
    assert_within(got[real], want[real], TRANSFORMERS)


def test_a_decoder_that_reads_the_source(tmp_path: Path) -> None:
    """Behind the start token; its state at the last end token of the source counts."""
    more = {
        "classification_head.dense.weight": weight(32, 32),
        "classification_head.dense.bias": weight(32),
        "classification_head.out_proj.weight": weight(3, 32),
        "classification_head.out_proj.bias": weight(3),
    }
    folder = copy_case(
        "t5",
        tmp_path / "c",
        config={"architectures": ["T5ForSequenceClassification"], "decoder_start_token_id": 4}
        | LABELS,
        rename=lambda n: None if n.startswith("lm_head") else f"transformer.{n}",
        add=more,
    )
    ids = np.array([[83, 1, 21, 1, 51], [57, 30, 7, 80, 1]])
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    shifted = np.concatenate([np.full((2, 1), 4), ids[:, :-1]], 1)
    states = run(
        copy_case("t5", tmp_path / "m", config={"architectures": ["T5Model"]}),
        inputs | {"decoder_input_ids": shifted},
    )["last_hidden_state"][np.arange(2), (3, 4)]
    dense, bias, out, last = more.values()
    want = np.tanh(states @ dense.T + bias) @ out.T + last
    assert_within(run(folder, inputs)["logits"], want, TRANSFORMERS)


def test_both_heads_of_pretraining(tmp_path: Path) -> None:
    """The names of the outputs are those of transformers."""
    pair = {"cls.seq_relationship.weight": weight(2, 32), "cls.seq_relationship.bias": weight(2)}
    pooler = {"bert.pooler.dense.weight": weight(32, 32), "bert.pooler.dense.bias": weight(32)}
    folder = copy("bert_mlm", tmp_path / "c", "BertForPreTraining", pair | pooler)
    inputs = reference("bert_mlm", "in")
    got, real = run(folder, inputs), inputs["attention_mask"] == 1
    assert list(got) == ["prediction_logits", "seq_relationship_logits"]
    logits = reference("bert_mlm", "out")["logits"]
    assert_within(got["prediction_logits"][real], logits[real], TRANSFORMERS)
    first = reference("bert_mlm", "hidden")["hidden.2"][:, 0]
    pooled = np.tanh(
        first @ pooler["bert.pooler.dense.weight"].T + pooler["bert.pooler.dense.bias"]
    )
    want = pooled @ pair["cls.seq_relationship.weight"].T + pair["cls.seq_relationship.bias"]
    assert_within(got["seq_relationship_logits"], want, TRANSFORMERS)
    next_sentence = copy("bert_mlm", tmp_path / "n", "BertForNextSentencePrediction", pair | pooler)
    assert_within(run(next_sentence, inputs)["logits"], want, TRANSFORMERS)
