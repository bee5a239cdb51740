"""The tables of the docs that are made from the code: all ops in docs/ops.md, all blocks in
docs/python.md. `make golden` rewrites them."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Golden

from tfgraph import blocks, ops
from tfgraph.fuzz.schema import own_ops
from tfgraph.ops import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgraph.ops import OpDef

DOCS = Path(__file__).parent.parent / "docs"
HEAD = """\
# The ops

All of them, made from the code: `make golden` rewrites this page. In Python each is a function of
`tfgraph.ops`, called like its row: `ops.softmax(x, axis=1)`. In the text of a graph attributes
stand in braces: `softmax(%x) {axis=1}`. `[x]` may be left out; "or number" takes a number in place
of a tensor; `*parts` is any number of tensors. Shapes, dtypes and what each refuses stand in its
docstring, `help(tfgraph.ops.softmax)`. A composite op is what its parts compute; a core op has a
meaning of its own. `+ - * / @ **`, unary `-`, `abs`, `<` and `>` of values are the ops of these
names.
"""
GROUPS = {
    "elementwise": "Elementwise",
    "activations": "Activations",
    "movement": "Shapes, and rows by index",
    "reduction": "Reductions",
    "transformer": "Parts of a Transformer",
    "fused": "Fused, as the passes make them",
    "embedding_sum": "Sums of embeddings",
    "rotary": "Rotary positions",
    "cache": "States",
}
MARK = re.compile(r"(?s)(?<=<!-- blocks -->\n).*(?=<!-- end of blocks -->)")


def table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * (lines[0].count(" | ") + 1))
    return "\n".join(lines) + "\n"


def operand(p: inspect.Parameter) -> str:
    name = f"*{p.name}" if p.kind == p.VAR_POSITIONAL else p.name
    shown = f"`{name}`" if p.default is p.empty else f"[`{name}`]"
    return (
        shown + " or number" * ("ExactLike" in p.annotation) + " (mask)" * ("Mask" in p.annotation)
    )


def attribute(p: inspect.Parameter) -> str:
    words = {"ExactLike": "number", "float": "number", "DimLike": "size", "Sequence": "list"}
    kind = re.sub(r"\w+", lambda word: words.get(word[0], word[0]), p.annotation)
    kind = re.sub(r"list\[(.*)\]", r"list of \1", kind).replace(" | None", "")
    default = p.default.short if isinstance(p.default, Enum) else p.default  # type: ignore[attr-defined]
    given = "" if p.default is p.empty else f"={default}"
    return f"`{p.name}{given}` {kind}"


def row(definition: OpDef) -> tuple[str, ...]:
    name = definition.body.__name__
    shown = f"`{name}`" + f" (in text `{definition.name}`)" * (name != definition.name)
    return (
        shown,
        ", ".join(map(operand, definition.operands)),
        ", ".join(map(attribute, definition.attributes.values())),
        definition.doc,
        definition.kind,
        definition.onnx or "",
    )


def ops_page() -> str:
    page = HEAD
    found = [REGISTRY[name] for name in own_ops()]
    for module, title in GROUPS.items():
        mine = [d for d in found if d.body.__module__ == f"tfgraph.ops.{module}"]
        head = ("op", "operands", "attributes", "result", "kind", "ONNX")
        page += f"\n## {title}\n\n" + table([head, *map(row, mine)])
    return page


def signature(function: Any) -> str:
    parts: list[str] = []
    named = False
    for p in inspect.signature(function).parameters.values():
        if p.kind == p.KEYWORD_ONLY and not named:
            parts, named = [*parts, "*"], True
        if p.name != "places":
            parts.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
    return f"`{function.__name__}({', '.join(parts)})`"


def first_sentence(function: Any) -> str:
    paragraph = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[a-z\])`]\.) (?=[A-Z`])", paragraph)[0]


def blocks_table() -> str:
    found = [getattr(blocks, name) for name in blocks.__all__]
    return table(
        [("block", "makes"), *((signature(block), first_sentence(block)) for block in found)]
    )


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Golden:
    return Golden(DOCS, bool(request.config.getoption("--update-golden")))


def test_the_page_of_ops_is_up_to_date(page: Golden) -> None:
    text = ops_page()
    assert all(f"`{REGISTRY[name].body.__name__}`" in text for name in own_ops())
    page("ops.md", text)


def test_the_blocks_of_the_page_on_python_are_up_to_date(page: Golden) -> None:
    text, found = MARK.subn(lambda _: blocks_table(), (DOCS / "python.md").read_text("utf-8"))
    assert found == 1
    page("python.md", text)


def test_every_op_can_be_imported_by_the_name_on_its_page() -> None:
    for name in own_ops():
        assert getattr(ops, REGISTRY[name].body.__name__).__wrapped__ is REGISTRY[name].body
