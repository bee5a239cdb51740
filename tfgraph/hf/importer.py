"""A checkpoint folder as the text of a model file. May import: the rest of hf, weights, errors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.hf.architecture import Architecture, Top, architectures
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
    for key, supported in architecture.needs.items():
        config.need(key, supported)
    values: dict[str, Any] = dict(architecture.fixed)
    values |= {key.ours: config.read(key) for key in architecture.keys}
    checkpoint = Checkpoint(_weights(folder))

    weights = _Weights(architecture, top, checkpoint)
    tied = config.data.get("tie_word_embeddings", True) is not False
    values |= weights.head(config, tied)
    longest = _longest(values, config)
    names = weights.names(tied)
    weights.check(names, cast("int", values["layers"]))
    text = text_keys(config, values, lambda path: _path(path, file))
    model = render(
        comment=f"{architecture.title} ({architecture.paper}), imported by tfgraph from the "
        f"checkpoint '{folder.resolve().name}', a {class_name}.",
        name=_name(folder, architecture),
        values=values,
        symbols={
            "batch": (1, _MAX_BATCH, _EXAMPLE_BATCH),
            "seq": (1, longest, min(_EXAMPLE_LENGTH, longest)),
        },
        sources={key.ours: key.theirs for key in architecture.keys},
        file=_path(checkpoint.path, file),
        names=names,
        ignore=weights.ignore(names, tied),
    )
    return model + text


@dataclass(frozen=True)
class _Weights:
    """Where a model's weights stand in a checkpoint."""

    architecture: Architecture
    top: Top
    checkpoint: Checkpoint

    @property
    def prefix(self) -> str:
        """What stands before the stack's names in this file."""
        anchor = next(part for part in self.architecture.parts.values() if part.kind == "table")
        name = f"{anchor.names[0]}.weight"
        for prefix in (self.architecture.prefix, ""):
            if prefix + name in self.checkpoint.stored:
                return prefix
        raise TfgraphError(
            f"{self.checkpoint.path.name} has no tensor '{name}', with or without "
            f"'{self.architecture.prefix}' before it",
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
        values: dict[str, Any] = {"pooler": True} if self.pooled else {}
        if self.top.head is not None:
            head = dict(self.top.head)
            if head["kind"] == "classifier":
                head["labels"] = config.labels()
            else:
                head["tied"] = tied
            values |= {f"head.{key}": value for key, value in head.items()}
        return values

    def names(self, tied: bool) -> dict[str, str]:
        """The rules: from parameters to tensors."""
        stored, prefix = self.checkpoint.stored, self.prefix
        rules: dict[str, str] = {}
        for ours, part in self.architecture.parts.items():
            rules |= part.rules(ours, prefix, stored)
        if self.pooled and self.architecture.pooler is not None:
            rules |= self.architecture.pooler.rules("pooler.dense", prefix, stored)
        for ours, part in self.top.parts.items():
            rules |= part.rules(ours, "", stored)
        if self.top.decoder is not None and not tied:
            rules["lm_head.weight"] = f"transpose({self.top.decoder}.weight)"
        return rules

    def check(self, names: dict[str, str], layers: int) -> None:
        """Raise one TfgraphError that names every tensor which is not there."""
        # No file has more layers than tensors: a number beyond that is not counted up to.
        wanted = _tensors(names, min(layers, len(self.checkpoint.stored) + 1))
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

    def ignore(self, names: dict[str, str], tied: bool) -> list[str]:
        """Patterns of the tensors in this file that the model has no use for."""
        patterns = [*_BUFFERS, *self.top.ignore]
        if self.architecture.pooler is not None and not self.pooled:
            patterns.append(f"{self.prefix}{self.architecture.pooler.names[0]}.*")
        if self.top.decoder is not None and tied:  # a copy of the tokens' table
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


def _tensors(names: dict[str, str], layers: int) -> list[str]:
    """The tensors that rules name, in all layers."""
    found: list[str] = []
    for rule in names.values():
        name = parse_rule(rule).name
        several = range(layers if "{i}" in name else 1)
        found += [name.replace("{i}", str(i)) for i in several]
    return found


def _longest(values: dict[str, Any], config: Config) -> int:
    """The longest sequence that the table of positions allows."""
    padding = values.get("positions.padding_id")
    longest = int(values["positions.max"]) - (0 if padding is None else int(padding) + 1)
    if longest < 1:
        raise config.error("max_position_embeddings", "leaves no row for a position")
    return longest


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
