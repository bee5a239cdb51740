"""`tfgraph inspect`: the graph of a model or artifact as text or a picture, its cost, its fusion,
and what its tokens attend to.

May import: attention, memory, api, backends.base, passes, model, text, draw, cost, runtime.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfgraph.cli.options import (
    DimOption,
    DtypeOption,
    ModelOrArtifact,
    PassesOption,
    StrictMasksOption,
    verb,
)
from tfgraph.cli.output import plural, size
from tfgraph.cli.report import print_graph_ports, print_passes
from tfgraph.cli.session import Session
from tfgraph.cli.source import choose_passes, in_dtype, is_artifact, read_source, short_path
from tfgraph.errors import TfgraphError
from tfgraph.runtime.format import TOKENIZER

if TYPE_CHECKING:
    from tfgraph.ir import Graph


class Format(StrEnum):
    """What `--format` takes."""

    text = "text"
    dot = "dot"
    mermaid = "mermaid"
    yaml = "yaml"


@verb
def inspect(
    session: Session,
    model: ModelOrArtifact,
    format: Annotated[
        Format | None, typer.Option("--format", "-f", help="how to show the graph [default: text]")
    ] = None,
    fused: Annotated[bool, typer.Option("--fused", help="after the default passes")] = False,
    dtype: DtypeOption = None,
    passes: PassesOption = None,
    strict_masks: StrictMasksOption = False,
    fusion: Annotated[
        bool, typer.Option("--fusion", help="what the passes fuse, what not, and why")
    ] = False,
    cost: Annotated[
        bool, typer.Option("--cost", help="parameters, FLOPs and bytes by part and by op")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="of an artifact: what is where, and how much")
    ] = False,
    dim: DimOption = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="run it: which tokens attend to which")
    ] = False,
    ids: Annotated[
        str | None, typer.Option(metavar="LIST", help="the tokens as ids, such as 5,6,7")
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="the tokens as text, by the tokenizer")
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="LIST|TEXT", help="encoder-decoders: the target so far"),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="WORD", help="what this one attends to [default: all]"),
    ] = None,
    layer: Annotated[
        int | None, typer.Option("--layer", min=0, metavar="N", help="of this layer alone")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, metavar="K", help="how many for each head [default: 5]"),
    ] = None,
) -> int:
    """Show a graph, what it costs, what fuses, what attends to what. For an artifact, also what it
    holds."""
    asked = {"ids": ids, "text": text, "prefix": prefix, "token": token, "layer": layer, "top": top}
    asked = {name: value for name, value in asked.items() if value is not None}
    if attention:
        others = {
            "--format": format,
            "--fused": fused,
            "--dtype": dtype,
            "--passes": passes,
            "--strict-masks": strict_masks,
            "--fusion": fusion,
            "--cost": cost,
            "--memory": memory,
            "--dim": dim,
        }
        if other := next((option for option, value in others.items() if value), None):
            raise TfgraphError(f"--attention runs the model; {other} shows the graph")
        return _attention(session, model, asked)
    if asked:
        raise TfgraphError(f"--{next(iter(asked))} is for --attention")
    tables = {"--fusion": fusion, "--cost": cost, "--memory": memory}
    other = next((option for option, asked in tables.items() if asked), None)
    if format not in (None, Format.text) and other and not session.json:
        raise TfgraphError(
            f"--format {format} stands alone; {other} prints a table",
            hint=f"leave {other} out, or add --json, which has both",
        )
    if is_artifact(model):
        if fused or fusion or dtype is not None or passes is not None or strict_masks:
            raise TfgraphError(
                f"{model} is an artifact: its passes ran when it was compiled",
                hint="it shows the graph after them; passes.json in it is their report",
            )
        return _inspect_artifact(session, model, format, cost, memory, dim)
    if memory:
        raise TfgraphError(
            "memory is planned when a model is compiled",
            hint="name an artifact: tfgraph compile, then inspect ARTIFACT --memory",
        )
    read = read_source(session, model)
    graph, reports = read.graph, list[Any]()
    passes = choose_passes(read, passes, strict_masks) if strict_masks else passes
    if dtype is not None:
        read = in_dtype(read, dtype, choose_passes(read, passes))
        graph = read.graph
        passes = read.passes if passes is not None else None
    if fused or fusion or passes is not None:
        from tfgraph.passes import parse_pipeline, run_pipeline

        pipeline = choose_passes(read, passes)
        graph, reports = run_pipeline(read.graph, parse_pipeline(pipeline))
    shown = read.graph if fusion and not fused and passes is None else graph
    found = _describe(shown, format)
    if fusion:
        found["fusion"] = [report.to_json() for report in reports]
    if format is not None or not (fusion or cost):
        _print_graph(session, shown, format)
    if fusion:
        print_passes(session, len(read.graph.nodes), len(graph.nodes), reports)
    if cost:
        ran = fused or fusion or passes is not None
        _print_cost(session, graph, "after passes" if ran else "as written", dim, found)
    session.object(found)
    return 0


def _attention(session: Session, spec: str, asked: dict[str, Any]) -> int:
    """What attends to what: an artifact says so itself, a model runs on the reference."""
    from tfgraph.cli.attention import Request, attention_of_artifact, print_attention

    request = Request(**asked)
    if is_artifact(spec):
        return attention_of_artifact(session, spec, request)
    read = read_source(session, spec)
    from tfgraph.api import compile
    from tfgraph.backends.base import constraints_of

    with session.progress("running on numpy"):
        made = compile(replace(read, functions={}), "numpy", tap="attention")
        return print_attention(session, made, [str(c) for c in constraints_of(read.graph)], request)


def _inspect_artifact(
    session: Session,
    spec: str,
    format: Format | None,
    cost: bool,
    memory: bool,
    dim: list[str] | None,
) -> int:
    """The graph that was compiled, and the manifest in short."""
    from tfgraph.runtime import format as layout
    from tfgraph.text import parse_graph

    session.load_plugins()
    folder = Path(spec)
    manifest = layout.read_manifest(folder)
    text = layout.read_checked(folder, layout.GRAPH, manifest["files"][layout.GRAPH])
    try:
        graph = parse_graph(text.decode(), str(folder / layout.GRAPH))
    except TfgraphError as error:  # the text is as it was written: this tfgraph knows less
        error.hint = "if it was compiled with an extension, --plugin FILE loads that"
        raise
    if format is None:
        _print_manifest(session, folder, manifest)
        print_graph_ports(session, graph)
        session.print()
    found = {"manifest": manifest, **_describe(graph, format)}
    if format is not None or not (cost or memory):
        _print_graph(session, graph, format)
    if cost:
        _print_cost(session, graph, "after passes", dim, found)
    if memory:
        from tfgraph.cli.memory import print_memory

        found["memory"] = print_memory(session, manifest, dim)
    session.object(found)
    return 0


def _print_manifest(session: Session, folder: Path, manifest: dict[str, Any]) -> None:
    target = " ".join(filter(None, (manifest["target"], manifest.get("arch"))))
    if "cpu" in manifest:
        target += f" {manifest['cpu']['mcpu']}"
    files = [p for p in folder.rglob("*") if p.is_file()]
    tools = ", ".join(f"{name} {version}" for name, version in manifest["tools"].items())
    shown = session.style(short_path(folder), "bold")
    total = size(sum(p.stat().st_size for p in files))
    session.print(f"{shown}: {manifest['name']} for {target}, {total}")
    session.print(f"  by {tools}")
    _print_verification(session, manifest.get("verification"))
    if functions := ", ".join(manifest.get("functions", ())):
        session.print(f"  generates, by {functions}")
    if TOKENIZER in manifest["files"]:
        session.print(f"  takes text, by {TOKENIZER}")
    session.print(f"  sha256 {manifest['sha256']}")


def _print_verification(session: Session, found: dict[str, Any] | None) -> None:
    if found is None:
        session.print(f"  verification {session.verdict(None)}")
    elif found["ok"]:
        at = plural(len(found["dims"]), "size")
        session.print(f"  verification {session.verdict(True)} against {found['against']} at {at}")
    else:
        reason = (found["reason"] or "").removeprefix("not run: ")
        session.print(f"  verification {session.verdict(found['ok'])}: {reason}")


def _describe(graph: Graph, format: Format | None) -> dict[str, Any]:
    """The object for `--json`."""
    from tfgraph.backends.base import input_ports, output_ports, symbol_ranges

    return {
        "name": graph.name,
        "nodes": len(graph.nodes),
        "ops": dict(Counter(node.op for node in graph.nodes).most_common()),
        "inputs": [_port(p) for p in input_ports(graph)],
        "outputs": [_port(p) for p in output_ports(graph)],
        "symbols": {
            name: {"min": s.low, "max": s.high, "example": s.example}
            for name, s in symbol_ranges(graph).items()
        },
        "format": (format or Format.text).value,
        "graph": _drawn(graph, format),
    }


def _port(port: Any) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "shape": list(port.shape)}


def _drawn(graph: Graph, format: Format | None) -> str:
    if format in (None, Format.text):
        from tfgraph.text import print_graph

        return print_graph(graph)
    if format is Format.yaml:
        from tfgraph.model import dump_yaml

        return dump_yaml(graph)
    from tfgraph.draw import to_dot, to_mermaid

    return to_dot(graph) if format is Format.dot else to_mermaid(graph)


def _print_graph(session: Session, graph: Graph, format: Format | None) -> None:
    session.print(_drawn(graph, format).rstrip("\n"))


def _print_cost(
    session: Session, graph: Graph, which: str, dim: list[str] | None, found: dict[str, Any]
) -> None:
    """The cost of a graph, and which one that is: with `--fusion` not the one that was read."""
    from tfgraph.backends.base import symbol_ranges
    from tfgraph.cli.inputs import parse_dims
    from tfgraph.cost import cost

    counted = cost(graph, parse_dims(dim, symbol_ranges(graph)))
    found["cost"] = {"graph": which, **counted.to_json()}
    head = session.style("cost", "bold")
    session.print(f"{head}    {which}: {plural(len(graph.nodes), 'node')}")
    session.print(str(counted))
