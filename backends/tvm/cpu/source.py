"""The kernels of an artifact as text that people read: TVMScript, and the nodes that call each.

It is what was given to TVM, before TVM's own passes: the loops, tiles and vectors are as the
generators in this folder wrote them. May import: lower, callers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tfgraph.backends.tvm.callers import callers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.backends.tvm.module import Lowered
    from tfgraph.backends.tvm.target import CpuMachine

MOST_LINES = 2000
"""Of one kernel. What is longer is unrolled, and loses its middle."""

_HOW_TO_READ = """\
Floats are float32, and buffers hold floats, where nothing else is said; integers have the type of
what they stand beside, mostly int64. x[i:i + 16] is one vector register: 16 elements from i on.
T.Broadcast(a, 16) is a in every lane, fma(a, b, c) is a * b + c, rounded once. What is allocated
inside loops with one element, or one vector, stays in a register. The iterations of T.parallel run
on several threads.
"""
_SHORTER = (
    (r"^# (from \S+ import .*)$", r"\1"),  # TVM's imports, as statements
    (r"\bT\.int64\((-?\d+)\)", r"\1"),
    (r'\bT\.call_llvm_pure_intrin\("float32(?:x\d+)?", "llvm\.(\w+)", ', r"\1("),
)
"""What is noise for readers, and what stands there instead."""
_RAMP = re.compile(r"\bT\.Ramp\((\w+(?: \* \d+)?), 1, (\d+)\)(?=\])")  # as the last index


def kernel_sources(lowered: Lowered, machine: CpuMachine) -> dict[str, bytes]:
    """The text of each kernel as `kernels/NAME.py`; `kernels/main.py` is how they are chained.

    The function `linear_gelu` of a text is `__tvm_ffi_linear_gelu` in the object files.
    """
    found: dict[str, bytes] = {}
    for variable, function in lowered.module.functions_items():
        name = str(variable.name_hint)
        if name in lowered.calls:
            named = function.with_attr("global_symbol", name)
            head = [f"{name}: a kernel for {machine.mcpu}.", "", *callers(lowered.calls[name])]
            text = _text([*head, "", *_HOW_TO_READ.splitlines()], _script(named))
        else:
            head = [f"{name}: calls the kernels, in the order of the graph."]
            text = _text(head, _script(function))
        found[f"kernels/{name}.py"] = text.encode()
    return found


def _script(function: Any) -> list[str]:
    """The function's TVMScript, abridged; at most MOST_LINES lines."""
    text = str(function.script(float_dtype="float32", show_all_ty=False))
    for pattern, shorter in _SHORTER:
        text = re.sub(pattern, shorter, text, flags=re.MULTILINE)
    lines = _RAMP.sub(_slice, text).splitlines()
    if len(lines) <= MOST_LINES:
        return lines
    first, last = MOST_LINES * 3 // 4, MOST_LINES // 4
    gone = f"# ... {len(lines) - first - last} of {len(lines)} lines are left out here ..."
    return [*lines[:first], gone, *lines[-last:]]


def _slice(ramp: re.Match[str]) -> str:
    """`i:i + 16` for the indices i, ..., i + 15, as TVM writes them where they are stored to."""
    start, lanes = ramp[1], ramp[2]
    return f"{start}:{int(start) + int(lanes) if start.isdigit() else f'{start} + {lanes}'}"


def _text(head: Sequence[str], script: Sequence[str]) -> str:
    comment = [f"# {line}".rstrip() for line in head]
    return "\n".join([*comment, "", *script]) + "\n"
