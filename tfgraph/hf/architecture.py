"""What one knows of an architecture to import its checkpoints, and the registry of all of them.

May import: config, errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tfgraph.errors import TfgraphError

LANGUAGE = ("lm", "mlm")
"""The heads with logits of the vocabulary."""
Values = dict[str, Any]
"""Keys of the model file, dots for nesting, and their values."""

if TYPE_CHECKING:
    from tfgraph.hf.config import Config, Key

    Also = Callable[[Config, Values], Values]
    """Further values that follow from several keys of config.json, and those read so far."""


@dataclass(frozen=True)
class Part:
    """A block of the graph and the block of the checkpoint that holds its parameters.

    `names` are the checkpoint's; where there are several, the first that the file has counts.
    `layout` says which of the stored numbers are the block's, see `Layout`; an `optional` part is
    left out where the file has not got it, and so is a bias.
    """

    kind: Literal["linear", "norm", "table", "vector"]
    names: tuple[str, ...]
    layout: Layout | None = None
    optional: bool = False

    def rules(
        self, ours: str, prefix: str, stored: Collection[str], values: Mapping[str, Any]
    ) -> dict[str, str]:
        """The rules for the block's parameters, for `weights: names` of a model file."""

        def first(*candidates: str) -> str | None:
            """The first name in the file; `{i}` stands for the number of any layer."""
            return next((c for c in candidates if _is_stored(c, stored)), None)

        names = [prefix + name for name in self.names]
        layout = self.layout or Layout()
        if self.kind == "vector":
            name = first(*names) or names[0]
            return {} if self._absent(name, stored) else {ours: layout.take(name, values)}
        weight = first(*(f"{n}.weight" for n in names)) or f"{names[0]}.weight"
        if self.kind == "norm":  # gamma and beta: the spelling of files that came from TensorFlow
            weight = first(weight, *(f"{n}.gamma" for n in names)) or weight
        if self._absent(weight, stored):
            return {}
        if self.kind == "table":
            return {ours: layout.take(weight, values)}
        bias = first(*(f"{n}.bias" for n in names), *(f"{n}.beta" for n in names))
        scaled = self.kind == "norm"
        taken = layout.take(weight, values) if scaled else layout.matrix(weight, values)
        rules = {f"{ours}.{'scale' if scaled else 'weight'}": taken}
        return rules if bias is None else rules | {f"{ours}.bias": layout.take(bias, values)}

    def _absent(self, name: str, stored: Collection[str]) -> bool:
        return self.optional and not _is_stored(name, stored)


@dataclass(frozen=True)
class Layout:
    """Which part of a stored tensor is meant, and how it lies.

    transposed: stored [in, out], not PyTorch's [out, in] (GPT-2).
    parts: part i of n equal ones along the outputs.
    slots: (groups, start, stop, of) along the outputs; see `parse_rule` of tfgraph.weights.
    steps: further functions of a rule, the innermost first, such as "flat({})"; `weight_steps` of
        the weight of a linear layer alone, such as "matrix({}, 1)" of a convolution's.
    """

    transposed: bool = False
    parts: tuple[int, int] | None = None
    slots: Callable[[Mapping[str, Any]], tuple[int, int, int, int]] | None = None
    steps: tuple[str, ...] = ()
    weight_steps: tuple[str, ...] = ()

    def take(self, name: str, values: Mapping[str, Any]) -> str:
        """The rule for a vector or table of that name, with a number for each output."""
        rule = name
        for step in self.steps:
            rule = step.format(rule)
        if self.slots is not None:
            rule = f"slots({rule}, {', '.join(map(str, self.slots(values)))})"
        if self.parts is not None:
            rule = f"part({rule}, {self.parts[0]}, {self.parts[1]})"
        return rule

    def matrix(self, name: str, values: Mapping[str, Any]) -> str:
        """The rule for a weight [in, out]."""
        own = replace(self, parts=None, steps=(*self.steps, *self.weight_steps))
        whole = own.take(name, values)
        rule = whole if self.transposed else f"transpose({whole})"
        return f"part({rule}, {self.parts[0]}, {self.parts[1]})" if self.parts else rule


def _is_stored(name: str, stored: Collection[str]) -> bool:
    """Whether the file has a tensor of that name, in the first or second layer, first expert."""
    name = name.replace("{e}", "0")
    return any(name.replace("{i}", i) in stored for i in ("0", "1"))


def linear(*names: str, optional: bool = False, **layout: Any) -> Part:
    """`weight` [out, in] and `bias` [out], for a block with `weight` [in, out] and `bias`; keywords
    are those of Layout."""
    return Part("linear", names, Layout(**layout) if layout else None, optional)


def norm(*names: str, optional: bool = False, **layout: Any) -> Part:
    """`weight` and `bias` (or `gamma` and `beta`), for a block with `scale` and `bias`."""
    return Part("norm", names, Layout(**layout) if layout else None, optional)


def table(*names: str, optional: bool = False) -> Part:
    """`weight` [rows, width] of an embedding."""
    return Part("table", names, None, optional)


def vector(*names: str, optional: bool = False, **layout: Any) -> Part:
    """A tensor taken as it is, under its whole name."""
    return Part("vector", names, Layout(**layout) if layout else None, optional)


def grouped(name: str, which: str) -> Part:
    """Q, K or V of a linear layer that has for each key/value head its queries, then its key, then
    its value: of three each where all heads have their own."""

    def slots(values: Mapping[str, Any]) -> tuple[int, int, int, int]:
        heads = int(values["heads"])
        groups = int(values.get("kv_heads") or heads)
        each = heads // groups
        first, last = {"q": (0, each), "k": (each, each + 1), "v": (each + 1, each + 2)}[which]
        return groups, first, last, each + 2

    return linear(name, slots=slots)


def stacked(name: str, which: str) -> Part:
    """Q, K or V of a linear layer that has all queries, then all keys, then all values."""

    def slots(values: Mapping[str, Any]) -> tuple[int, int, int, int]:
        heads = int(values["heads"])
        others = int(values.get("kv_heads") or heads)
        ends = [0, heads, heads + others, heads + 2 * others]
        at = "qkv".index(which)
        return 1, ends[at], ends[at + 1], ends[3]

    return linear(name, slots=slots)


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Top:
    """What a class of the architecture has above the stack.

    head: the model file's `head`; None for the bare stack, whose pooler may be absent.
    parts: its blocks, by names that no prefix stands before.
    prefixes: what may stand before the stack's names in its files, besides the usual prefix.
    pooler: whether its outputs come from the pooler.
    encoder_alone: of an encoder-decoder, this class has the encoder only.
    decoder: the linear layer to the vocabulary, whose weight is stored only if it is not tied.
    ignore: patterns of tensors that this class doesn't use, if the file has them.
    also: what else follows from keys of config.json.
    """

    head: Mapping[str, Any] | None = None
    parts: Mapping[str, Part] = field(default_factory=_nothing)
    prefixes: tuple[str, ...] = ()
    pooler: bool = False
    encoder_alone: bool = False
    decoder: str | None = None
    ignore: tuple[str, ...] = ()
    also: tuple[Also, ...] = ()


@dataclass(frozen=True)
class Architecture:
    """How checkpoints of one `model_type` become model files.

    title, paper: for the comment at the top of the file.
    prefix: what stands before the names of `parts` in files of classes with a head.
    keys: what is read from config.json. also: what follows from several of its keys.
    needs: keys of config.json with the values that are supported; absent keys are fine.
    fixed: keys of the model file that all its models have.
    parts: the blocks of the stack; `{i}` is the number of a layer, `{e}` of an expert.
    pooler: its linear layer. tops: what stands above, by class name; the first one is the default.
    tied: whether heads are tied where config.json does not say.
    tables: of both stacks, by our names: those that may differ from the tokens' table they share.
    ignore: patterns of tensors that are no weights: buffers, and copies of tied ones.
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
    also: tuple[Also, ...] = ()
    pooler: Part | None = None
    tied: bool = True
    tables: Mapping[str, str] = field(default_factory=_nothing)
    ignore: tuple[str, ...] = ()


def encoder_alone(architecture: Architecture) -> Architecture:
    """The encoder of an encoder-decoder, with the names of a model of one stack."""

    def own(given: Mapping[str, Any]) -> dict[str, Any]:
        """Without what is the decoder's; what is the encoder's, and then without that word."""
        encoder = {k.removeprefix("encoder."): v for k, v in given.items() if k[:8] == "encoder."}
        return {k: v for k, v in given.items() if k[2:8] != "coder."} | encoder

    keys = own({key.ours: key for key in architecture.keys})
    return replace(
        architecture,
        keys=tuple(replace(key, ours=ours) for ours, key in keys.items()),
        needs={k: v for k, v in architecture.needs.items() if k != "is_encoder_decoder"},
        fixed=own(architecture.fixed) | {"kind": "encoder"},
        parts=own(architecture.parts),
        tables={},
    )


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
