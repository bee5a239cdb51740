"""docs/model.md lists every key of a model file, with the defaults and ranges of the schema."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from tfgraph.errors import TfgraphError
from tfgraph.model import read_model
from tfgraph.model.schema import (
    Attention,
    Embedding,
    Encoder,
    Experts,
    File,
    FreeForm,
    Generation,
    Head,
    HighLevel,
    Local,
    MaskPart,
    Norm,
    Pooler,
    Positions,
    Scaling,
    Stem,
    Strict,
    Symbol,
)

PAGE = (Path(__file__).parent.parent / "docs" / "model.md").read_text("utf-8")
SECTIONS = {
    "The high-level form": HighLevel,
    "norm": Norm,
    "positions": Positions,
    "scaling": Scaling,
    "embedding": Embedding,
    "attention": Attention,
    "local": Local,
    "encoder": Encoder,
    "stem": Stem,
    "experts": Experts,
    "mask": MaskPart,
    "pooler": Pooler,
    "head": Head,
    "symbols": Symbol,
    "weights": File,
    "text": Generation,
    "The free form": FreeForm,
}


def text_of(section: str) -> str:
    (found,) = re.findall(rf"(?ms)^##+ {section}\n(.*?)(?=^##|\Z)", PAGE)
    return str(found)


def rows(section: str) -> dict[str, tuple[str, str, str]]:
    """The tables of a section: meaning, default and values by key."""
    cells = re.findall(r"(?m)^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", text_of(section))
    assert len({key for key, *_ in cells}) == len(cells)
    return {key: (meaning, default, values) for key, meaning, default, values in cells}


def values(schema: dict[str, Any]) -> str:
    """What a key may hold, as the page words it."""
    if "anyOf" in schema:
        parts = [values(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return "number" if parts == ["number", "text"] else ", ".join(dict.fromkeys(parts))
    if "$ref" in schema or "additionalProperties" in schema:
        return "mapping"
    if "enum" in schema:
        return ", ".join(f"`{name}`" for name in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "pattern" in schema:
        return "`sm_80`, ..."
    kind = schema["type"]
    if kind == "integer":
        return f"{schema['minimum']}..{schema.get('maximum', '2^63 - 1')}"
    names = {"boolean": "`true`, `false`", "string": "text", "array": "list", "number": "number"}
    return names[kind]


def default(section: type[Strict], key: str) -> str | None:
    """The default as the page writes it; None where the page explains what is computed."""
    field = section.model_fields[key]
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, Strict | list):
        return None  # in words, or that of each key
    if value in ({}, []):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_listed_as_the_schema_has_it(section: str) -> None:
    model = SECTIONS[section]
    properties = model.model_json_schema(mode="validation")["properties"]
    listed = rows(section)
    assert list(listed) == list(properties)
    for key, schema in properties.items():
        meaning, shown, allowed = listed[key]
        assert meaning.strip()
        assert allowed == values(schema), key
        assert shown == default(model, key) or (default(model, key) is None and shown), key


@pytest.mark.parametrize("code", re.findall(r"(?s)```yaml\n(.*?)```", PAGE))
def test_examples_read(code: str, tmp_path: Path) -> None:
    if "nodes:" not in code:
        code += "".join(f"{key}: 8\n" for key in ("layers", "width") if f"{key}:" not in code)
    path = tmp_path / "model.yaml"
    path.write_text(code)
    if "file: model.safetensors" in code:  # right but for the file, which is not there
        with pytest.raises(TfgraphError) as caught:
            read_model(path)
        assert "cannot read weights: No such file" in caught.value.message
        assert not caught.value.related
    else:
        read_model(path)


EVERYTHING = (
    "vocabulary: 9\npooler: true\nfinal_norm: true\ngated: true\nhead: {kind: mlm}\n"
    "positions: {kind: learned, max: 8}\nembedding: {size: 4, token_types: 2, norm: true}\n",
    "head: {kind: classifier, labels: 2, activation: relu}\n",
    "convolution: gelu\nhead: {kind: span, transform: true}\n",
    "vocabulary: 9\nhead: {kind: lm, tied: false}\nkind: encoder-decoder\n",
    "head: pointer\npositions: {kind: relative}\nexperts: {count: 2, shared: 4}\ngated: true\n"
    "norm: {placement: sandwich}\nattention: {qk_norm: rms_norm}\n",
    "stem: {kind: image, channels: 3, height: 4, patch: 2}\n",
    "kind: encoder-decoder\nvocabulary: 9\nstem: {kind: audio, channels: 3}\n",
    "vocabulary: 9\nembedding: {size: 4, project_back: true}\npooler: {kind: end, projection: 3}\n"
    "positions: {kind: disentangled, shared: false, norm: true}\n",
)


def test_the_parameters_listed_are_those_of_models(tmp_path: Path) -> None:
    listed = set(re.findall(r"(?m)^\| `([\w.{}]+\.[\w.{}]+)` \| `", text_of("weights")))
    found: set[str] = set()
    for text in EVERYTHING:
        path = tmp_path / "model.yaml"
        path.write_text("layers: 2\nwidth: 8\n" + text)
        found |= {param.value.name for param in read_model(path).graph.params}
    short = {
        re.sub(r"^(encoder|decoder)\.|(?<=layers\.)\d+|(?<=experts\.)\d+", _shorten, name)
        for name in found
    }
    main = {n for n in short if not n.endswith(".bias")} | {"lm_head.bias"}
    assert listed == main
    # As the page says, other biases stand beside a weight or a scale.
    beside = {n.rpartition(".")[0] for n in main}
    assert {n.removesuffix(".bias") for n in short if n.endswith(".bias")} <= beside


OTHER = (  # than the defaults, so that no size stands for another
    "kind: encoder-decoder\nvocabulary: 11\nhead_size: 5\nattention: {value_size: 3}\n",
    "kind: decoder\nvocabulary: 11\nkv_heads: 2\nattention: {value_size: 3}\nexperts: {count: 7}\n",
    "kind: decoder\ngated: true\nexperts: {count: 7, shared: 10}\n",
)


@pytest.mark.parametrize("text", OTHER)
def test_the_shapes_listed_are_those_of_models(text: str, tmp_path: Path) -> None:
    listed = dict(re.findall(r"(?m)^\| `([\w.{}]+\.[\w.{}]+)` \| `(.+)` \|$", text_of("weights")))
    path = tmp_path / "model.yaml"
    path.write_text("layers: 2\nwidth: 24\nheads: 4\nffn: 13\n" + text)
    given = {"vocabulary": 11, "width": 24, "heads": 4, "ffn": 13, "experts": 7, "shared": 10}
    given |= {"size": 24, "head_size": 5 if "head_size" in text else 6, "labels": 2}
    given |= {"kv_heads": 2 if "kv_heads" in text else 4}
    given |= {"value_size": 3 if "value_size" in text else given["head_size"]}
    seen = 0
    for param in read_model(path).graph.params:
        name = re.sub(
            r"^(encoder|decoder)\.|(?<=layers\.)\d+|(?<=experts\.)\d+", _shorten, param.value.name
        )
        if name in listed:
            sizes = [
                math.prod(given[word] for word in size.split(" * "))
                for size in listed[name].strip("[]").split(", ")
            ]
            assert sizes == [int(size) for size in param.value.type.shape], name
            seen += 1
    assert seen >= 18


def _shorten(found: re.Match[str]) -> str:
    if found[1]:
        return ""
    return "{e}" if found.string[: found.start()].endswith("experts.") else "{i}"
