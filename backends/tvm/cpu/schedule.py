"""How a GEMM goes through its work, and which way is known to be fast on which CPU.

A database of schedules is a JSON object: by LLVM's name of a CPU, then by the shape "K x N" of the
weight, a schedule and how many threads it was measured with. One ships with the package; one of the
user's own, which `tfgraph compile --tune` writes, comes before it. May import: errors.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tfgraph.errors import TfgraphError


@dataclass(frozen=True, order=True)
class Schedule:
    """The order and the grain of a GEMM's work. None of it changes a bit of the result: every
    element adds the same products in the same order.

    `vectors` are the vector registers across a tile, which give its columns and rows (`tile_for`).
    `rows` are those that a task computes of one panel: few share a small GEMM among many threads,
    and keep the results in the first-level cache for the epilogue; many read the panel less often.
    `ahead` is how many rows of a panel the weights are fetched ahead: the CPU's own prefetching
    stops at every page. 0: they are not.
    """

    vectors: int
    rows: int
    ahead: int

    def __str__(self) -> str:
        return f"{self.vectors} vectors, {self.rows} rows, {self.ahead} ahead"


DEFAULT = Schedule(vectors=3, rows=16, ahead=64)
SCHEDULE = "tfgraph.schedule"
"""The attribute of a kernel that tells its schedule."""

SHIPPED = Path(__file__).with_name("schedules.json")
LIMITS = {"vectors": (1, 4), "rows": (1, 4096), "ahead": (0, 4096)}
"""The least and the most of each number; every CPU has registers for a tile of 4 vectors."""

WeightShape: TypeAlias = tuple[int, int]
_SHAPE = re.compile(r"([1-9]\d{0,8}) x ([1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True)
class Measured:
    """The schedule that was the fastest with so many threads."""

    schedule: Schedule
    threads: int


def known_schedules(mcpu: str, own: Path | None = None) -> dict[WeightShape, Schedule]:
    """The schedules of a CPU by weight: those of the user's `own` file, then those that ship.
    Raises TfgraphError for a file that is no such database."""
    found = read_schedules(SHIPPED, mcpu) | (read_schedules(own, mcpu) if own else {})
    return {shape: measured.schedule for shape, measured in found.items()}


def read_schedules(path: Path, mcpu: str) -> dict[WeightShape, Measured]:
    """What a database says of a CPU; nothing where there is no such file. Raises TfgraphError."""
    return {
        shape: Measured(Schedule(**{name: entry[name] for name in LIMITS}), entry["threads"])
        for shape, entry in _checked(path).get(mcpu, {}).items()
    }


def write_schedules(path: Path, mcpu: str, found: Mapping[WeightShape, Measured]) -> None:
    """Add to a database, or begin it. Raises TfgraphError where it cannot be written."""
    every = _checked(path)
    every.setdefault(mcpu, {}).update(
        {shape: {**asdict(m.schedule), "threads": m.threads} for shape, m in found.items()}
    )
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


def _lines(entries: Mapping[WeightShape, Mapping[str, int]]) -> str:
    """One weight a line, so that a change is easy to read."""
    lines = [f'  "{k} x {n}": {json.dumps(entries[k, n])}' for k, n in sorted(entries)]
    return ",\n".join(lines)


def _checked(path: Path) -> dict[str, dict[WeightShape, dict[str, int]]]:
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
            _is(cpu, str): {_shape(key): _entry(entry) for key, entry in _is(shapes, dict).items()}
            for cpu, shapes in _is(given, dict).items()
        }
    except (ValueError, RecursionError) as cause:
        hint = "tfgraph compile --tune writes such files; delete this one to begin anew"
        raise TfgraphError(f"{path} is no database of schedules: {cause}", hint=hint) from cause


def _entry(given: Any) -> dict[str, int]:
    entry: dict[str, int] = _is(given, dict)
    limits = LIMITS | {"threads": (1, 1 << 16)}
    if set(entry) != set(limits):
        raise ValueError(f"expected {', '.join(limits)}, got {', '.join(map(repr, entry))}")
    for name, (least, most) in limits.items():
        if type(entry[name]) is not int or not least <= entry[name] <= most:
            raise ValueError(f"{name}: expected {least} to {most}, got {entry[name]!r}")
    return entry


def _shape(key: str) -> WeightShape:
    found = _SHAPE.fullmatch(key)
    if found is None:
        raise ValueError(f"expected a weight's shape such as '768 x 3072', got {key!r}")
    return int(found[1]), int(found[2])


def _is(given: Any, kind: type) -> Any:
    if not isinstance(given, kind):
        raise ValueError(f"expected {'an object' if kind is dict else 'a name'}, got {given!r}")
    return given
