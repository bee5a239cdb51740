"""What earlier compilations found, kept on disk by the hash of everything that it depends on.

Entries are small: object files of kernels, verdicts of proofs and of verifications. They lie in
`$TFGRAPH_CACHE` (off where that is empty), else `$XDG_CACHE_HOME/tfgraph`, else `~/.cache/tfgraph`.
An entry is written beside its name and renamed, holds its own hash, and is dropped where that does
not match; the oldest go when all together are too large. Whatever fails, the cache is as if empty.
Object files are code: a folder that others may write to is not used. May import: errors.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

VARIABLE = "TFGRAPH_CACHE"
SCHEDULES = Path("tuned", "schedules.json")
"""In the folder of the cache, but no entry of it: what `compile --tune` found on this machine. It
holds for other versions too, and its age says nothing."""

LIMIT = 256 << 20
"""Bytes of all entries; beyond that the ones longest unused are removed."""

_DIGEST = hashlib.sha256().digest_size
_PACKAGES = ("numpy", "apache-tvm", "apache-tvm-ffi")
log = logging.getLogger("tfgraph")
_active: ContextVar[Cache | None] = ContextVar("cache", default=None)


class Cache:
    """Bytes by kind and key. `found` counts what was there, by kind."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit
        self.found = Counter[str]()
        self._unchecked = limit  # bytes written since all entries were counted; too many at first

    def get(self, kind: str, *key: str | bytes) -> bytes | None:
        """The entry of that key, whole, or None."""
        path = self._path(kind, key)
        try:
            whole = path.read_bytes()
        except OSError:
            return None
        digest, data = whole[:_DIGEST], whole[_DIGEST:]
        with suppress(OSError):
            if hashlib.sha256(data).digest() != digest:
                log.warning("%s: damaged: removed", path)
                path.unlink()
                return None
            os.utime(path)  # used just now
        self.found[kind] += 1
        return data

    def put(self, kind: str, data: bytes, *key: str | bytes) -> None:
        """Keep an entry. Any number of processes may write the same one."""
        path = self._path(kind, key)
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
            try:
                part.write_bytes(hashlib.sha256(data).digest() + data)
                part.rename(path)
            finally:
                part.unlink(missing_ok=True)
            self._unchecked += len(data)
            if self._unchecked > self.limit // 64:  # which takes a while where there are many
                self._shrink()
                self._unchecked = 0

    def size(self) -> tuple[int, int]:
        """How many entries there are, and their bytes."""
        sizes = [size for _, size, _ in self._entries()]
        return len(sizes), sum(sizes)

    def _path(self, kind: str, key: Iterable[str | bytes]) -> Path:
        parts = [fingerprint(), *(k.encode() if isinstance(k, str) else k for k in key)]
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
        return self.folder / kind / digest.hexdigest()

    def _entries(self) -> list[tuple[float, int, Path]]:
        """When each was last used, its size, its path."""
        entries: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            if path.parent.name == SCHEDULES.parent.name:
                continue
            with suppress(OSError):  # another process removed it
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        return entries

    def _shrink(self) -> None:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit:
                return
            path.unlink(missing_ok=True)
            total -= size


def default_folder() -> Path | None:
    """Where the cache lies; None where it is off."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given).expanduser() if given else None
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:  # nobody's home
        return None
    return root / "tfgraph"


def default_cache() -> Cache | None:
    """The cache of this user; None where it is off, or where `refusal` says why not."""
    folder = default_folder()
    if folder is None:
        return None
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    reason = refusal(folder)
    if reason is not None:
        log.warning("no cache: %s", reason)
        return None
    return Cache(folder)


def refusal(folder: Path) -> str | None:
    """Why a folder is not used: code in it would be run, so it must be this user's alone."""
    try:
        found = folder.stat()
        kinds = [path.lstat() for path in folder.iterdir()]
    except OSError as cause:
        return f"{folder}: {cause.strerror}"
    for status in (found, *kinds):
        if not stat.S_ISDIR(status.st_mode):
            return f"{folder} holds what is no folder of a cache"
        if status.st_uid != os.geteuid():
            return f"{folder} belongs to another user"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others may write to {folder}"
    return None


@contextmanager
def using(cache: Cache | None) -> Generator[None]:
    """What runs inside the block, in this thread, looks there."""
    token = _active.set(cache)
    try:
        yield
    finally:
        _active.reset(token)


def active() -> Cache | None:
    """The cache to look in, if any."""
    return _active.get()


@lru_cache(maxsize=1)
def fingerprint() -> bytes:
    """A hash of what every result depends on: the sources of tfgraph, the versions of what it
    calls, and the CPU."""
    digest = hashlib.sha256(sys.version.encode())
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            digest.update(f"{name} {metadata.version(name)}\n".encode())
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        kept = ("vendor_id", "cpu family", "model", "flags")
        fields = {line for line in lines if line.partition(":")[0].strip() in kept}
        digest.update("\n".join(sorted(fields)).encode())
    top = Path(__file__).parent
    for folder, inner, files in os.walk(top, followlinks=True):
        inner.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(folder, name)
                source = hashlib.sha256(path.read_bytes()).digest()
                digest.update(str(path.relative_to(top)).encode() + b"\0" + source)
    return digest.digest()
