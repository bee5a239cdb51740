"""The nodes of an ONNX file, each behind those whose results it reads. May import: file, errors."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from tfgraph.errors import Location, TfgraphError

if TYPE_CHECKING:
    import onnx

    from tfgraph.onnx.file import File

log = logging.getLogger("tfgraph")
_SHOWN = 5


def in_order(file: File) -> list[onnx.NodeProto]:
    """The file's nodes, in its order where that is one of execution. Raises TfgraphError where
    nodes form a cycle, or read what nothing makes."""
    nodes = _last_constants(list(file.graph.node))
    known = {"", *file.stored, *(given.name for given in file.graph.input)}
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in known:
                raise TfgraphError(f"two values are called '{name}'", Location(str(file.path)))
            makers[name] = i
    waits: list[set[int]] = []
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        sources = {makers[name] for name in node.input if name in makers}
        if missing := [n for n in node.input if n not in makers and n not in known]:
            what = f"{_named(node)} reads '{missing[0]}', which nothing makes"
            raise TfgraphError(what, Location(str(file.path)))
        waits.append(sources)
        for source in sources:
            readers.setdefault(source, []).append(i)
    if all(max(sources, default=-1) < i for i, sources in enumerate(waits)):
        return nodes
    ready = deque(i for i, sources in enumerate(waits) if not sources)
    ordered: list[onnx.NodeProto] = []
    while ready:
        i = ready.popleft()
        ordered.append(nodes[i])
        for reader in readers.get(i, ()):
            waits[reader].discard(i)
            if not waits[reader]:
                ready.append(reader)
    if len(ordered) < len(nodes):
        left = [_named(nodes[i]) for i, sources in enumerate(waits) if sources]
        shown = ", ".join(left[:_SHOWN]) + (", ..." if len(left) > _SHOWN else "")
        raise TfgraphError(
            f"nodes form a cycle, or wait for one: {shown}", Location(str(file.path))
        )
    return ordered


def _last_constants(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Of constants of one name, which old exporters wrote, the last, as ONNX Runtime takes them."""
    last = {n.output[0]: i for i, n in enumerate(nodes) if n.op_type == "Constant" and n.output}
    kept = [
        n
        for i, n in enumerate(nodes)
        if n.op_type != "Constant" or not n.output or last[n.output[0]] == i
    ]
    if len(kept) < len(nodes):
        log.warning("of constants of the same name the last is taken")
    return kept


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name or next(iter(node.output), '')}'"
