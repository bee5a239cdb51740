"""`tfgraph init`: write a commented model file to start from.

May import: the package data of tfgraph.model.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from tfgraph.cli.options import verb
from tfgraph.cli.session import Session
from tfgraph.errors import TfgraphError


@verb
def init(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=True)] = Path("model.yaml"),
) -> int:
    """Write a commented model file to start from."""
    text = (files("tfgraph.model") / "template.yaml").read_text("utf-8")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise TfgraphError(
            f"{file} exists; it is kept as it is", hint="name another file: tfgraph init FILE"
        ) from None
    except OSError as cause:
        raise TfgraphError(f"cannot write {file}: {cause.strerror}") from cause
    session.object({"file": str(file)})
    session.print(str(file) if session.quiet else f"wrote {file}; next: tfgraph compile {file}")
    return 0
