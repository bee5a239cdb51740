"""`tfgraph generate`, as typer reads it; `lean` takes the same options. May import: generating."""

from __future__ import annotations

from typing import Annotated

import typer

from tfgraph.cli.options import ThreadsOption, verb
from tfgraph.cli.session import Session
from tfgraph.cli.source import is_artifact
from tfgraph.errors import TfgraphError


@verb
def generate(
    session: Session,
    artifact: Annotated[str, typer.Argument(metavar="ARTIFACT", show_default=False)],
    ids: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="the prompt, such as 5,6,7; the source to translate"),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="the prompt as text, and text comes out"),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE.npy", help="what an encoder of no tokens encodes"),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="LIST|TEXT",
            help="encoder-decoders: the target so far [default: the start tokens]",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=0, metavar="N", help="at most so many")] = 32,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="take the likeliest, as where no option draws")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="draw, of softmax(logits / T)")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="K", help="draw, of the K likeliest")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="draw, of the likeliest that make up P")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(metavar="P", help="draw, of those P times as likely as the best")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(metavar="X", help="make tokens that were seen less likely")
    ] = None,
    beams: Annotated[int, typer.Option(min=1, metavar="N", help="keep the best N beams")] = 1,
    stop: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="end behind any of these tokens [default: the model's]"),
    ] = None,
    suppress: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="never take any of these tokens [default: the model's]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="of what is drawn [default: 0]")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="feed the prompt in pieces of N tokens")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="or compute all tokens anew at each step")
    ] = True,
    check_cache: Annotated[
        bool, typer.Option("--check-cache", help="compare the logits with those of --no-cache")
    ] = False,
    threads: ThreadsOption = None,
    verify_weights: Annotated[
        bool,
        typer.Option(
            "--verify-weights/--no-verify-weights", help="check the artifact's weights file first"
        ),
    ] = True,
) -> int:
    """Generate tokens or text behind a prompt, printed as they come."""
    from tfgraph.cli.generating import Request, generate_artifact

    if not is_artifact(artifact):
        raise TfgraphError(
            f"{artifact} is not an artifact", hint="compile it first: tfgraph compile MODEL"
        )
    request = Request(
        ids,
        text,
        input,
        prefix,
        max_tokens,
        greedy,
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        beams,
        stop,
        suppress,
        seed,
        chunk,
        cache,
        check_cache,
    )
    return generate_artifact(session, artifact, request, threads, verify_weights)
