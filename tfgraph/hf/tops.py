"""What stands above the stack in most architectures: classifiers of tokens and sequences, spans.

May import: architecture, config.
"""

from __future__ import annotations

from dataclasses import replace

from tfgraph.hf.architecture import Top, Values, linear
from tfgraph.hf.config import Config

TOKENS = Top(
    head={"kind": "token_classifier"}, parts={"classifier.out": linear("classifier", "score")}
)
SPAN = Top(
    head={"kind": "span"},
    parts={"classifier.out": linear("qa_outputs")},
    prefixes=("transformer.",),
)


def last_token(config: Config, values: Values) -> Values:
    """The last token that is not padding, told by its id: that the mask keeps, where it has none.
    (Transformers then takes one sequence at a time, and its last token.)"""
    padding = config.get("pad_token_id")
    return {
        "pooler.kind": "last",
        "pooler.padding_id": None if padding is None else config.number("pad_token_id", 0, "id"),
    }


SCORE = Top(
    head={"kind": "classifier"}, parts={"classifier.out": linear("score")}, also=(last_token,)
)


def _shifted(config: Config, values: Values) -> Values:
    """The decoder reads what the encoder reads, behind the start token."""
    return {"decoder_start": config.number("decoder_start_token_id", None, "id")}


def _last_end(config: Config, values: Values) -> Values:
    """The decoder's state at the last end token of the source."""
    return {
        "pooler.kind": "last",
        "pooler.token": config.number("eos_token_id", None, "id"),
    }


def encoder_tops(name: str) -> dict[str, Top]:
    """The classes of an encoder that all have alike."""
    return {f"{name}ForTokenClassification": TOKENS, f"{name}ForQuestionAnswering": SPAN}


def decoder_tops(name: str) -> dict[str, Top]:
    """The classes of a decoder besides the language model."""
    return {f"{name}ForSequenceClassification": SCORE, **encoder_tops(name)}


def source_tops(name: str) -> dict[str, Top]:
    """The classes of an encoder-decoder whose decoder reads the source too."""
    return {
        f"{name}ForSequenceClassification": Top(
            head={"kind": "classifier", "activation": "tanh"},
            parts={
                "classifier.dense": linear("classification_head.dense"),
                "classifier.out": linear("classification_head.out_proj"),
            },
            also=(_shifted, _last_end),
        ),
        f"{name}ForQuestionAnswering": replace(SPAN, also=(_shifted,)),
    }
