"""What is timed: a model, a task and sizes. May import: NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
ATTENTION = "attention"
"""The one model that is no file: attention of 12 heads of 64, without projections."""

HAVE_NUMPY = frozenset({"bert-base", "minilm", "gpt2"})
"""The models of which there is a NumPy program."""


@dataclass(frozen=True)
class Workload:
    """A model of `examples/` at some sizes.

    `task`: "forward", the whole model at `sizes` of its symbols; "prefill", the next token's logits
    after a prompt of `batch` rows of `seq` tokens; "decode", those after one more token behind it.
    """

    name: str
    model: str
    sizes: Mapping[str, int]
    task: str = "forward"

    @property
    def is_bound_by_memory(self) -> bool:
        """Whether reading the weights takes longer than all products."""
        return self.task == "decode"


def encoder(model: str, batch: int, length: int) -> Workload:
    """The whole model on `batch` sequences."""
    return Workload(f"{model}-{batch}x{length}", model, {"batch": batch, "seq": length})


def prefill(model: str, batch: int, length: int) -> Workload:
    """Prompts of a decoder."""
    name = f"{model}-prefill-{length}" if batch == 1 else f"{model}-prefill-{batch}x{length}"
    return Workload(name, model, {"batch": batch, "seq": length}, "prefill")


def decode(model: str, length: int) -> Workload:
    """A token behind a prompt of that length."""
    return Workload(f"{model}-decode-{length}", model, {"batch": 1, "seq": length}, "decode")


def _listed() -> dict[str, Workload]:
    both = {"batch": 1, "seq": 64, "target": 64}
    workloads = (
        encoder("bert-base", 1, 128),
        encoder("bert-base", 1, 512),
        encoder("bert-base", 8, 128),
        encoder("minilm", 1, 128),
        encoder("minilm", 1, 16),
        prefill("gpt2", 1, 128),
        decode("gpt2", 128),
        Workload("transformer-base-64+64", "transformer-base", both),
        prefill("llama-small", 1, 128),
        decode("llama-small", 128),
        encoder(ATTENTION, 1, 128),
        encoder(ATTENTION, 1, 1024),
    )
    return {w.name: w for w in workloads}


WORKLOADS = _listed()
