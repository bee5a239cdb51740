"""Executables called from many threads at once: the right bits, no more threads than CPUs."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.contract import WEIGHTS, contract_graph, feeds
from helpers.processes import os_threads
from helpers.small_model import small_model

import tfgraph
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.backends.base import Executable

NDArray = np.ndarray[Any, Any]
CPUS = len(os.sched_getaffinity(0))
CALLERS = 8
SHAPES = [(1, 1), (1, 7), (2, 64), (3, 65), (1, 129), (5, 16), (8, 33), (16, 2)]


@pytest.fixture(scope="module", params=["numpy", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contract") / "contract.cpu.tfgraph"
    tfgraph.build(contract_graph(), "cpu", path, weights=WEIGHTS, check=False)
    return path


@pytest.fixture(scope="module")
def model(backend: str, artifact: Path) -> Iterator[Executable]:
    if backend == "cpu":
        with tfgraph.load(artifact, threads=min(2, CPUS)) as executable:
            yield executable
    else:
        yield tfgraph.compile(small_model(), backend)


@pytest.fixture(scope="module")
def other(backend: str, contract: Path) -> Iterator[Executable]:
    if backend == "cpu":
        with tfgraph.load(contract) as executable:
            yield executable
    else:
        yield tfgraph.compile(contract_graph(), backend, weights=WEIGHTS)


def bits(outputs: dict[str, NDArray]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in outputs.items()}


Job = tuple["Callable[[], dict[str, NDArray]]", dict[str, bytes]]


def jobs(model: Executable, other: Executable | None = None) -> list[Job]:
    """Calls with inputs of many shapes, and the bits that each gives when it runs alone."""
    calls: list[Callable[[], dict[str, NDArray]]] = []
    for i, (batch, seq) in enumerate(SHAPES):
        inputs = model.example({"batch": batch, "seq": seq}, seed=i)
        calls.append(lambda inputs=inputs: model(**inputs))  # type: ignore[misc]
        if other is not None:
            fed = feeds(batch, seq)
            calls.append(lambda fed=fed: other(dims={"past": 5}, **fed))  # type: ignore[misc]
    return [(call, bits(call())) for call in calls]


def hammer(work: list[Job], seconds: float) -> int:
    """Run the jobs in 8 threads for a while, each in an order of its own; how many were run."""
    end = time.monotonic() + seconds
    wrong: queue.SimpleQueue[str] = queue.SimpleQueue()
    runs = [0] * CALLERS

    def caller(k: int) -> None:
        rng = np.random.default_rng(k)
        try:
            while time.monotonic() < end or not runs[k]:
                at = int(rng.integers(len(work)))
                call, want = work[at]
                if bits(call()) != want:
                    wrong.put(f"job {at} gave other bits")
                runs[k] += 1
        except Exception as error:
            wrong.put(repr(error))

    together([lambda k=k: caller(k) for k in range(CALLERS)])  # type: ignore[misc]
    assert wrong.empty(), wrong.get()
    return sum(runs)


def together(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_eight_threads_call_one_executable_on_different_shapes(model: Executable) -> None:
    assert hammer(jobs(model), 2) >= CALLERS


@pytest.mark.long
def test_eight_threads_call_one_executable_for_a_minute(model: Executable) -> None:
    assert hammer(jobs(model), 60) > 1000


def test_two_models_in_one_process(model: Executable, other: Executable) -> None:
    assert hammer(jobs(model, other), 1.5) >= CALLERS


def test_two_models_of_different_thread_counts(artifact: Path) -> None:
    with tfgraph.load(artifact, threads=1) as one, tfgraph.load(artifact, threads=CPUS) as most:
        work = [*jobs(one), *jobs(most)]
        half = len(work) // 2
        assert [want for _, want in work[:half]] == [want for _, want in work[half:]]
        assert hammer(work, 1) >= CALLERS


def test_others_run_while_kernels_do(model: Executable) -> None:
    """The GIL is free: a thread that needs it again and again gets on during one call."""
    inputs = model.example({"batch": 32, "seq": 200})
    stop = threading.Event()
    counted = 0

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(1e-4)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        for _ in range(50):  # were it held, at most a step or two would fit around each call
            before = counted
            model(**inputs)
            if counted - before >= 10:
                return
    finally:
        stop.set()
        counter.join()
    pytest.fail("no other thread ran during 50 calls")


def test_closing_while_others_call(contract: Path) -> None:
    """Each call gives the right bits, or says that the model is closed."""
    inputs = {(batch, seq): feeds(batch, seq) for batch, seq in SHAPES}
    with tfgraph.load(contract) as model:
        want = {shape: bits(model(dims={"past": 5}, **fed)) for shape, fed in inputs.items()}
    wrong: list[str] = []
    for round_ in range(8):
        model = tfgraph.load(contract, threads=1 + round_ % CPUS)
        started = threading.Barrier(CALLERS + 1)

        def call(model: Executable = model, started: threading.Barrier = started) -> None:
            started.wait()
            try:
                while True:
                    for shape, fed in inputs.items():
                        if bits(model(dims={"past": 5}, **fed)) != want[shape]:
                            wrong.append(f"other bits at {shape}")
            except TfgraphError as error:
                if error.message != "model 'contract' is closed":
                    wrong.append(error.message)

        def close(model: Executable = model, started: threading.Barrier = started) -> None:
            started.wait()
            time.sleep(0.02)
            model.close()
            model.close()

        together([call] * CALLERS + [close])
    assert wrong == []


def test_a_closed_model_stays_closed(contract: Path) -> None:
    fed = feeds(1, 2)
    with tfgraph.load(contract) as model:
        model(dims={"past": 1}, **fed)
    for _ in range(2):
        with pytest.raises(TfgraphError) as error:
            model(dims={"past": 1}, **fed)
        assert error.value.message == "model 'contract' is closed"
        model.close()
    assert repr(model).startswith("<contract for cpu")


# How many threads of the system there are, and what they do when nobody calls


def run_by(callers: int, model: Executable) -> None:
    inputs = model.example({"batch": 4, "seq": 65})
    together([lambda: bits(model(**inputs))] * callers)  # type: ignore[list-item]


def settled(before: dict[int, int]) -> dict[int, int]:
    """The threads that were not there before, when those that are ending have ended."""
    found = os_threads()
    for _ in range(100):
        time.sleep(0.01)
        found, last = os_threads(), found
        if found.keys() == last.keys():
            break
    return {thread: time for thread, time in found.items() if thread not in before}


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_callers_bring_no_threads_of_their_own(artifact: Path) -> None:
    """NumPy's pool beside them stays as it is, too: no more run at once than there are CPUs."""
    a = np.ones((600, 600), np.float32)
    a @ a  # NumPy has its threads now
    with tfgraph.load(artifact, threads=2) as model:
        before = os_threads()
        run_by(1, model)
        one = len(settled(before))
        run_by(CALLERS, model)
        a @ a
        run_by(3 * CALLERS, model)
        many = len(settled(before))
    assert one <= 2  # a launcher and its worker; none where another test left them
    assert many <= 2 * (CPUS // 2)


def test_one_thread_is_the_caller_alone(artifact: Path) -> None:
    with tfgraph.load(artifact, threads=1) as model:
        before = os_threads()
        run_by(CALLERS, model)
        assert settled(before) == {}


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_workers_sleep_when_nobody_calls(artifact: Path) -> None:
    """They look for work for about a millisecond first, of CPU time; TVM's own setting takes 30 to
    120, from whatever else runs."""
    with tfgraph.load(artifact, threads=2) as model:
        inputs = model.example({"batch": 8, "seq": 65})
        spent: list[float] = []
        for _ in range(10):
            model(**inputs)
            after = os_threads()
            assert asleep()
            now = os_threads()
            me = threading.get_native_id()
            spent.append(sum(now[t] - after[t] for t in after if t in now and t != me) / 1e6)
    assert min(spent) < 10, "milliseconds of CPU time after a call"


def asleep() -> bool:
    """Wait until all threads but this one sleep; whether they ever do."""
    for _ in range(2000):
        time.sleep(0.005)
        me = threading.get_native_id()
        others = [Path(f"/proc/self/task/{t}/stat") for t in os_threads() if t != me]
        try:
            states = [path.read_text().rpartition(")")[2].split()[0] for path in others]
        except OSError:  # one has just ended
            continue
        if "R" not in states:
            return True
    return False
