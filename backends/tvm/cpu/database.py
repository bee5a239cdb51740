"""Which schedules are known to be fast on which CPU.

A database is a JSON object: by LLVM's name of a CPU, then by what a kernel works on, a schedule and
how many threads it was measured with. One ships with the package; one of the user's own, which
`tfgraph compile --tune` writes, comes before it. May import: gemm_tile, schedule, target, errors.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tfgraph.backends.tvm.cpu.gemm_tile import tiles_of
from tfgraph.backends.tvm.cpu.schedule import AttentionSchedule, Schedule
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.backends.tvm.target import CpuMachine

SHIPPED = Path(__file__).with_name("schedules.json")


class WeightShape(NamedTuple):
    """What a GEMM works on: a weight [k, n]."""

    k: int
    n: int

    def __str__(self) -> str:
        return f"{self.k} x {self.n}"


@dataclass(frozen=True, order=True)
class HeadShape:
    """What attention works on: heads of queries and keys, and of values, that are so wide."""

    width: int
    value_width: int

    def __str__(self) -> str:
        return f"attention {self.width} x {self.value_width}"


Key: TypeAlias = WeightShape | HeadShape
AnySchedule: TypeAlias = Schedule | AttentionSchedule

_THREADS = {"threads": (1, 1 << 16)}
LIMITS: dict[type[Key], dict[str, tuple[int, int]]] = {
    WeightShape: {"columns": (1, 256), "rows": (1, 4096), "ahead": (0, 4096), **_THREADS},
    HeadShape: {"vectors": (1, 3), "together": (1, 64), "copied": (0, 1), **_THREADS},
}
"""The least and the most of each number of an entry; `columns` are those of the tile."""

_KEY = re.compile(r"(attention )?([1-9]\d{0,8}) x ([1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True)
class Measured:
    """The schedule that was the fastest with so many threads."""

    schedule: AnySchedule
    threads: int


def known_schedules(machine: CpuMachine, own: Path | None = None) -> dict[Key, AnySchedule]:
    """The schedules of a CPU: those of the user's `own` file, then those that ship. Raises
    TfgraphError for a file that is no such database."""
    found = read_schedules(SHIPPED, machine) | (read_schedules(own, machine) if own else {})
    return {key: measured.schedule for key, measured in found.items()}


def read_schedules(path: Path, machine: CpuMachine) -> dict[Key, Measured]:
    """What a database says of a CPU; nothing where there is no such file. Raises TfgraphError."""
    tiles = {tile.columns: tile for tile in tiles_of(machine)}

    def schedule(key: Key, entry: Mapping[str, int]) -> AnySchedule:
        if isinstance(key, HeadShape):
            return AttentionSchedule(entry["vectors"], entry["together"], bool(entry["copied"]))
        tile = tiles.get(entry["columns"])
        if tile is None:
            known = " and ".join(map(str, tiles.values()))
            raise _refused(path, f"no tile has {entry['columns']} columns; there are {known}")
        return Schedule(tile, entry["rows"], entry["ahead"])

    entries = _checked(path).get(machine.mcpu, {})
    return {key: Measured(schedule(key, e), e["threads"]) for key, e in entries.items()}


def write_schedules(path: Path, machine: CpuMachine, found: Mapping[Key, Measured]) -> None:
    """Add to a database, or begin it. Raises TfgraphError where it cannot be written."""
    every = _checked(path)
    every.setdefault(machine.mcpu, {}).update({key: _numbers(m) for key, m in found.items()})
    cpus = [f" {json.dumps(name)}: {{\n{_lines(every[name])}\n }}" for name in sorted(every)]
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_text("{\n" + ",\n".join(cpus) + "\n}\n", encoding="utf-8")
        part.replace(path)
    except OSError as cause:
        with suppress(OSError):
            part.unlink()
        raise TfgraphError(f"schedules cannot be written to {path}: {cause.strerror}") from cause


def _numbers(measured: Measured) -> dict[str, int]:
    """The entry of a schedule."""
    found, threads = measured.schedule, {"threads": measured.threads}
    if isinstance(found, Schedule):
        return {"columns": found.tile.columns, "rows": found.rows, "ahead": found.ahead} | threads
    copied = int(found.copied)
    return {"vectors": found.vectors, "together": found.together, "copied": copied} | threads


def _lines(entries: Mapping[Key, Mapping[str, int]]) -> str:
    """One entry a line, so that a change is easy to read; GEMMs first."""
    weights = sorted(key for key in entries if isinstance(key, WeightShape))
    heads = sorted(key for key in entries if isinstance(key, HeadShape))
    keys: list[Key] = [*weights, *heads]
    return ",\n".join(f'  "{key}": {json.dumps(entries[key])}' for key in keys)


def _checked(path: Path) -> dict[str, dict[Key, dict[str, int]]]:
    """All of a database, every number of it in range; empty where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as cause:
        raise TfgraphError(f"schedules cannot be read from {path}: {cause}") from cause
    try:
        given = json.loads(text)
        return {
            _is(cpu, str): dict(_entry(*item) for item in _is(entries, dict).items())
            for cpu, entries in _is(given, dict).items()
        }
    except (ValueError, RecursionError) as cause:
        raise _refused(path, str(cause)) from cause


def _refused(path: Path, reason: str) -> TfgraphError:
    hint = "tfgraph compile --tune writes such files; delete this one to begin anew"
    return TfgraphError(f"{path} is no database of schedules: {reason}", hint=hint)


def _entry(text: str, given: Any) -> tuple[Key, dict[str, int]]:
    key = _key(text)
    entry: dict[str, int] = _is(given, dict)
    limits = LIMITS[type(key)]
    if set(entry) != set(limits):
        raise ValueError(f"expected {', '.join(limits)}, got {', '.join(map(repr, entry))}")
    for name, (least, most) in limits.items():
        if type(entry[name]) is not int or not least <= entry[name] <= most:
            raise ValueError(f"{name}: expected {least} to {most}, got {entry[name]!r}")
    return key, entry


def _key(text: str) -> Key:
    found = _KEY.fullmatch(text)
    if found is None:
        raise ValueError(
            f"expected a weight's shape such as '768 x 3072', or heads such as "
            f"'attention 64 x 64', got {text!r}"
        )
    return (HeadShape if found[1] else WeightShape)(int(found[2]), int(found[3]))


def _is(given: Any, kind: type) -> Any:
    if not isinstance(given, kind):
        raise ValueError(f"expected {'an object' if kind is dict else 'a name'}, got {given!r}")
    return given
