"""How a GEMM goes through its work, and which way is known to be fast on which CPU.

A database of schedules is a JSON object: by LLVM's name of a CPU, then by the shape "K x N" of the
weight, a schedule and how many threads it was measured with. One ships with the package; one of the
user's own, which `tfgraph compile --tune` writes, comes before it. May
import: gemm_tile, target, errors.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgraph.backends.tvm.cpu.gemm_tile import Tile, tile_for, tiles_of
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.backends.tvm.target import CpuMachine


@dataclass(frozen=True)
class Schedule:
    """The order and the grain of a GEMM's work. None of it changes a bit of the result: every
    element adds the same products in the same order.

    `tile` is what is summed in registers at a time; weights lie in panels of its width. `rows` are
    those that a task computes of one panel: few share a small GEMM among many threads, and keep the
    results in the first-level cache for the epilogue; many read the panel less often. `ahead` is
    how many rows of a panel the weights are fetched ahead: the CPU's own prefetching stops at every
    page. 0: they are not.
    """

    tile: Tile
    rows: int = 16
    ahead: int = 64

    def __str__(self) -> str:
        return f"{self.tile}, {self.rows} rows, {self.ahead} ahead"


def default_schedule(machine: CpuMachine, n: int) -> Schedule:
    """That of a weight of `n` columns of which nothing is known: the tile that pads it least."""
    return Schedule(tile_for(machine, n))


SCHEDULE = "tfgraph.schedule"
"""The attribute of a kernel that tells its schedule."""

SHIPPED = Path(__file__).with_name("schedules.json")
LIMITS = {"columns": (1, 256), "rows": (1, 4096), "ahead": (0, 4096), "threads": (1, 1 << 16)}
"""The least and the most of each number of an entry; `columns` are those of the tile."""

WeightShape: TypeAlias = tuple[int, int]
_SHAPE = re.compile(r"([1-9]\d{0,8}) x ([1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True)
class Measured:
    """The schedule that was the fastest with so many threads."""

    schedule: Schedule
    threads: int


def known_schedules(machine: CpuMachine, own: Path | None = None) -> dict[WeightShape, Schedule]:
    """The schedules of a CPU by weight: those of the user's `own` file, then those that ship.
    Raises TfgraphError for a file that is no such database."""
    found = read_schedules(SHIPPED, machine) | (read_schedules(own, machine) if own else {})
    return {shape: measured.schedule for shape, measured in found.items()}


def read_schedules(path: Path, machine: CpuMachine) -> dict[WeightShape, Measured]:
    """What a database says of a CPU; nothing where there is no such file. Raises TfgraphError."""
    tiles = {tile.columns: tile for tile in tiles_of(machine)}
    found: dict[WeightShape, Measured] = {}
    for shape, entry in _checked(path).get(machine.mcpu, {}).items():
        tile = tiles.get(entry["columns"])
        if tile is None:
            known = " and ".join(map(str, tiles.values()))
            raise _refused(path, f"no tile has {entry['columns']} columns; there are {known}")
        found[shape] = Measured(Schedule(tile, entry["rows"], entry["ahead"]), entry["threads"])
    return found


def write_schedules(path: Path, machine: CpuMachine, found: Mapping[WeightShape, Measured]) -> None:
    """Add to a database, or begin it. Raises TfgraphError where it cannot be written."""
    every = _checked(path)
    every.setdefault(machine.mcpu, {}).update(
        {
            shape: {
                "columns": measured.schedule.tile.columns,
                "rows": measured.schedule.rows,
                "ahead": measured.schedule.ahead,
                "threads": measured.threads,
            }
            for shape, measured in found.items()
        }
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
        raise _refused(path, str(cause)) from cause


def _refused(path: Path, reason: str) -> TfgraphError:
    hint = "tfgraph compile --tune writes such files; delete this one to begin anew"
    return TfgraphError(f"{path} is no database of schedules: {reason}", hint=hint)


def _entry(given: Any) -> dict[str, int]:
    entry: dict[str, int] = _is(given, dict)
    if set(entry) != set(LIMITS):
        raise ValueError(f"expected {', '.join(LIMITS)}, got {', '.join(map(repr, entry))}")
    for name, (least, most) in LIMITS.items():
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
