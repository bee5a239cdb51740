"""The architectures that are known: one entry of a table each, by family.

The reference for an entry is the `modeling_*.py` of its `model_type` in transformers; tests compare
with what that computes, or with a forward pass of its own in tests/hf/forwards.
"""

from tfgraph.hf.architectures.bert import ALBERT, BERT, DISTILBERT, ELECTRA, MPNET, ROBERTA
from tfgraph.hf.architectures.encoders import DEBERTA_V2, MODERNBERT
from tfgraph.hf.architectures.falcon import FALCON, PHI
from tfgraph.hf.architectures.gemma import GEMMA, GEMMA2, GEMMA3
from tfgraph.hf.architectures.gpt import BLOOM, GPT2, GPT_NEOX, GPTJ, OPT
from tfgraph.hf.architectures.images import CLIP_TEXT, VIT
from tfgraph.hf.architectures.llama import (
    COHERE,
    LLAMA,
    MISTRAL,
    MIXTRAL,
    OLMO2,
    PHI3,
    QWEN2,
    QWEN3,
)
from tfgraph.hf.architectures.seq2seq import BART, MARIAN, MT5, T5, WHISPER

__all__ = [
    "ALBERT",
    "BART",
    "BERT",
    "BLOOM",
    "CLIP_TEXT",
    "COHERE",
    "DEBERTA_V2",
    "DISTILBERT",
    "ELECTRA",
    "FALCON",
    "GEMMA",
    "GEMMA2",
    "GEMMA3",
    "GPT2",
    "GPTJ",
    "GPT_NEOX",
    "LLAMA",
    "MARIAN",
    "MISTRAL",
    "MIXTRAL",
    "MODERNBERT",
    "MPNET",
    "MT5",
    "OLMO2",
    "OPT",
    "PHI",
    "PHI3",
    "QWEN2",
    "QWEN3",
    "ROBERTA",
    "T5",
    "VIT",
    "WHISPER",
]
