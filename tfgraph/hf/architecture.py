"""What one knows of an architecture to import its checkpoints, and the registry of all of them.

May import: errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tfgraph.errors import TfgraphError


@dataclass(frozen=True)
class Part:
    """A block of the graph and the block of the checkpoint that holds its parameters.

    `names` are the checkpoint's; where there are several, the first that the file has counts.
    """

    kind: Literal["linear", "norm", "table", "vector"]
    names: tuple[str, ...]

    def rules(self, ours: str, prefix: str, stored: Collection[str]) -> dict[str, str]:
        """The rules for the block's parameters, for `weights: names` of a model file."""

        def first(*candidates: str) -> str:
            """The first name in the file; `{i}` stands for the number of any layer."""
            spelt = [c for c in candidates if c.replace("{i}", "0") in stored]
            return (spelt or candidates)[0]

        names = [prefix + name for name in self.names]
        weight = first(*(f"{n}.weight" for n in names))
        if self.kind == "vector":
            return {ours: first(*names)}
        if self.kind == "table":
            return {ours: weight}
        bias = first(*(f"{n}.bias" for n in names))
        if self.kind == "linear":  # PyTorch keeps [out, in]
            return {f"{ours}.weight": f"transpose({weight})", f"{ours}.bias": bias}
        # gamma and beta: the spelling of checkpoints that came from TensorFlow
        scale = first(weight, *(f"{n}.gamma" for n in names))
        return {f"{ours}.scale": scale, f"{ours}.bias": first(bias, *(f"{n}.beta" for n in names))}


def linear(*names: str) -> Part:
    """`weight` [out, in] and `bias` [out], for a block with `weight` [in, out] and `bias`."""
    return Part("linear", names)


def norm(*names: str) -> Part:
    """`weight` and `bias` (or `gamma` and `beta`), for a block with `scale` and `bias`."""
    return Part("norm", names)


def table(*names: str) -> Part:
    """`weight` [rows, width] of an embedding."""
    return Part("table", names)


def vector(*names: str) -> Part:
    """A tensor taken as it is, under its whole name."""
    return Part("vector", names)


@dataclass(frozen=True)
class Key:
    """A key of config.json and the key of the model file that it becomes, dots for nesting.

    Without a `default`, config.json must have it.
    """

    theirs: str
    ours: str
    default: int | float | str | None = None
    kind: Literal["size", "id", "number", "activation"] = "size"


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Top:
    """What a class of the architecture has above the stack.

    head: the model file's `head`; None for the bare stack, whose pooler may be absent.
    parts: its blocks, by names that no prefix stands before.
    pooler: whether its outputs come from the pooler.
    decoder: the linear layer to the vocabulary, whose weight is stored only if it is not tied.
    ignore: patterns of tensors that this class doesn't use, if the file has them.
    """

    head: Mapping[str, Any] | None = None
    parts: Mapping[str, Part] = field(default_factory=_nothing)
    pooler: bool = False
    decoder: str | None = None
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True)
class Architecture:
    """How checkpoints of one `model_type` become model files.

    title, paper: for the comment at the top of the file.
    prefix: what stands before the names of `parts` in files of classes with a head.
    keys: what is read from config.json.
    needs: keys of config.json with the values that are supported; absent keys are fine.
    fixed: keys of the model file that all its models have.
    parts: the blocks of the stack; `{i}` is the number of a layer.
    pooler: its linear layer. tops: what stands above, by class name; the first one is the default.
    """

    model_type: str
    title: str
    paper: str
    prefix: str
    keys: tuple[Key, ...]
    parts: Mapping[str, Part]
    tops: Mapping[str, Top]
    needs: Mapping[str, tuple[Any, ...]] = field(default_factory=_nothing)
    fixed: Mapping[str, Any] = field(default_factory=_nothing)
    pooler: Part | None = None


_registry: dict[str, Architecture] = {}


def register_architecture(architecture: Architecture) -> Architecture:
    """Add an architecture. Raises TfgraphError if its `model_type` has another one already."""
    known = _registry.setdefault(architecture.model_type, architecture)
    if known != architecture:
        raise TfgraphError(f"the architecture '{architecture.model_type}' is registered already")
    return architecture


def architectures() -> Mapping[str, Architecture]:
    """All architectures by `model_type`."""
    return _registry
