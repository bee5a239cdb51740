"""The folder that an artifact is written to: beside its final name, then renamed, never half of it.

It is called `.NAME.RANDOM.partial`: eight hex digits, and a hash instead of a long name. Whoever
works in one holds a lock on it, which the system lets go of when the process ends, however it ends:
so a folder without a lock was left behind by a killed process, and the next compilation to the same
place removes it. May import: runtime.format, errors.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_NAME = re.compile(r"(.+)\.[0-9a-f]{8}\.partial", re.DOTALL)
_LONGEST = 200  # bytes of a name; file systems take 255
_OF_A_LAYER = (
    "what stands there is part of a container's image, which cannot be renamed: "
    "remove it first, or choose another -o"
)
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD of fcntl.h and RENAME_EXCHANGE of linux/fs.h


class Staging:
    """A folder beside the artifact's final place, renamed to it by `publish`.

    Leaving the `with` block without that removes it. Any number of processes may publish to one
    place: each artifact is whole, the last one stays.
    """

    def __init__(self, final: Path) -> None:
        self.final = final

    def __enter__(self) -> Staging:
        place = Path(os.path.realpath(self.final))  # what a link names is replaced, not the link
        with self.writing():
            place.parent.mkdir(parents=True, exist_ok=True)
            for left in place.parent.iterdir():
                name = _NAME.fullmatch(left.name)
                if name and name[1] == _stem(place):
                    _remove_unless_locked(left)
            self.folder, self._lock = _locked_folder(place)
        return self

    @contextmanager
    def writing(self) -> Generator[None]:
        """Turns errors of the system inside the block into one that names the artifact."""
        try:
            yield
        except OSError as cause:
            reason = cause.strerror or str(cause)
            hint = _OF_A_LAYER if cause.errno == errno.EXDEV else None
            raise TfgraphError(f"cannot write {self.final}: {reason}", hint=hint) from cause

    def publish(self, final: Path | None = None) -> None:
        """Put the folder in its place; an artifact there is replaced, anything else kept."""
        target = final or self.final
        place = Path(os.path.realpath(target))
        with self.writing():
            for path in [*self.folder.rglob("*"), self.folder]:
                _to_disk(path)
            while not self._renamed(place):
                if not (place / layout.MANIFEST).is_file() and os.path.lexists(place):
                    raise TfgraphError(
                        f"{target} exists and is not an artifact", hint="choose another -o"
                    )
            _to_disk(place.parent)

    def _renamed(self, place: Path) -> bool:
        """Whether the folder stands at `place` now; False where that must be looked at again."""
        if (place / layout.MANIFEST).is_file():
            return _exchanged(self.folder, place)
        if os.path.lexists(place):
            return False
        try:
            os.rename(self.folder, place)
        except OSError as cause:
            if cause.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process was faster
                return False
            raise
        return True

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # or what it was exchanged for
        os.close(self._lock)


def write_file(path: Path, data: bytes) -> None:
    """Write a file; an OSError names it, which those of `write` do not."""
    try:
        path.write_bytes(data)
    except OSError as cause:
        raise OSError(cause.errno, cause.strerror, str(path)) from cause


def _stem(place: Path) -> str:
    """What the names of all folders begin with that are written for this place."""
    name = os.fsencode(place.name)
    whole = len(name) <= _LONGEST
    return "." + (place.name if whole else f"{hashlib.sha256(name).hexdigest()}{layout.SUFFIX}")


def _new_name(place: Path) -> Path:
    return place.with_name(f"{_stem(place)}.{secrets.token_hex(4)}.partial")


def _locked_folder(place: Path) -> tuple[Path, int]:
    """A new folder beside `place`, and the descriptor that holds its lock."""
    while True:
        folder = _new_name(place)
        folder.mkdir()
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # file systems without locks: nobody can take it for left behind
            fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)  # another process took it for left behind before it was locked


def _remove_unless_locked(folder: Path) -> None:
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _exchanged(folder: Path, place: Path) -> bool:
    """Exchange the names of two folders at once, so that `place` is never without one.

    False where `place` is gone meanwhile. Where the file system cannot exchange, the old artifact
    is moved away first.
    """
    code = _exchange(folder, place)
    if code == 0:
        return True
    if code == errno.ENOENT:
        return False
    if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(code, os.strerror(code))
    old = _new_name(place)
    try:
        os.rename(place, old)
    except FileNotFoundError:  # another process moved it
        return False
    try:
        os.rename(folder, place)
    except OSError as cause:
        if cause.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            os.rename(old, place)  # what was there stays there
            raise
        return False  # another process was faster
    finally:
        shutil.rmtree(old, ignore_errors=True)  # gone already where it was put back
    return True


def _exchange(one: Path, other: Path) -> int:
    """The error number of renameat2, which Python does not offer; 0 where it succeeds."""
    rename: Callable[..., int] = ctypes.CDLL(None, use_errno=True).renameat2
    done = rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    return ctypes.get_errno() if done != 0 else 0


def _to_disk(path: Path) -> None:
    """Have the system write a file or folder to the disk before what follows."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
