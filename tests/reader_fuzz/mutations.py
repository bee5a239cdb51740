"""Changes of inputs that know what they are of: tokens of text, keys of a tree, fields of ONNX.

Bytes at random hardly get past a parser's first line. A mutator takes the bytes, a generator of
random numbers, and a function that changes bytes; it returns other bytes.
"""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from functools import cache
from typing import TYPE_CHECKING, Any

import onnx as package
from helpers import onnx_mutations
from reader_fuzz import seeds
from reader_fuzz.targets import PARTS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    Bytes = Callable[[bytes], bytes]
    Mutate = Callable[[bytes, random.Random, Bytes], bytes]

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, -1, -2, 64, 5000, 2**31, 2**40, 2**63 - 1, 2**63, 10**40)
SCALARS: tuple[Any, ...] = (
    *NUMBERS, None, True, False, 0.5, 1e-5, -0.0, 1e400, float("nan"), "", "x", "a b", "\0", "é",
    "rsqrt(64)", "1/3", "-1e39", "seq", "2*seq", "min(seq, 4)", "seq//0", "../x", "/dev/null", ".",
    [], {}, [[]], [0, 1], [1] * 40, {"kind": "x"}, "9" * 40,
)  # fmt: skip
WORDS = (
    *("None", "true", "_", "->", "..", "//", "==", "<=", "&", "(", ")", "{", "}", "[", "]", ":"),
    *(",", "=", "+", "-", "*", "/", "%", '"', '"a b"', '%"a b"', "%x", "%0", "#", "\n", "\0", "é"),
    *("0", "1", "2", "-1", "0.5", "1e-05", "1e400", "1e-400", "1/3", "9" * 30, "9" * 1001),
    *("sqrt(2)", "exp(1000)", "log(0)", "rsqrt(0)", "rsqrt(64)", "min(a, b)", "max(seq, 4)"),
    *("graph", "symbol", "constraint", "weights", "return", "seq", "batch", "past", "example"),
    *("f32", "f16", "bf16", "f64", "i64", "i32", "i8", "u8", "bool", "i4", "f32[2]", "f32[]"),
    *("ids(10)", "prefix()", "lengths(seq)", "normal(1)", "ones()", "zeros()", "state()"),
    *("causal()", "causal(offset=past)", "window(3, 0)", "window(None, 2)", "padding(%x)"),
    *("prefix(%x)", "segments(%x, %x)", "dense(%x)", "bias(%x)", "alibi(%x)"),
    *("relative(%x, max_distance=8, bidirectional=true)",),
)
_TOKEN = re.compile(r'%?"(?:[^"\\\n]|\\.)*"|%?[\w.~]+|\s+|//|==|<=|\.\.|.', re.DOTALL)


def text(data: bytes, r: random.Random, raw: Bytes) -> bytes:
    """Tokens left out, doubled, moved, or others in their place; lines of other graphs."""
    if r.random() < 0.1:
        return raw(data)
    words = _TOKEN.findall(data.decode("utf-8", "surrogateescape"))
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        _change_words(words, r, (*WORDS, *_names()), seeds.lines())
    return "".join(words).encode("utf-8", "surrogateescape")


@cache
def _names() -> tuple[str, ...]:
    """The ops and their attributes, which the text of a graph may name."""
    from tfgraph.ops import REGISTRY

    return tuple(sorted({n for op in REGISTRY.values() for n in (op.name, *op.attributes)}))


def _change_words(
    words: list[str], r: random.Random, others: Sequence[str], lines: Sequence[str]
) -> None:
    if not words:
        words.append(r.choice(others))
        return
    at = r.randrange(len(words))
    until = at + r.choice((1, 1, 1, 2, 5, 20))
    match r.randrange(7):
        case 0:
            words[at:until] = []
        case 1:
            words[at:at] = words[at:until]
        case 2:
            words[at:at] = [r.choice(others)]
        case 3:
            words[at] = r.choice(words)
        case 4 if lines:
            start = next((i for i in range(at, len(words)) if "\n" in words[i]), len(words))
            words[start:start] = ["\n", *_TOKEN.findall(r.choice(lines))]
        case _:
            words[at] = r.choice(others)


def yaml(data: bytes, r: random.Random, raw: Bytes) -> bytes:
    """Tokens as above; else keys and values that the schema knows, in places right and wrong."""
    chance = r.random()
    if chance < 0.1:
        return raw(data)
    if chance < 0.4:
        words = _TOKEN.findall(data.decode("utf-8", "surrogateescape"))
        _change_words(words, r, (*_yaml_words(), *WORDS), ())
        return "".join(words).encode("utf-8", "surrogateescape")
    tree = seeds.plain_yaml(data)
    if not isinstance(tree, dict):
        tree = {"layers": 1, "width": 8}
    schema = seeds.schema()
    for _ in range(r.choice((1, 1, 2, 3))):
        if r.random() < 0.6:
            _set_key(tree, schema, r)
        else:
            tree = change_tree(tree, r, _yaml_words())
        if not isinstance(tree, dict):
            break
    return _dumped(tree)


@cache
def _yaml_words() -> tuple[str, ...]:
    found: set[str] = {"&a", "*a", "<<", "!!python/object:os.system", "!!int", "|", ">", "---"}
    found |= {"? ", "- ", "\t", "'", "~", "%YAML 1.1", "...", "yes", "0x10", "1_000", ".nan"}

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            found.update(part.get("properties", {}))
            found.update(str(v) for v in part.get("enum", ()))
        for inner in part.values() if isinstance(part, dict) else part:
            if isinstance(inner, dict | list):
                collect(inner)

    collect(seeds.schema())
    return tuple(sorted(found))


def _set_key(tree: dict[str, Any], schema: dict[str, Any], r: random.Random) -> None:
    """A key of the schema with a value that it may have, here or in a mapping inside."""
    forms = [f for f in seeds.options(schema, schema) if "properties" in f]
    if not forms:
        return
    known = r.choice(forms)["properties"]
    key = r.choice(sorted(known))
    inner = tree.get(key)
    if isinstance(inner, dict) and r.random() < 0.6:
        sub = [f for f in seeds.options(known[key], schema) if "properties" in f]
        if sub:
            _set_key(inner, {**r.choice(sub), "$defs": schema["$defs"]}, r)
            return
    # As many layers as a file may have are right, and slow.
    layers = r.choice((0, 1, 2, 1025))
    tree[key] = layers if key == "layers" else _value(known[key], schema, r, 3)


def _value(part: dict[str, Any], schema: dict[str, Any], r: random.Random, depth: int) -> Any:
    if r.random() < 0.05 or not depth:
        return r.choice(SCALARS)
    found = r.choice(seeds.options(part, schema))
    if "const" in found or "enum" in found:
        return r.choice([found["const"]] if "const" in found else found["enum"])
    match found.get("type"):
        case "boolean":
            return r.random() < 0.5
        case "integer":
            least, most = found.get("minimum", 0), found.get("maximum", 64)
            return r.choice((1, 2, 3, 4, 8, 16, 64, least, least - 1, most + 1))
        case "number":
            return r.choice((0.5, 1e-5, 0, 1, -1, 8, "rsqrt(64)"))
        case "array":
            items = found.get("items", {})
            return [_value(items, schema, r, depth - 1) for _ in range(r.randrange(4))]
        case "object" if "properties" in found:
            keys = r.sample(sorted(found["properties"]), min(2, len(found["properties"])))
            keys += found.get("required", [])
            given = found["properties"]
            return {k: _value(given[k], schema, r, depth - 1) for k in keys}
        case "object":
            inner = found.get("additionalProperties")
            value = _value(inner, schema, r, depth - 1) if isinstance(inner, dict) else 1
            return {r.choice(("seq", "batch", "x", "y")): value}
        case _:
            return r.choice(SCALARS)


def change_tree(tree: Any, r: random.Random, keys: Sequence[str]) -> Any:
    """A copy with one value somewhere replaced, left out, doubled or called otherwise."""
    whole = {"": copy.deepcopy(tree)}
    around: Any = whole
    place: Any = ""
    while isinstance(around[place], dict | list) and around[place] and r.random() < 0.9:
        around = around[place]
        place = r.choice(list(around) if isinstance(around, dict) else range(len(around)))
    match r.randrange(8):
        case 0 if around is not whole:
            del around[place]
        case 1 if isinstance(around, list):
            around.insert(place, copy.deepcopy(around[place]))
        case 1 | 2 if isinstance(around, dict) and around is not whole:
            around[r.choice(keys)] = around.pop(place)
        case 3 if isinstance(around, dict) and around is not whole:
            around[r.choice(keys)] = copy.deepcopy(r.choice(SCALARS))
        case 4:
            around[place] = copy.deepcopy(r.choice(list(_leaves(whole)) or [None]))
        case 5 if isinstance(around[place], int):
            around[place] += r.choice((1, -1))
        case 5 if isinstance(around[place], str):
            around[place] = r.choice(keys)
        case _:
            around[place] = copy.deepcopy(r.choice(SCALARS))
    return whole.get("")


def _leaves(tree: Any) -> Any:
    if isinstance(tree, dict | list):
        for inner in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(inner)
    else:
        yield tree


def _dumped(tree: Any) -> bytes:
    return json.dumps(tree, ensure_ascii=False, indent=1).encode("utf-8", "surrogateescape")


def tree(data: bytes, r: random.Random, raw: Bytes) -> bytes:
    """One of the parts, as JSON; a part that is none, and sometimes any, by its bytes."""
    parts = data.split(PARTS)
    at = r.randrange(len(parts))
    if r.random() < 0.9:
        try:
            found = json.loads(parts[at])
            for _ in range(r.choice((1, 1, 2, 3))):
                found = change_tree(found, r, _keys_of(found))
            parts[at] = _dumped(found)
            return PARTS.join(parts)
        except (ValueError, RecursionError):
            pass
    parts[at] = raw(parts[at])
    return PARTS.join(parts)


def _keys_of(found: Any) -> list[str]:
    keys = {"", "x", "../x", "0", "é"}

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            keys.update(part)
        if isinstance(part, dict | list):
            for inner in part.values() if isinstance(part, dict) else part:
                collect(inner)

    collect(found)
    return sorted(keys)


def onnx(data: bytes, r: random.Random, raw: Bytes) -> bytes:
    """The changes of the tests; besides, operators and attributes of other models."""
    if r.random() < 0.05:
        return raw(data)
    try:
        model = package.ModelProto.FromString(data)
        if not model.graph.node:
            return raw(data)
        if r.random() < 0.5:
            _onnx_words(model, r)
            return model.SerializeToString()
        return onnx_mutations.mutated(data, r.randrange(1 << 60))
    except Exception:  # whatever protobuf and lists of a damaged model raise
        return raw(data)


def _onnx_words(model: package.ModelProto, r: random.Random) -> None:
    node = r.choice(model.graph.node)
    other = r.choice(seeds.onnx_nodes())
    match r.randrange(5):
        case 0:
            node.op_type = other.op_type
        case 1 if other.attribute:
            node.attribute.append(r.choice(other.attribute))
        case 2:
            added = model.graph.node.add()
            added.CopyFrom(other)
            names = [n for one in model.graph.node for n in (*one.input, *one.output)]
            for i in range(len(added.input)):
                added.input[i] = r.choice(names)
            model.graph.output.add().name = next(iter(added.output), "")
        case 3 if len(node.input) > 1:
            i, j = r.randrange(len(node.input)), r.randrange(len(node.input))
            node.input[i], node.input[j] = node.input[j], node.input[i]
        case _ if node.attribute:
            at = r.choice(node.attribute)
            at.ints.extend(r.choice(onnx_mutations.SIZES) for _ in range(r.randrange(3)))
            at.i += r.choice((1, -1))


def arrays(data: bytes, r: random.Random, raw: Bytes) -> bytes:
    """Bytes of the front, where the headers stand; in an archive those of a file inside."""
    if data[:1] == b"{":
        return tree(data, r, raw)
    if data[:2] != b"PK" or r.random() < 0.3:
        return raw(data[:200]) + data[200:]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # whatever a damaged archive raises
        return raw(data)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", r.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as made:
        for name, content in files.items():
            changed = raw(content[:160]) + content[160:] if r.random() < 0.7 else content
            made.writestr(
                name if r.random() < 0.8 else r.choice(("x", "y.npy", "../x.npy")), changed
            )
    return out.getvalue()


MUTATORS: dict[str, Mutate] = {
    "text": text, "yaml": yaml, "onnx": onnx, "checkpoint": tree, "manifest": tree,
    "tokenizer": tree, "arrays": arrays,
}  # fmt: skip


def plain_bytes(data: bytes, r: random.Random) -> bytes:
    """Bytes changed without libFuzzer."""
    changed = bytearray(data or b"\0")
    at = r.randrange(len(changed))
    changed[at : at + r.choice((0, 1, 1, 4))] = r.choice((b"", b"\0", b"\xff", b"{", b"9", b"\n"))
    return bytes(changed)
