"""A graph as a picture: for Graphviz (`dot -Tsvg`) and for Mermaid (GitHub, Markdown viewers).

One box a node: the op and what tells it apart, the name of its result, its type, and the weights it
reads. Inputs and outputs are round. Boxes stand in frames by part: `layers.0`, in it `attention`.
Imports cost, ops and ir.
"""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgraph.cost import parts
from tfgraph.ir import DType, Exact, Mask
from tfgraph.ir.mask import render_mask
from tfgraph.ops.define import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from inspect import Parameter

    from tfgraph.ir import Attr, Graph, Node, TensorType, Value

# Fill and border of the boxes, by the module in which the op is defined.
_STYLES = {
    "input": ("#ffffff", "#495057"),
    "output": ("#e3f3e6", "#3c8c54"),
    "weight": ("#f8f9fa", "#adb5bd"),
    "transformer": ("#dbe9fb", "#4a7ebb"),
    "fused": ("#fde3cf", "#d9822b"),
    "activations": ("#fdf3cc", "#c9a227"),
    "movement": ("#f1f3f5", "#adb5bd"),
    "other": ("#ffffff", "#868e96"),
}
_LONGEST = 60  # characters of a line; longer ones go on in the next
_MOST_LINES = 4  # of one operand or attribute
_DIGITS = 12  # characters of a constant; a longer ratio is rounded
_DOT_DEFAULTS = """\
  graph [fontname="Helvetica", fontsize=11, fontcolor="#495057", nodesep=0.25, ranksep=0.3]
  node [fontname="Helvetica", fontsize=11, shape=box, style="rounded,filled", margin="0.12,0.06"]
  edge [fontname="Helvetica", fontsize=9, color="#868e96", arrowsize=0.6]"""


@dataclass
class _Box:
    """A vertex of the picture: its lines of text, the first one the title."""

    id: str
    lines: list[str]
    style: str


@dataclass
class _Frame:
    """Boxes and frames that stand together under a title."""

    title: str
    boxes: list[_Box] = field(default_factory=list[_Box])
    frames: dict[str, _Frame] = field(default_factory=dict[str, "_Frame"])


@dataclass
class _Picture:
    root: _Frame
    edges: list[tuple[str, str, str]]  # from, to, label


def to_dot(graph: Graph, *, weights: bool = False) -> str:
    """The graph in Graphviz's language. With `weights`, each weight has a box of its own; else the
    boxes that read them name them."""
    picture = _picture(graph, weights)
    lines = [
        f"digraph {_dot_string(graph.name)} {{",
        _DOT_DEFAULTS,
        *_dot_frame(picture.root, "  ", "g"),
    ]
    for source, target, label in picture.edges:
        shown = f" [label={_dot_string(label)}]" if label else ""
        lines.append(f"  {source} -> {target}{shown}")
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(graph: Graph, *, weights: bool = False) -> str:
    """The graph as a Mermaid flowchart; `weights` as in `to_dot`."""
    picture = _picture(graph, weights)
    lines = ["flowchart TD", *_mermaid_frame(picture.root, "  ", "g")]
    for source, target, label in picture.edges:
        arrow = f'-- "{_mermaid_text(label)}" -->' if label else "-->"
        lines.append(f"  {source} {arrow} {target}")
    used = {box.style for box in _all_boxes(picture.root)}
    lines += [
        f"  classDef {name} fill:{fill},stroke:{border},color:#212529"
        for name, (fill, border) in _STYLES.items()
        if name in used
    ]
    return "\n".join(lines) + "\n"


def _picture(graph: Graph, weights: bool) -> _Picture:
    root = _Frame(graph.name)
    part_of = parts(graph)
    vertex: dict[Value, str] = {}
    edges: list[tuple[str, str, str]] = []
    for i, given in enumerate(graph.inputs):
        vertex[given.value] = f"i{i}"
        root.boxes.append(_Box(f"i{i}", [given.value.name, str(given.value.type)], "input"))
    if weights:
        for i, param in enumerate(graph.params):
            vertex[param.value] = f"w{i}"
            lines = [param.value.name, str(param.value.type)]
            frame = _frame(root, part_of[param.value.name])
            frame.boxes.append(_Box(f"w{i}", lines, "weight"))
    for i, node in enumerate(graph.nodes):
        box = _Box(f"n{i}", _lines(graph, node, weights), _style(node))
        _frame(root, part_of[node.outputs[0].name]).boxes.append(box)
        vertex.update((value, box.id) for value in node.outputs)
        several = Counter(node.inputs)
        for value in dict.fromkeys(node.inputs):
            if value in vertex:
                label = f"{several[value]} times" if several[value] > 1 else ""
                edges.append((vertex[value], box.id, _edge_label(graph, value, label)))
    for i, output in enumerate(graph.outputs):
        root.boxes.append(_Box(f"o{i}", [output.name, str(output.value.type)], "output"))
        if output.value in vertex:
            edges.append((vertex[output.value], f"o{i}", _edge_label(graph, output.value, "")))
    _flatten(root)
    return _Picture(root, edges)


def _edge_label(graph: Graph, value: Value, label: str) -> str:
    """The value's name where its node has several results."""
    made = graph.producer.get(value)
    name = _short(f"%{value.name}") if made and len(made.outputs) > 1 else ""
    return ", ".join(filter(None, (name, label)))


def _lines(graph: Graph, node: Node, weights: bool) -> list[str]:
    """The lines of a node's box."""
    lines = _filled(node.op, _details(node))
    for value in node.outputs:
        lines += _filled(f"%{value.name}:", [str(value.type)])
    read = [v for v in dict.fromkeys(node.inputs) if v in graph.param_values]
    if read and not weights:
        texts = [f"{v.name.rpartition('.')[2]} {_shape(v.type)}" for v in read]
        first, *rest = (*(f"{text}," for text in texts[:-1]), texts[-1])
        lines += _filled(first, rest)
    return lines


def _details(node: Node) -> Iterator[str]:
    """Scalars, the mask, and attributes that differ from their defaults and that the type of the
    result does not show."""
    for operand in node.operands:
        if isinstance(operand, Exact):
            yield _number(operand)
        elif isinstance(operand, Mask):
            for i, part in enumerate(operand.parts):
                shown = render_mask(part, lambda value: str(value.name))
                yield f"& {shown}" if i else shown
    definition = REGISTRY.get(node.op)
    declared: Mapping[str, Parameter] = definition.attributes if definition else {}
    for name, value in node.attrs.items():
        default: object = declared[name].default if name in declared else None
        if value not in (None, default) and name not in ("shape", "dtype", "keepdims"):
            shown = _attr(value)
            if shown != str(default):  # an exact 1e-05 stands for the default 1e-05
                yield f"{name}={shown}"


def _filled(title: str, details: Iterable[str]) -> list[str]:
    """The title and what follows it, in lines that are shown whole where none of it is too long."""
    lines = [title]
    for detail in details:
        if len(lines[-1]) + 1 + len(detail) <= _LONGEST:
            lines[-1] += f" {detail}"
        else:
            lines += textwrap.wrap(detail, _LONGEST, max_lines=_MOST_LINES, placeholder="…")
    return lines


def _number(value: Exact) -> str:
    """A constant: as it is where that is short, else rounded. The text of a graph is exact."""
    exactly = str(value)
    return exactly if len(exactly) <= _DIGITS else f"{float(value):.6g}"


def _attr(value: Attr) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_attr, value))}]"
    if isinstance(value, Exact):
        return _number(value)
    return value.short if isinstance(value, DType) else str(value)


def _shape(type_: TensorType) -> str:
    return f"[{','.join(map(str, type_.shape))}]"


def _style(node: Node) -> str:
    definition = REGISTRY.get(node.op)
    module = definition.body.__module__.rpartition(".")[2] if definition else ""
    return module if module in _STYLES else "other"


def _frame(root: _Frame, part: str) -> _Frame:
    """The frame of a part: one for `layers.0`, and one for `attention` inside of it."""
    *outer, last = part.split(".")
    for title in filter(None, (".".join(outer), last)):
        root = root.frames.setdefault(title, _Frame(title))
    return root


def _flatten(frame: _Frame) -> None:
    """Dissolve the frames around a single box."""
    for title, inner in list(frame.frames.items()):
        _flatten(inner)
        if len(inner.boxes) == 1 and not inner.frames:
            frame.boxes += inner.boxes
            del frame.frames[title]


def _all_boxes(frame: _Frame) -> Iterator[_Box]:
    yield from frame.boxes
    for inner in frame.frames.values():
        yield from _all_boxes(inner)


def _short(text: str) -> str:
    """One printable line of bounded length."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


def _dot_frame(frame: _Frame, indent: str, id_: str) -> Iterator[str]:
    for box in frame.boxes:
        fill, border = _STYLES[box.style]
        title, *rest = (html.escape(_short(line)) for line in box.lines)
        small = "".join(f'<br/><font point-size="9" color="#495057">{line}</font>' for line in rest)
        shape = ", shape=ellipse, margin=0" if box.style in ("input", "output") else ""
        yield (
            f"{indent}{box.id} [label=<<b>{title}</b>{small}>, "
            f'fillcolor="{fill}", color="{border}"{shape}]'
        )
    for i, inner in enumerate(frame.frames.values()):
        yield f"{indent}subgraph cluster_{id_}_{i} {{"
        yield f"{indent}  label={_dot_string(inner.title)}; labeljust=l"
        yield f'{indent}  style=rounded; color="#ced4da"'
        yield from _dot_frame(inner, f"{indent}  ", f"{id_}_{i}")
        yield f"{indent}}}"


def _dot_string(text: str) -> str:
    escaped = _short(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _mermaid_frame(frame: _Frame, indent: str, id_: str) -> Iterator[str]:
    for box in frame.boxes:
        title, *rest = map(_mermaid_text, box.lines)
        label = "<br/>".join([f"<b>{title}</b>", *rest])
        left, right = ("([", "])") if box.style in ("input", "output") else ("[", "]")
        yield f'{indent}{box.id}{left}"{label}"{right}:::{box.style}'
    for i, inner in enumerate(frame.frames.values()):
        yield f'{indent}subgraph {id_}_{i}["{_mermaid_text(inner.title)}"]'
        yield from _mermaid_frame(inner, f"{indent}  ", f"{id_}_{i}")
        yield f"{indent}end"


def _mermaid_text(text: str) -> str:
    """Letters, digits and harmless marks as they are, others as #code;."""
    plain = " .,:=()[]%-+/_"
    return "".join(c if c.isalnum() or c in plain else f"#{ord(c)};" for c in _short(text))
