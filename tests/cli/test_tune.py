"""`compile --tune`: a real run on a tiny model, the budget, what is known, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.cache import SCHEDULES, Cache

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = ("--no-verify", "--no-prove", "-o", "out")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TFGRAPH_CACHE", str(folder))
    return folder


def test_tune_measures_and_keeps_what_it_finds(tfgraph: Callable[..., Any], cache: Path) -> None:
    found = tfgraph("compile", "tiny.tfg", "--tune", "--threads", 1, "--json", *QUICK)
    assert found.code == 0, found.err
    tuning = found.json["tuning"]
    (entry,) = tuning["tuned"]
    assert (entry["kernel"], entry["rows"], tuning["missed"]) == ("8 x 4", [1, 3, 16, 128], [])
    assert entry["tried"] >= 6
    assert entry["changed"] is (entry["speedup"] > 1)
    assert Path(tuning["database"]) == cache / SCHEDULES
    assert (
        entry["schedule"]
        == json.loads(Path("out/manifest.json").read_text())["schedules"]["linear"]
    )
    known = (cache / SCHEDULES).read_text()
    assert '"8 x 4": {' in known

    # What is known is not measured again, nor an entry of the cache, which drops what is old.
    again = tfgraph("compile", "tiny.tfg", "--tune", "--threads", 1, "--json", *QUICK)
    (entry,) = again.json["tuning"]["tuned"]
    assert (entry["tried"], entry["speedup"]) == (0, None)
    small = Cache(cache, limit=0)
    small.put("kind", b"data", "key")
    assert small.size() == (0, 0)
    assert (cache / SCHEDULES).read_text() == known
    assert "known" in again.err


def test_the_time_may_not_suffice(tfgraph: Callable[..., Any], cache: Path) -> None:
    found = tfgraph("compile", "tiny.tfg", "--tune", "--tune-seconds", 0, "--json", *QUICK)
    assert found.code == 0
    assert found.json["tuning"]["missed"] == ["8 x 4"]
    assert "0 s did not suffice for 8 x 4" in found.err
    assert not (cache / SCHEDULES).exists()


def test_a_database_of_ones_own(tfgraph: Callable[..., Any]) -> None:
    from tfgraph.backends.tvm.cpu.gemm_tile import tiles_of
    from tfgraph.backends.tvm.target import cpu_machine

    tile = tiles_of(cpu_machine())[-1]
    entry = {"columns": tile.columns, "rows": 8, "ahead": 0, "threads": 1}
    Path("own.json").write_text(json.dumps({cpu_machine().mcpu: {"8 x 4": entry}}))
    assert tfgraph("compile", "tiny.tfg", "--tune-database", "own.json", *QUICK).code == 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["schedules"] == {"linear": f"{tile}, 8 rows, 0 ahead"}
    assert "own.json" not in " ".join(manifest["command"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--tune-seconds", "3"], 2, "--tune-seconds is for --tune"),
        (["--tune", "--target", "cuda", "--arch", "sm_90"], 2, "--tune is for --target cpu"),
        (["--tune-database", "f", "--target", "cuda"], 2, "--tune-database is for --target cpu"),
        (["--tune", "--no-cache"], 2, "--tune-database FILE"),
        (["--tune", "--mcpu", "haswell"], 3, "not 'haswell'"),
        (["--tune-database", "tiny.tfg"], 2, "no database of schedules"),
    ],
)
def test_what_is_refused(
    tfgraph: Callable[..., Any], arguments: list[str], code: int, message: str
) -> None:
    found = tfgraph("compile", "tiny.tfg", *arguments, *QUICK)
    assert found.code == code
    assert message in found.err
    assert not Path("out").exists()
