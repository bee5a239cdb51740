"""How many threads: what may be asked for, and the default under affinity and CPU quotas."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from helpers.contract import WEIGHTS, contract_graph
from helpers.processes import python

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.runtime import cores, launchers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the files of a machine with four logical CPUs on two cores."""
    monkeypatch.setattr(cores, "available_cores", lambda: [0, 1, 2, 3])
    for cpu in range(4):
        siblings = f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        write(tmp_path, siblings, f"{cpu % 2},{cpu % 2 + 2}\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_one_thread_a_core(machine: Path, tmp_path: Path) -> None:
    assert cores.default_threads(machine) == 2
    assert cores.default_threads(tmp_path / "without such files") == 4


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        ("max 100000", 2),
        ("150000 100000", 1),
        ("20000 100000", 1),
        ("200000 100000", 2),
        ("800000 100000", 2),
        ("50000 25000", 2),
        ("100000 0", 2),
        ("", 2),
        ("nonsense", 2),
    ],
)
def test_a_quota(machine: Path, limit: str, want: int) -> None:
    write(machine, "proc/self/cgroup", "0::/\n")
    write(machine, "sys/fs/cgroup/cpu.max", f"{limit}\n")
    assert cores.default_threads(machine) == want


def test_the_quota_of_a_group_around_this_one(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/system.slice/model.service\n")
    base = "sys/fs/cgroup/system.slice"
    write(machine, f"{base}/model.service/cpu.max", "max 100000\n")
    assert cores.default_threads(machine) == 2
    write(machine, f"{base}/cpu.max", "100000 100000\n")
    assert cores.default_threads(machine) == 1
    write(machine, f"{base}/cpu.max", "max 100000\n")
    write(machine, f"{base}/model.service/cpu.max", "100000 100000\n")
    assert cores.default_threads(machine) == 1


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/", "cpu"),  # its own tree
        ("/", "cpu,cpuacct"),  # two controllers together, of which "cpu" may be a link
        ("/docker/0123", "cpu,cpuacct"),  # a path of the host: here the top is the group itself
        ("/a/b", "cpu/a/b"),
        ("/a/b", "cpu/a"),
    ],
)
def test_a_quota_of_version_1(machine: Path, path: str, folder: str) -> None:
    write(machine, "proc/self/cgroup", f"5:memory:/\n3:cpu,cpuacct:{path}\n0::/elsewhere\n")
    write(machine, f"sys/fs/cgroup/{folder}/cpu.cfs_period_us", "100000\n")
    for quota, want in (("-1", 2), ("100000", 1), ("250000", 2), ("10000", 1)):
        write(machine, f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us", f"{quota}\n")
        assert cores.default_threads(machine) == want


def test_the_tightest_of_both_versions(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "3:cpu:/\n0::/\n")
    write(machine, "sys/fs/cgroup/cpu.max", "200000 100000\n")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n")
    assert cores.default_threads(machine) == 1


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("threads", [0, -1, 100_000, 1.5, "2"])
def test_what_cannot_be_had_is_refused(backend: str, threads: Any) -> None:
    most = len(os.sched_getaffinity(0))
    with pytest.raises(TfgraphError) as error:
        tfgraph.compile(contract_graph(), backend, weights=WEIGHTS, threads=threads)
    assert error.value.message == (
        f"threads: expected 1 to {most}, the CPUs this process may use; got {threads!r}"
    )


AFFINITY = """if True:
    import os, sys
    import numpy as np, tfgraph
    from pathlib import Path
    from helpers.processes import os_threads
    one = {min(os.sched_getaffinity(0))}
    if sys.argv[2] == "process":
        os.sched_setaffinity(0, one)  # as taskset does before a program starts
    model = tfgraph.load(sys.argv[1])
    before = set(os_threads())
    inputs = model.example({"batch": 4, "seq": 65})
    model(**inputs)
    if sys.argv[2] == "process":
        assert model._loaded.code.program.threads == 1
        assert set(os_threads()) == before, "one CPU needs no further thread"
        try:
            tfgraph.load(sys.argv[1], threads=2)
        except tfgraph.TfgraphError as error:
            assert "expected 1 to 1, the CPUs this process may use; got 2" in str(error)
        else:
            raise SystemExit("two threads on one CPU")
    allowed = os.sched_getaffinity(0)
    for thread in set(os_threads()) - before:
        assert os.sched_getaffinity(thread) == allowed, thread
    # A model that is loaded when fewer CPUs are left runs on those, beside one loaded before.
    os.sched_setaffinity(0, one)
    also = tfgraph.load(sys.argv[1])
    assert also._loaded.code.program.threads == 1
    assert os.sched_getaffinity(0) == one
    want, got = model(**inputs), also(**inputs)
    assert os.sched_getaffinity(0) == one
    assert all(want[name].tobytes() == got[name].tobytes() for name in want)
    print("done")"""


@pytest.mark.parametrize("pinned", ["process", "later"])
def test_the_affinity_of_the_process_is_respected(artifact: Path, pinned: str) -> None:
    assert python(AFFINITY, str(artifact), pinned) == "done\n"


def test_launchers_of_other_cpus_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with two CPUs: nothing is started before the first call."""
    monkeypatch.setattr(launchers, "_made", {})
    served = []
    for allowed in ([0, 1], [0, 1], [2, 3]):
        monkeypatch.setattr(launchers, "available_cores", lambda found=allowed: found)
        served.append(launchers.launchers(2).__self__)  # type: ignore[attr-defined]
    assert served[0] is served[1]
    assert served[2] is not served[0]
    assert [one._cores for one in served[1:]] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("quota", "threads", "most"), [(2, 2, 1), (5, 2, 2), (64, 2, 32), (1, 4, 1)]
)
def test_as_many_calls_at_once_as_a_quota_pays_for(
    quota: int, threads: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 64 CPUs: not as many kernel threads as there are CPUs, but as the quota keeps busy."""
    monkeypatch.setattr(launchers, "cpu_budget", lambda: min(64, quota))
    made = launchers._Launchers(threads, list(range(64)))
    assert made._most == most
