"""Calls while the interpreter ends, and calls that are interrupted: each case in an interpreter of
its own. The same behaviour at every thread count."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from helpers.artifacts import environment

if TYPE_CHECKING:
    from pathlib import Path

CPUS = len(os.sched_getaffinity(0))
COUNTS = sorted({1, min(2, CPUS)})
LOADED = """if True:
    import atexit, os, signal, sys, threading, time
    import numpy as np
    import tfgraph
    model = tfgraph.load(sys.argv[1], threads=int(sys.argv[2]))
    """


def end(code: str, artifact: Path, threads: int) -> subprocess.CompletedProcess[str]:
    """Run the code to its end, which comes soon."""
    return subprocess.run(
        [sys.executable, "-c", LOADED + code, str(artifact), str(threads)],
        capture_output=True, text=True, check=False, env=environment(), timeout=60,
    )  # fmt: skip


# Threads write their tracebacks at once and piece by piece; the hook writes one line in one call.
DAEMONS = """
    def hook(raised, write=os.write):
        said, *hint = str(raised.exc_value).splitlines()
        write(2, f"{raised.exc_type.__name__}: {said}\\n".encode())
    threading.excepthook = hook
    x = model.example({"batch": 4, "seq": 100})
    begun = threading.Barrier(5)
    def loop():
        model(**x)
        begun.wait()
        while True:
            model(**x)
    for _ in range(4):
        threading.Thread(target=loop, daemon=True).start()
    begun.wait()
    time.sleep(0.05)"""


@pytest.mark.parametrize("threads", COUNTS)
@pytest.mark.parametrize("times", [3, pytest.param(30, marks=pytest.mark.long)])
def test_daemon_threads_in_the_midst_of_calls(artifact: Path, threads: int, times: int) -> None:
    for _ in range(times):
        done = end(DAEMONS, artifact, threads)
        assert done.returncode == 0, done.stderr
        refused = "TfgraphError: calling model 'small' is refused: the interpreter is ending"
        assert set(done.stderr.splitlines()) <= {refused}


LOADING = """
    def loop():
        while True:
            tfgraph.load(sys.argv[1], threads=int(sys.argv[2])).close()
    threading.Thread(target=loop, daemon=True).start()
    time.sleep(0.2)"""


@pytest.mark.parametrize("threads", COUNTS)
def test_a_daemon_thread_in_the_midst_of_loading(artifact: Path, threads: int) -> None:
    for _ in range(3):
        done = end(LOADING, artifact, threads)
        assert done.returncode == 0, done.stderr


THREAD = """
    x = model.example()
    def work():
        main.join()
        time.sleep(0.05)
        print(*model(**x))
    main = threading.current_thread()
    model(**x)
    threading.Thread(target=work).start()"""
AT_EXIT = """
    x = model.example()
    model(**x)
    atexit.register(lambda: print(*model(**x)))"""


@pytest.mark.parametrize("threads", COUNTS)
@pytest.mark.parametrize("code", [THREAD, AT_EXIT], ids=["a thread", "atexit"])
def test_calls_after_the_main_thread(artifact: Path, code: str, threads: int) -> None:
    """Those of a thread that Python waits for, and of a function for atexit."""
    done = end(code, artifact, threads)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "decoded hidden logits\n")


@pytest.mark.parametrize("threads", COUNTS)
def test_a_model_that_outlives_the_names_of_modules(artifact: Path, threads: int) -> None:
    """Python takes these away one module after another, that imported first last."""
    code = """if True:
    import sys, types
    early = types.ModuleType("early")
    sys.modules["early"] = early
    import tfgraph
    from tfgraph.runtime import ending
    early.model = tfgraph.load(sys.argv[1], threads=int(sys.argv[2]))
    early.model(**early.model.example())
    sys.kept = [early, ending]"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(artifact), str(threads)],
        capture_output=True, text=True, check=False, env=environment(), timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("threads", COUNTS)
def test_a_call_that_comes_too_late(artifact: Path, threads: int) -> None:
    code = """if True:
    import atexit, sys
    def late():
        for call in (lambda: model(**x), lambda: tfgraph.load(sys.argv[1])):
            try:
                call()
            except tfgraph.TfgraphError as error:
                print(error)
    atexit.register(late)
    import tfgraph
    model = tfgraph.load(sys.argv[1], threads=int(sys.argv[2]))
    x = model.example()
    model(**x)"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(artifact), str(threads)],
        capture_output=True, text=True, check=False, env=environment(), timeout=60,
    )  # fmt: skip
    hint = "hint: end daemon threads first; a function for atexit is registered after the first"
    said = "is refused: the interpreter is ending"
    assert done.stdout.splitlines() == [
        f"calling model 'small' {said}", f"{hint} load",
        f"loading model 'small' {said}", f"{hint} load",
    ]  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


# Interrupted: the arrays are the caller's again, so that nothing reads them any more

INTERRUPTED = """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    from tfgraph.runtime.jit import aligned_empty
    def aligned(inputs):
        copies = {name: aligned_empty(a.shape, a.dtype) for name, a in inputs.items()}
        for name, copy in copies.items():
            copy[...] = inputs[name]
        return copies
    code = model._loaded.code.program._code
    run, log = code.run, []
    def watched(*args):
        busy.set()
        log.append("begin")
        time.sleep(float(sys.argv[3]))
        result = run(*args)
        log.append("end")
        return result
    code.run = watched
    busy = threading.Event()
    x = aligned(model.example())
    most = len(os.sched_getaffinity(0)) // int(sys.argv[2])
    others = [threading.Thread(target=lambda: model(**x)) for _ in range(int(sys.argv[4]) * most)]
    for other in others:
        other.start()
    for _ in others:
        busy.wait()
    def interrupt():
        busy.wait()
        for _ in range(int(sys.argv[5])):
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        model(**x)
        print("not interrupted")
    except KeyboardInterrupt:
        at = list(log)
        time.sleep(0.3)
        print("interrupted", *at)
    except BaseException as error:
        print(repr(error))
    for other in others:
        other.join()
    print(*log)
    code.run = run
    print(*model(**x))"""


def interrupted(artifact: Path, others: int, seconds: float, times: int) -> list[str]:
    numbers = ["2", str(seconds), str(others), str(times)]
    done = subprocess.run(
        [sys.executable, "-c", LOADED + INTERRUPTED, str(artifact), *numbers],
        capture_output=True, text=True, check=False, env=environment(), timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_an_interrupted_call_that_runs_is_waited_for(artifact: Path) -> None:
    """Also when it is interrupted again."""
    assert interrupted(artifact, 0, 1.0, 2) == [
        "interrupted begin end", "begin end", "decoded hidden logits",
    ]  # fmt: skip


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_an_interrupted_call_that_waits_its_turn_never_runs(artifact: Path) -> None:
    told, log, after = interrupted(artifact, 1, 1.0, 1)
    most = CPUS // 2
    assert told.split() == ["interrupted", *["begin"] * most]
    assert sorted(log.split()) == ["begin"] * most + ["end"] * most
    assert after == "decoded hidden logits"
