"""`tfgraph doctor`: what works on this machine, and what to do about what does not.

May import: everything it asks about.
"""

from __future__ import annotations

import importlib.metadata as metadata
import platform
import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgraph.cli.options import verb
from tfgraph.cli.session import Session
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "apache-tvm-ffi-orcjit")
_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class Finding:
    """One line: what, whether it is there, and what to do where it is not."""

    name: str
    ok: bool
    found: str
    advice: str | None = None
    needed: bool = False
    """Whether the CPU path depends on it."""

    def to_json(self) -> dict[str, Any]:
        """The object in `--json`."""
        return {"name": self.name, "ok": self.ok, "found": self.found, "hint": self.advice}


@verb
def doctor(session: Session) -> int:
    """Say what works on this machine."""
    findings: list[Finding] = []
    checks: list[Callable[[], list[Finding]]] = [
        _system,
        _packages,
        _cpu,
        _cuda,
        _portable,
        _compiler,
        _cache,
    ]
    with session.progress("looking around"):
        for check in checks:
            findings += check()
    broken = [f for f in findings if f.needed and not f.ok]
    session.object({"ok": not broken, "findings": [f.to_json() for f in findings]})
    rows: list[tuple[str, str, str]] = []
    # Two columns and the space after each stand before the text.
    room = shutil.get_terminal_size().columns - 7 - max(len(f.name) for f in findings) - 4
    for f in findings:
        # Padded before it is coloured: the codes take no room.
        word = ("ok" if f.ok else "missing").ljust(7)
        style = ("green",) if f.ok else ("red", "bold") if f.needed else ("yellow",)
        lines = _wrap(f.found, room) + (_wrap(f.advice, room) if f.advice and not f.ok else [])
        rows.append((session.style(word, *style), f.name, lines[0]))
        rows += [(session.style(" " * 7, *style), "", line) for line in lines[1:]]
    session.rows(rows, indent=0)
    if not session.quiet:
        session.print(
            "the CPU path is broken: see above" if broken else "compiling for the CPU works"
        )
    return 3 if broken else 0


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 24), break_long_words=False, break_on_hyphens=False)


def _system() -> list[Finding]:
    python = sys.version_info >= (3, 11)
    linux = sys.platform == "linux" and platform.machine() == "x86_64"
    return [
        Finding("Python", python, platform.python_version(), "needs 3.11 or newer", needed=True),
        Finding(
            "platform",
            linux,
            f"{platform.system()} {platform.machine()}",
            "compiled code needs Linux x86-64; --target numpy works here",
            needed=True,
        ),
    ]


def _packages() -> list[Finding]:
    pins = _pins()
    found: list[Finding] = []
    for name in _PACKAGES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            found.append(Finding(name, False, "not installed", "pip install tfgraph", needed=True))
            continue
        pin = pins.get(name)
        if pin is None:
            text = f"{version} (tfgraph is not installed: its pin is unknown)"
            found.append(Finding(name, True, text, needed=True))
        elif pin == version:
            found.append(Finding(name, True, f"{version}, as pinned", needed=True))
        else:
            advice = f"pip install {name}=={pin}; others crash"
            found.append(Finding(name, False, f"{version}, not {pin}", advice, needed=True))
    return found


def _pins() -> dict[str, str]:
    """The versions that tfgraph asks for, as its own metadata says."""
    try:
        requirements = metadata.requires("tfgraph") or []
    except metadata.PackageNotFoundError:
        return {}
    pairs = [r.partition(";")[0].partition("==") for r in requirements]
    return {name.strip(): version.strip() for name, equals, version in pairs if equals}


def _cpu() -> list[Finding]:
    from tfgraph.runtime.cores import available_cores, default_threads

    threads = default_threads()
    cores = Finding("threads", True, f"{threads} of {len(available_cores())} logical CPUs")
    try:
        from tfgraph.backends.tvm.target import cpu_machine

        machine = cpu_machine()
        described = f"{machine.mcpu}, {machine.lanes} float32 lanes"
        _try_kernel()
    except TfgraphError as error:
        return [cores, Finding("CPU", False, error.message, error.hint, needed=True)]
    except Exception as error:  # whatever breaks here is what the user wants to know
        return [cores, Finding("CPU", False, f"{type(error).__name__}: {error}", needed=True)]
    return [
        cores,
        Finding("CPU", True, described, needed=True),
        Finding("kernel", True, "compiled, loaded and run: right", needed=True),
    ]


def _try_kernel() -> None:
    """Compile a small graph, run it, and compare it with the reference."""
    from tfgraph.api import compare
    from tfgraph.text import parse_graph

    graph = parse_graph(_TINY, "doctor")
    if not compare(graph, intermediates=False).ok:
        raise TfgraphError("a compiled kernel gives a wrong result", hint="please report it")


_TINY = """\
graph tiny(%x: f32[n,8] = normal(1)) {
  symbol n: 1..8, example 3
  %y = linear(%x, %w) : f32[n,4]
  return y=%y
}
weights {
  %w : f32[8,4] = normal(1)
}
"""


def _cuda() -> list[Finding]:
    from tfgraph.cli.doctor_cuda import findings

    return [Finding(*found) for found in findings()]


def _portable() -> list[Finding]:
    from tfgraph.runtime.format import SOURCE_ONLY

    return [Finding("source", True, f"--target {', '.join(SOURCE_ONLY)}: written, not run here")]


def _compiler() -> list[Finding]:
    path = next(filter(None, map(shutil.which, _COMPILERS)), None)
    return [Finding("C compiler", path is not None, path or "none", "not needed to compile or run")]


def _cache() -> list[Finding]:
    from tfgraph.cache import VARIABLE, Cache, default_folder, refusal
    from tfgraph.cli.output import size

    folder = default_folder()
    if folder is None:
        return [Finding("cache", True, f"off: {VARIABLE} is empty")]
    reason = refusal(folder) if folder.exists() else None
    if reason is not None:
        advice = f"compiling works without it; {VARIABLE} names another folder"
        return [Finding("cache", False, reason, advice)]
    count, total = Cache(folder).size()
    return [Finding("cache", True, f"{folder}: {size(total)} in {count} files")]
