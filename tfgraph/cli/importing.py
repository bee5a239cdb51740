"""`tfgraph import hf DIR`: a checkpoint folder as a model file.

May import: hf.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tfgraph.cli.options import verb
from tfgraph.cli.session import Session
from tfgraph.errors import TfgraphError

import_app = typer.Typer(
    help="Turn other formats into a model file.", no_args_is_help=True, rich_markup_mode=None
)


@verb
def import_hf(
    session: Session,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", show_default=False, help="config.json and safetensors")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="[default: print it]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite FILE")] = False,
) -> int:
    """A Hugging Face checkpoint as a model file.

    The weights stay where they are: the model file names their place.
    """
    if not folder.is_dir():
        raise TfgraphError(f"{folder}: no such folder")
    if output is not None and output.exists() and not force:
        raise TfgraphError(
            f"{output} exists; it is kept as it is", hint="--force overwrites it; -o names another"
        )
    session.load_plugins()
    from tfgraph.hf import import_checkpoint

    text = import_checkpoint(folder, output)
    if output is None:
        session.object({"model": None, "text": text})
        session.print(text.rstrip("\n"))
        return 0
    write_text(output, text)
    session.object({"model": str(output), "text": text})
    done = f"wrote {output}; next: tfgraph compile {output}"
    session.print(str(output) if session.quiet else done)
    return 0


import_app.command("hf")(import_hf)


def write_text(path: Path, text: str) -> None:
    """Write a file, which appears whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as cause:
        raise TfgraphError(f"cannot write {path}: {cause.strerror}") from cause
    finally:
        partial.unlink(missing_ok=True)
