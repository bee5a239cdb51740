"""Forked processes: a model loaded before is refused with a hint, one loaded after runs, and none
hangs. Each case runs in an interpreter of its own, with a time limit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from helpers.processes import python

if TYPE_CHECKING:
    from pathlib import Path

CPUS = len(os.sched_getaffinity(0))

START = """if True:
    import os, pickle, sys, threading, time, multiprocessing
    import numpy as np, tfgraph
    path, threads = sys.argv[1], int(sys.argv[2])
    model = tfgraph.load(path, threads=threads)
    inputs = model.example({"batch": 4, "seq": 65})

    def bits(outputs):
        return {name: value.tobytes() for name, value in outputs.items()}

    want = bits(model(**inputs))
    told = (
        "model 'small' was loaded before this process was forked off\\n"
        "hint: load it in this process, or start processes by 'spawn' instead of 'fork'"
    )

    def refused():
        try:
            model(**inputs)
        except tfgraph.TfgraphError as error:
            return str(error) == told
        return False

    def fresh():
        with tfgraph.load(path, threads=threads) as mine:
            return bits(mine(**inputs)) == want

    def child(work, leave=sys.exit):  # as programs end, where the main thread forks
        pid = os.fork()
        if pid == 0:
            leave(7 if work() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

CASES = {
    "one loaded before is refused": "assert child(refused) == 7",
    "one loaded after runs": "assert child(fresh) == 7",
    "one loaded after runs beside the refused one": """
    assert child(lambda: refused() and fresh() and refused() and fresh()) == 7""",
    "a child that calls nothing ends": """
    assert child(lambda: True) == 7
    time.sleep(0.2)  # now the workers sleep
    assert child(lambda: True) == 7""",
    "closing it in the child": """
    assert child(lambda: model.close() or fresh()) == 7
    assert bits(model(**inputs)) == want""",
    "the parent goes on": """
    for _ in range(5):
        assert child(fresh) == 7
        assert bits(model(**inputs)) == want""",
    "a child's child": """
    assert child(lambda: fresh() and child(lambda: refused() and fresh()) == 7) == 7""",
    "forked by another thread": """
    found = []
    for work in (refused, fresh):
        thread = threading.Thread(target=lambda: found.append(child(work, os._exit)))
        thread.start()
        thread.join()
    assert found == [7, 7], found""",
    "before the first call": """
    model = tfgraph.load(path, threads=threads)
    assert child(refused) == 7
    assert bits(model(**inputs)) == want""",
    "multiprocessing": """
    fork = multiprocessing.get_context("fork")
    with fork.Pool(2) as pool:
        assert pool.apply(refused)
        assert pool.apply(fresh)
    process = fork.Process(target=lambda: sys.exit(7 if refused() and fresh() else 1))
    process.start()
    process.join()
    assert process.exitcode == 7""",
    "while other threads load and call": """
    stop = threading.Event()

    def busy(loads):
        while not stop.is_set():
            fresh() if loads else model(**inputs)

    others = [threading.Thread(target=busy, args=(loads,)) for loads in (0, 1, 1)]
    for thread in others:
        thread.start()
    codes = {child(lambda: refused() and fresh()) for _ in range(8)}
    stop.set()
    for thread in others:
        thread.join()
    assert codes == {7}, codes""",
    "sent to another process": """
    try:
        pickle.dumps(model)
    except tfgraph.TfgraphError as error:
        assert error.message == "model 'small' cannot be copied or sent to another process"
        assert error.hint == f"load {path} there"
    else:
        raise SystemExit("pickled")""",
    "the reference runs anywhere": """
    from helpers.small_model import small_model
    model = tfgraph.compile(small_model(), "numpy")
    want = bits(model(**inputs))
    assert child(lambda: bits(model(**inputs)) == want) == 7""",
}


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.skipif(
    CPUS < 2, reason="needs two CPUs"))])  # fmt: skip
def test_fork(artifact: Path, threads: int) -> None:
    """All cases in one interpreter: what one leaves behind must not hurt the next."""
    cases = "".join(f"\n    print({name!r}, flush=True)\n    {c}" for name, c in CASES.items())
    printed = python(START + cases, str(artifact), str(threads))
    assert printed.splitlines() == list(CASES)
