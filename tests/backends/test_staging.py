"""At the artifact's place there is nothing or a whole artifact, whatever becomes of the process
that makes it: killed, interrupted, out of disk, or one of two that write there at once."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from helpers.artifacts import check_whole, contents, environment
from helpers.compiling import MODEL, compiler, graph, others

import tfgraph
from tfgraph.backends import staging
from tfgraph.backends.artifact import record_verification, write_artifact
from tfgraph.backends.base import Target
from tfgraph.backends.staging import Staging
from tfgraph.backends.tvm.cpu.backend import CpuBackend
from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout

if TYPE_CHECKING:
    from tfgraph.backends.base import Built


def nothing_or_whole(folder: Path) -> bool:
    """Whether there is an artifact; if so it is whole, and whatever else is there says partial."""
    for name in others(folder):
        assert name.startswith(".out.tfgraph."), name
        assert name.endswith(".partial"), name
    final = folder / "out.tfgraph"
    if final.exists():
        check_whole(final)
    return final.exists()


# Killed


@pytest.fixture(scope="module")
def built() -> Built:
    made = graph()
    weights = {"w": np.ones((64, 4000), np.float32)}
    found = CpuBackend().build(made, weights, Target("cpu"))
    return replace(found, files=found.make_files(), make_files=dict)  # compiled once


def with_note(made: Built, text: bytes) -> Built:
    """It, with a file that tells artifacts apart."""
    return replace(made, files={**made.files, "note.txt": text})


def write(folder: Path, made: Built, text: bytes = b"") -> None:
    """What `build` does once the code is there."""
    g = graph()
    with Staging(folder / "out.tfgraph") as stage:
        with stage.writing():
            write_artifact(stage.folder, g, g, with_note(made, text), Target("cpu"), [])
            record = {"against": "numpy", "ok": None, "reason": "not run", "dims": []}
            record_verification(stage.folder, record)
        stage.publish()


@pytest.mark.parametrize("earlier", [False, True])
def test_killed_before_any_operation_on_a_file(tmp_path: Path, built: Built, earlier: bool) -> None:
    """The writer is killed before its first operation, its second, ... up to the last."""
    if earlier:
        write(tmp_path, built, b"earlier")
    held = 0
    for count in range(1000):
        child = os.fork()
        if child == 0:
            _die_at(count)
            write(tmp_path, built, b"new")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        held += bool(others(tmp_path))
        exists = nothing_or_whole(tmp_path)
        assert exists or not earlier
        new = exists and (tmp_path / "out.tfgraph" / "note.txt").read_bytes() == b"new"
        if not os.WIFSIGNALED(status):
            break
        if new:  # renamed already: what follows is tidying up
            shutil.rmtree(tmp_path / "out.tfgraph")
            write(tmp_path, built, b"earlier") if earlier else None
    assert os.WEXITSTATUS(status) == 0
    assert new
    assert count > 20
    assert held > 15  # it was killed in the midst of it
    assert others(tmp_path) == []  # the last one removed what all the others had left


def _die_at(count: int) -> None:
    left = [count]

    def hook(event: str, _args: object) -> None:
        if event in ("open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "os.listdir"):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_killed_at_random_moments(tmp_path: Path, times: int) -> None:
    """Over as long as a compilation takes here; the moments are drawn anew each time."""
    start = time.perf_counter()
    first = compiler(tmp_path, "g", "--no-verify", "-q")
    assert first.wait() == 0, first.communicate()[1]
    whole = time.perf_counter() - start
    expected = contents(tmp_path / "out.tfgraph")
    shutil.rmtree(tmp_path / "out.tfgraph")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {whole:.1f} s a compilation")
    chance = random.Random(seed)
    for _ in range(times):
        process = compiler(tmp_path, "g", "--no-verify", "-q")
        time.sleep(chance.uniform(0, 1.1 * whole))
        process.kill()
        process.communicate()
        if nothing_or_whole(tmp_path):
            assert contents(tmp_path / "out.tfgraph") == expected
            shutil.rmtree(tmp_path / "out.tfgraph")
    last = compiler(tmp_path, "g", "--no-verify", "-q")
    assert last.wait() == 0
    last.communicate()
    assert others(tmp_path) == []  # left behind by those that were killed, and removed by this one
    tfgraph.load(tmp_path / "out.tfgraph").close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.long)])
def test_interrupted_at_random_moments(tmp_path: Path, number: signal.Signals, times: int) -> None:
    """From when its folder is there: it is gone afterwards, and the exit code says why."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(times):
        process = compiler(tmp_path)
        while process.poll() is None and not others(tmp_path):
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 1.5))
        process.send_signal(number)
        out, err = process.communicate()
        expected = {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
        assert "Traceback" not in err
        assert others(tmp_path) == []
        if nothing_or_whole(tmp_path):
            shutil.rmtree(tmp_path / "out.tfgraph")
            # It was done, or even ended already, when the signal came.
            assert process.returncode in (expected, 0, -number), err
        else:
            assert process.returncode == expected, err
            assert number == signal.SIGTERM or err.splitlines()[-1] == "interrupted", (out, err)


def test_only_what_was_left_behind_is_removed(tmp_path: Path, built: Built) -> None:
    """Not the folder of a process at work, nor what others may have put beside it."""
    kept = [
        ".out.tfgraph.partial",
        ".out2.tfgraph.0.partial",
        "out.tfgraph.0.partial",
        ".x.partial",
        ".out.tfgraph.backup.partial",
        ".out.tfgraph.0123abc.partial",
        ".out.tfgraph.0123abcd.1.partial",
        ".out.tfgraph.2024.0123abcd.partial",
        ".out.tfgraph.0123ABCD.partial",
    ]
    for name in [".out.tfgraph.0123abcd.partial", *kept]:
        (tmp_path / name / "kernels").mkdir(parents=True)
        (tmp_path / name / "kernels" / "main.o").write_bytes(b"x")
    (tmp_path / ".out.tfgraph.00000001.partial").write_text("a file")
    (tmp_path / ".out.tfgraph.00000002.partial").symlink_to(tmp_path / ".x.partial")
    with Staging(tmp_path / "out.tfgraph") as at_work:
        (at_work.folder / "file").write_text("x")
        write(tmp_path, built)
        assert (at_work.folder / "file").read_text() == "x"
    kept += [".out.tfgraph.00000001.partial", ".out.tfgraph.00000002.partial"]
    assert sorted(others(tmp_path)) == sorted(kept)
    assert (tmp_path / ".x.partial" / "kernels" / "main.o").exists()


def test_names_with_the_letters_of_patterns(tmp_path: Path) -> None:
    final = tmp_path / "a[b]*?.tfgraph"
    left = tmp_path / ".a[b]*?.tfgraph.00000000.partial"
    other = tmp_path / ".ab--.tfgraph.00000000.partial"
    left.mkdir()
    other.mkdir()
    with Staging(final):
        pass
    assert [p.name for p in tmp_path.iterdir()] == [other.name]


@pytest.mark.parametrize("letter", ["x", "\N{LATIN SMALL LETTER U WITH DIAERESIS}"])
def test_names_as_long_as_file_systems_take(tmp_path: Path, built: Built, letter: str) -> None:
    """255 bytes; what is left behind there is removed, what belongs to another long name is not."""
    name = f"{letter * (247 // len(letter.encode()))}.tfgraph"
    with Staging(tmp_path / name) as stage:
        left = stage.folder
    with Staging(tmp_path / f"y{name[1:]}") as stage:
        other = stage.folder
    left.mkdir()
    other.mkdir()
    for text in (b"first", b"second"):
        with Staging(tmp_path / name) as stage:
            g = graph()
            write_artifact(stage.folder, g, g, with_note(built, text), Target("cpu"), [])
            stage.publish()
        assert (tmp_path / name / "note.txt").read_bytes() == text
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, other.name])


def test_a_link_is_written_through(tmp_path: Path, built: Built) -> None:
    (tmp_path / "releases").mkdir()
    (tmp_path / "out.tfgraph").symlink_to("releases/1.tfgraph")
    with Staging(tmp_path / "out.tfgraph") as stage:
        assert stage.folder.parent == tmp_path / "releases"  # perhaps another disk
    for text in (b"first", b"second"):
        write(tmp_path, built, text)
        assert (tmp_path / "releases" / "1.tfgraph" / "note.txt").read_bytes() == text
        assert (tmp_path / "out.tfgraph").is_symlink()
        assert [p.name for p in (tmp_path / "releases").iterdir()] == ["1.tfgraph"]
    assert others(tmp_path) == ["releases"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_that_cannot_exchange_names(
    tmp_path: Path, built: Built, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, built, b"first")
    monkeypatch.setattr(staging, "_exchange", lambda *_: code)
    write(tmp_path, built, b"second")
    check_whole(tmp_path / "out.tfgraph")
    assert (tmp_path / "out.tfgraph" / "note.txt").read_bytes() == b"second"
    assert others(tmp_path) == []


def test_several_write_to_one_place_where_names_cannot_be_exchanged(
    tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_exchange", lambda *_: errno.EINVAL)
    failed: list[BaseException] = []

    def publish() -> None:
        try:
            for _ in range(15):
                write(tmp_path, built, b"one of many")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    check_whole(tmp_path / "out.tfgraph")
    assert others(tmp_path) == []


def test_what_was_there_stays_where_names_cannot_be_exchanged_and_the_move_fails(
    tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, built, b"first")
    rename = os.rename

    def refusing(source: Path, target: Path) -> None:
        if target == tmp_path / "out.tfgraph" and (source / "note.txt").read_bytes() == b"second":
            raise OSError(errno.EACCES, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(staging, "_exchange", lambda *_: errno.EINVAL)
    monkeypatch.setattr(os, "rename", refusing)
    with pytest.raises(TfgraphError, match="Permission denied"):
        write(tmp_path, built, b"second")
    assert (tmp_path / "out.tfgraph" / "note.txt").read_bytes() == b"first"
    check_whole(tmp_path / "out.tfgraph")
    assert others(tmp_path) == []


def test_an_artifact_in_a_layer_of_an_image_says_what_to_do(
    tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, built, b"first")
    monkeypatch.setattr(staging, "_exchange", lambda *_: errno.EXDEV)
    with pytest.raises(TfgraphError, match="Invalid cross-device link") as error:
        write(tmp_path, built, b"second")
    assert error.value.hint is not None
    assert "remove it first" in error.value.hint
    assert (tmp_path / "out.tfgraph" / "note.txt").read_bytes() == b"first"


def test_an_exchange_that_fails_is_told(
    tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, built, b"first")
    monkeypatch.setattr(staging, "_exchange", lambda *_: errno.EACCES)
    with pytest.raises(TfgraphError, match=r"cannot write .*out\.tfgraph: Permission denied"):
        write(tmp_path, built, b"second")
    assert (tmp_path / "out.tfgraph" / "note.txt").read_bytes() == b"first"
    assert others(tmp_path) == []


def test_the_modes_are_those_of_other_new_files(tmp_path: Path, built: Built) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path, built)
    finally:
        os.umask(before)
    folder = tmp_path / "out.tfgraph"
    assert folder.stat().st_mode & 0o777 == 0o750
    assert {p.stat().st_mode & 0o777 for p in folder.rglob("*") if p.is_file()} == {0o640}


# Two at once


def test_two_processes_do_not_mix(tmp_path: Path) -> None:
    """Two models, compiled to one place at the same time: one of the two is there, whole."""
    both = [compiler(tmp_path, name, "--no-verify") for name in ("first", "second")]
    for process in both:
        _, err = process.communicate()
        assert process.returncode == 0, err
    check_whole(tmp_path / "out.tfgraph")
    name = layout.read_manifest(tmp_path / "out.tfgraph")["name"]
    assert name in ("first", "second")
    for file in (layout.GRAPH, layout.GRAPH_BEFORE):
        assert (tmp_path / "out.tfgraph" / file).read_text().startswith(f"graph {name}(")
    assert others(tmp_path) == []


PUBLISHER = """if True:
    import shutil, sys, time
    from pathlib import Path
    from tfgraph.backends.staging import Staging
    end = time.monotonic() + float(sys.argv[3])
    rounds = 0
    while time.monotonic() < end:
        with Staging(Path(sys.argv[1])) as staging:
            shutil.copytree(sys.argv[2], staging.folder, dirs_exist_ok=True)
            staging.publish()
        rounds += 1
    print(rounds)"""


@pytest.mark.parametrize("seconds", [2, pytest.param(30, marks=pytest.mark.long)])
def test_a_reader_never_meets_half_of_two_writers(tmp_path: Path, seconds: int) -> None:
    """Two processes replace an artifact again and again while a third loads it: it is always one of
    the two, also without hashing: never the code of one with the other's weights."""
    sources, answers = [], []
    x = np.linspace(-1, 1, 2 * 64, dtype=np.float32).reshape(2, 64)
    for number, op in enumerate(("softmax", "tanh")):
        weights = {"w": np.random.default_rng(number).standard_normal((64, 4000), np.float32)}
        folder = tmp_path / f"{number}.tfgraph"
        made = tfgraph.parse_graph(MODEL.format(name="g").replace("softmax", op))
        tfgraph.build(made, "cpu", folder, weights=weights, check=False)
        with tfgraph.load(folder) as model:
            answers.append(model(x=x)["z"].tobytes())
        sources.append(folder)
    assert answers[0] != answers[1]
    final = tmp_path / "out.tfgraph"
    shutil.copytree(sources[0], final)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, str(final), str(source), str(seconds)],
            env=environment(), stdout=subprocess.PIPE, text=True,
        )
        for source in sources
    ]  # fmt: skip
    met = {0: 0, 1: 0}
    verify = True
    while any(writer.poll() is None for writer in writers):
        with tfgraph.load(final, verify_weights=verify) as model:
            met[answers.index(model(x=x)["z"].tobytes())] += 1
        verify = not verify
    rounds = [int(writer.communicate()[0]) for writer in writers]
    print(f"{rounds} written, {met} read")
    assert all(writer.returncode == 0 for writer in writers)
    assert min(rounds) > 5
    assert min(met.values()) > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.tfgraph", "1.tfgraph", "out.tfgraph"]


def test_all_is_on_the_disk_before_and_after_the_name(
    tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file and folder before it is named; then the folder that holds the name."""
    done: list[tuple[str, bool]] = []

    def fsync(descriptor: int) -> None:
        final = (tmp_path / "out.tfgraph").exists()
        done.append((os.readlink(f"/proc/self/fd/{descriptor}"), final))

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path, built)
    (staged,) = {name for name, _ in done if name.endswith(".partial")}
    inside = {
        f"{staged}/{path.relative_to(tmp_path / 'out.tfgraph')}"
        for path in (tmp_path / "out.tfgraph").rglob("*")
    }
    assert {name for name, named in done if not named} == {staged, *inside}
    assert [name for name, named in done if named] == [str(tmp_path)]
