"""Opens files that other files name. May import: the standard library."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader


def open_file(path: Path, limit: int | None = None) -> BufferedReader:
    """A file, to read; a link stands for the file that it names.

    Raises OSError for a folder, for a pipe or device, which might have no end or keep who reads it
    waiting, and for more than `limit` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        if limit is not None and found.st_size > limit:
            what = f"it has {found.st_size} bytes; at most {limit} are read"
            raise OSError(errno.EFBIG, what, str(path))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_file(path: Path, limit: int) -> bytes:
    """All bytes of a file; raises as `open_file`."""
    with open_file(path, limit) as file:
        return file.read()


def read_text(path: Path, limit: int) -> str:
    """The text of a file in UTF-8; raises as `open_file`, and ValueError for what is no text."""
    with io.TextIOWrapper(open_file(path, limit), "utf-8") as file:
        return file.read()
