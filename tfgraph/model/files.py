"""Files that a model file names, by paths from its own folder. May import: read, runtime,
errors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError, nearest
from tfgraph.runtime.files import read_file
from tfgraph.runtime.text import MAX_TOKENIZER

if TYPE_CHECKING:
    from tfgraph.model.read import Document


def whole_path(file: str, document: Document) -> Path:
    """The file that a model file names, from the root on: it is read later, when the current folder
    may be another and that of the model file gone. A link keeps its name."""
    path = Path(document.file).parent / file
    return path.parent.resolve() / path.name


def where_it_is_sought(file: str, document: Document) -> str | None:
    """A hint for a file that is not there: the nearest name, or where it is looked for."""
    path = whole_path(file, document)
    near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    sought = f"the path starts from the folder of {document.file}: it is looked for at "
    return nearest(path.name, near) or (None if Path(file).is_absolute() else f"{sought}{path}")


def find_tokenizer(file: str, document: Document) -> Path:
    """The file that the key `tokenizer` names. Raises TfgraphError, at its place, for one that
    cannot be read or is no tokenizer.json; what its parts mean the package `tokenizers` knows."""
    where = document.place("tokenizer").value
    path = whole_path(file, document)
    try:
        held: Any = json.loads(read_file(path, MAX_TOKENIZER))
    except OSError as cause:
        hint = None if path.exists() else where_it_is_sought(file, document)
        raise TfgraphError(f"tokenizer: {file}: {cause.strerror}", where, hint) from cause
    except (ValueError, RecursionError) as cause:
        raise TfgraphError(f"tokenizer: {file} is not JSON: {cause}", where, _KIND) from cause
    if not isinstance(held, dict) or "model" not in held:
        raise TfgraphError(f"tokenizer: {file} has no 'model'", where, _KIND)
    return path


_KIND = "expected the tokenizer.json that Hugging Face's tokenizers saves"
