"""A checkpoint folder as the text of a model file. May import: the rest of hf, weights, errors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.hf.architecture import (
    LANGUAGE,
    Architecture,
    Top,
    architectures,
    encoder_alone,
)
from tfgraph.hf.config import Config, read_config
from tfgraph.hf.render import render
from tfgraph.hf.text import text_keys
from tfgraph.weights import Checkpoint, parse_rule

# Buffers, not weights: the numbers 0, 1, 2, ... and zeros.
_BUFFERS = ("*position_ids", "*token_type_ids")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_MAX_BATCH, _EXAMPLE_BATCH, _EXAMPLE_LENGTH = 256, 4, 128


def import_checkpoint(folder: Path, file: Path | None = None) -> str:
    """The text of a model file for a folder with config.json and model.safetensors (or shards with
    an index), whose weights stay where they are.

    `file` is where the text will be written: files in its folder, below it, or beside it are
    named by a relative path, so that both can be moved together; else the path is absolute.

    Raises TfgraphError, naming file and key, for what is missing or not supported: the
    architecture, a value in config.json, a pickle instead of safetensors, a tensor that is absent.
    Shapes are checked, and tensors that nothing uses found, when the model file is read.
    """
    config = read_config(folder)
    architecture = _architecture(config)
    class_name, top = _top(config, architecture)
    if top.encoder_alone:
        architecture = encoder_alone(architecture)
    for key, supported in architecture.needs.items():
        config.need(key, supported)
    values, sources = _values(config, architecture, top)
    checkpoint = Checkpoint(_weights(folder))

    weights = _Weights(architecture, top, checkpoint, values)
    names = weights.names()
    shared = names.get("embeddings.tokens", "")
    tables = weights.tables(shared)
    tied = config.data.get("tie_word_embeddings", architecture.tied) is not False
    decoder = weights.decoder(tied, shared, tables)
    values |= weights.head(config, decoder is None)
    if tables:
        values["embedding.shared"] = False
        del names["embeddings.tokens"]
    names |= tables | ({"lm_head.weight": f"transpose({decoder})"} if decoder else {})
    symbols = _symbols(values, config)
    weights.check(names)
    text = text_keys(config, values, lambda path: _path(path, file))
    model = render(
        comment=f"{architecture.title} ({architecture.paper}), imported by tfgraph from the "
        f"checkpoint '{folder.resolve().name}', a {class_name}.",
        name=_name(folder, architecture),
        values=values,
        symbols=symbols,
        sources=sources,
        file=_path(checkpoint.path, file),
        names=names,
        ignore=weights.ignore(names),
        stored=_narrow(checkpoint),
    )
    return model + text


def _values(
    config: Config, architecture: Architecture, top: Top
) -> tuple[dict[str, Any], dict[str, str]]:
    """The keys of the model file, and the key of config.json that each comes from."""
    values: dict[str, Any] = dict(architecture.fixed)
    sources: dict[str, str] = {}
    for key in architecture.keys:
        value = config.read(key)
        if value is not None:
            values[key.ours] = value
            sources[key.ours] = config.spelling(key.theirs)
    for also in architecture.also:
        values |= also(config, values)
    if top.head is None or top.head["kind"] not in LANGUAGE:
        values = {k: v for k, v in values.items() if not k.startswith("head.")}
    for also in top.also:
        values |= also(config, values)
    for name in ("layers", "heads", "ffn"):  # an encoder is told apart only where it differs
        if values.get(f"encoder.{name}") == values.get(name):
            values.pop(f"encoder.{name}", None)
            sources.pop(f"encoder.{name}", None)
    return {k: v for k, v in values.items() if v is not None}, sources


def _narrow(checkpoint: Checkpoint) -> str:
    """A comment for a file whose numbers are narrower than the model's."""
    found = {str(entry.dtype) for entry in checkpoint.stored.values()} & {"f16", "bf16"}
    names = {"f16": "float16", "bf16": "bfloat16"}
    return f" # widened from {' and '.join(names[n] for n in sorted(found))}" if found else ""


@dataclass(frozen=True)
class _Weights:
    """Where a model's weights stand in a checkpoint."""

    architecture: Architecture
    top: Top
    checkpoint: Checkpoint
    values: dict[str, Any]

    @property
    def prefix(self) -> str:
        """What stands before the stack's names in this file."""
        anchor = next(iter(self.architecture.parts.values()))
        end = "" if anchor.kind == "vector" else ".weight"
        for prefix in (self.architecture.prefix, *self.top.prefixes, ""):
            if any(f"{prefix}{name}{end}" in self.checkpoint.stored for name in anchor.names):
                return prefix
        name = f"{anchor.names[0]}{end}"
        either = f", with or without '{self.architecture.prefix}' before it"
        raise TfgraphError(
            f"{self.checkpoint.path.name} has no tensor '{name}'"
            f"{either if self.architecture.prefix else ''}",
            Location(str(self.checkpoint.path)),
            nearest(name, self.checkpoint.stored),
        )

    @property
    def pooled(self) -> bool:
        """Whether there is a pooler. A bare stack may have been saved without it."""
        if not self.top.pooler or self.architecture.pooler is None:
            return False
        weight = f"{self.prefix}{self.architecture.pooler.names[0]}.weight"
        return self.top.head is not None or weight in self.checkpoint.stored

    def head(self, config: Config, tied: bool) -> dict[str, Any]:
        """The keys `pooler` and `head` of the model file."""
        values: dict[str, Any] = {}
        if self.pooled and not any(key.startswith("pooler.") for key in self.values):
            values["pooler"] = True
        if self.top.head is not None:
            head = dict(self.top.head)
            if head["kind"] in ("classifier", "token_classifier"):
                head.setdefault("labels", config.labels())
            elif head["kind"] in LANGUAGE:
                head["tied"] = tied
            if head["kind"] not in LANGUAGE and not self.biased("classifier.out"):
                head["bias"] = False
            values |= {f"head.{key}": value for key, value in head.items()}
        return values

    def biased(self, name: str) -> bool:
        """Whether the file has a bias for a linear layer above the stack."""
        part = self.top.parts.get(name)
        rules = {} if part is None else part.rules(name, "", self.checkpoint.stored, self.values)
        return part is None or f"{name}.bias" in rules

    def names(self) -> dict[str, str]:
        """The rules: from parameters to tensors, but for the head's own matrix."""
        stored, prefix = self.checkpoint.stored, self.prefix
        rules: dict[str, str] = {}
        for ours, part in self.architecture.parts.items():
            rules |= part.rules(ours, prefix, stored, self.values)
        if self.pooled and self.architecture.pooler is not None:
            pooler = self.architecture.pooler
            rules |= pooler.rules("pooler.dense", prefix, stored, self.values)
        for ours, part in self.top.parts.items():
            rules |= part.rules(ours, "", stored, self.values)
        return rules

    def tables(self, shared: str) -> dict[str, str]:
        """Both stacks' own tables of tokens, unless all are the `shared` one."""
        stored = self.checkpoint.stored
        theirs = {ours: self.prefix + name for ours, name in self.architecture.tables.items()}
        found = {ours: name if name in stored else shared for ours, name in theirs.items()}
        return {} if all(self.same(name, shared) for name in found.values()) else found

    def decoder(self, tied: bool, shared: str, tables: Mapping[str, str]) -> str | None:
        """The head's matrix where it is not the tokens' table. A file may have one that differs
        though its config.json calls them tied: then it counts, as in transformers."""
        if self.top.decoder is None:
            return None
        own = f"{self.top.decoder}.weight"
        if not tied or (own in self.checkpoint.stored and not self.same(own, shared)):
            return own
        read = tables.get("decoder.embeddings.tokens", shared)
        return None if self.same(read, shared) else shared

    def same(self, first: str, second: str) -> bool:
        """Whether two tables hold the same bytes."""
        if first == second:
            return True
        stored = self.checkpoint.stored
        if not {first, second} <= stored.keys():
            return False
        a, b = stored[first], stored[second]
        if (a.dtype, a.shape) != (b.dtype, b.shape) or len(a.shape) != 2:
            return False
        rows = zip(self.checkpoint[first], self.checkpoint[second], strict=True)
        return all(x.tobytes() == y.tobytes() for x, y in rows)

    def check(self, names: dict[str, str]) -> None:
        """Raise one TfgraphError that names every tensor which is not there."""
        wanted = [name for ours, rule in names.items() for name in self.tensors(ours, rule)]
        missing = [name for name in wanted if name not in self.checkpoint.stored]
        left = self.checkpoint.stored.keys() - set(wanted)
        path = self.checkpoint.path
        errors = [
            TfgraphError(
                f"{path.name} has no tensor '{name}'",
                Location(str(path)),
                nearest(name, sorted(left)),
            )
            for name in missing[:20]
        ]
        if errors:
            first, *rest = errors
            raise TfgraphError(first.message, first.location, first.hint, rest)

    def tensors(self, ours: str, rule: str) -> list[str]:
        """The tensors that a rule names, in all layers and experts."""
        # No file has more layers than tensors: a number beyond that is not counted up to.
        most, name = len(self.checkpoint.stored) + 1, str(parse_rule(rule).name)
        layers = int(self.values["layers"])
        if ours.startswith("encoder."):
            layers = int(self.values.get("encoder.layers", layers))
        without = self.values.get("norm.first") is False and ".attention_norm." in ours
        found: list[str] = [name]
        for hole, first, count in (
            ("{i}", int(without), layers),
            ("{e}", 0, int(self.values.get("experts.count", 1))),
        ):
            numbers = range(first, min(count, most))
            if hole in name:
                found = [n.replace(hole, str(i)) for i in numbers for n in found]
        return found

    def ignore(self, names: dict[str, str]) -> list[str]:
        """Patterns of the tensors in this file that the model has no use for."""
        patterns = [*_BUFFERS, *self.architecture.ignore, *self.top.ignore]
        if self.architecture.pooler is not None and not self.pooled:
            patterns.append(f"{self.prefix}{self.architecture.pooler.names[0]}.*")
        if self.architecture.tables and "embeddings.tokens" not in names:  # read by neither stack
            patterns.append(
                f"{self.prefix}{self.architecture.parts['embeddings.tokens'].names[0]}.weight"
            )
        if self.top.decoder is not None:  # where it is a copy of the tokens' table
            patterns.append(f"{self.top.decoder}.weight")
        used = {parse_rule(rule).name for rule in names.values()}
        left = [name for name in self.checkpoint.stored if name not in used]
        return [p for p in patterns if any(fnmatchcase(name, p) for name in left)]


def _architecture(config: Config) -> Architecture:
    known = architectures()
    model_type: Any = config.data.get("model_type")
    if model_type is None:
        raise TfgraphError("model_type is missing", Location(str(config.path)))
    if not isinstance(model_type, str) or model_type not in known:
        raise config.error(
            "model_type",
            f"'{model_type}' is not supported",
            f"supported: {', '.join(sorted(known))}; a plugin can add others",
        )
    return known[model_type]


def _top(config: Config, architecture: Architecture) -> tuple[str, Top]:
    """The class that was saved; the bare stack where config.json does not say."""
    default = next(iter(architecture.tops))
    classes: Any = config.data.get("architectures") or [default]
    name: Any = classes[0] if isinstance(classes, list) else classes  # pyright: ignore
    if not isinstance(name, str) or name not in architecture.tops:
        raise config.error(
            "architectures",
            f"'{name}' is not supported",
            f"supported for {architecture.model_type}: {', '.join(architecture.tops)}",
        )
    return name, architecture.tops[name]


def _weights(folder: Path) -> Path:
    """The file of weights in a folder."""
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    for name in ("pytorch_model.bin", "pytorch_model.bin.index.json"):
        if (folder / name).is_file():
            return folder / "pytorch_model.bin"  # which Checkpoint refuses, with advice
    raise TfgraphError(
        f"{folder} has no model.safetensors",
        hint="weights are read from model.safetensors, or from shards with "
        "model.safetensors.index.json",
    )


_LENGTHS = "max_position_embeddings|n_positions|max_sequence_length|seq_length"
_DEFAULT_LENGTH = 2048


def _symbols(values: dict[str, Any], config: Config) -> dict[str, tuple[int, int, int]]:
    """The least, the most, and the example of each size."""
    found = {"batch": (1, _MAX_BATCH, _EXAMPLE_BATCH)}
    if values.get("stem.kind") == "image":
        return found
    longest = _longest(values, config, "positions")
    if values["kind"] == "encoder-decoder" and "decoder_start" not in values:
        own = "encoder.positions" if "encoder.positions.kind" in values else "positions"
        first = _longest(values, config, own)
        found["seq"] = (1, first, min(_EXAMPLE_LENGTH, first))
        found["target"] = (1, longest, min(_EXAMPLE_LENGTH, longest))
    else:
        found["seq"] = (1, longest, min(_EXAMPLE_LENGTH, longest))
    return found


def _longest(values: dict[str, Any], config: Config, path: str) -> int:
    """The longest sequence that the table of positions allows; else what the model was made for."""
    most = values.get(f"{path}.max")
    if most is None:
        return int(config.number(_LENGTHS, _DEFAULT_LENGTH, "size"))
    padding = values.get(f"{path}.padding_id")
    before = values.get(f"{path}.offset", 0) if padding is None else int(padding) + 1
    if int(most) - int(before) < 1:
        raise config.error("max_position_embeddings", "leaves no row for a position")
    return int(most) - int(before)


def _name(folder: Path, architecture: Architecture) -> str:
    """The folder's name, as a name of letters, digits and _."""
    letters = [c if c.isascii() and c.isalnum() else "_" for c in folder.resolve().name]
    name = "".join(letters).strip("_").lower()
    return name if name.isidentifier() else architecture.model_type


def _path(weights: Path, file: Path | None) -> str:
    """The weights, or the tokenizer, as seen from the model file: relative if they lie near."""
    # Folders are resolved, the file itself is not: in a cache it is a link to a nameless blob.
    weights = weights.parent.resolve() / weights.name
    if file is None:
        return str(weights)
    start = file.parent.resolve()
    around = start if start.parent == Path(start.anchor) else start.parent
    if not weights.is_relative_to(around):
        return str(weights)
    return Path(os.path.relpath(weights, start)).as_posix()
