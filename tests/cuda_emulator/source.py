"""CUDA C as g++ takes it: what a macro can't do is done to the text, line by line.

Shared memory is declared with a name, so that the emulator knows each variable's bounds and
alignment; a function that holds assembly gives way to the emulator's of the same name.
"""

from __future__ import annotations

import re

_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
_ALIGNED = r"(?:(?:alignas|__align__)\((\w+)\)\s*)?"
_SHARED = re.compile(
    rf"(?P<extern>\bextern\s+)?{_ALIGNED}\b__shared__\s+{_ALIGNED}(?P<type>[\w:<>, ]+?)\s+"
    rf"(?P<name>\w+)\s*(?P<dims>(?:\[[^\]]*\])*)\s*;"
)
_FUNCTION = re.compile(
    r"^(?:template <[^>\n]*>\n)?(?:DEVICE|static|inline|__device__)\b[^;{}]*\{\n.*?^\}",
    re.MULTILINE | re.DOTALL,
)


def kernel_names(source: str) -> list[str]:
    """The names of the `__global__` functions, in order."""
    return list(dict.fromkeys(_KERNEL.findall(source)))


def for_host(source: str) -> str:
    """The source with the same number of lines, for g++ behind `device.h`."""
    source = _FUNCTION.sub(_without_assembly, source)
    source = _SHARED.sub(_declare_shared, source)
    code = re.sub(r"//.*", "", source)
    if "__shared__" in code:
        line = next(line for line in code.splitlines() if "__shared__" in line)
        raise ValueError(f"the emulator does not read this declaration: {line.strip()}")
    return source


def _without_assembly(function: re.Match[str]) -> str:
    if re.search(r"\basm\b", function[0]):
        return "\n" * function[0].count("\n")
    return function[0]


def _declare_shared(declaration: re.Match[str]) -> str:
    kind, name, dims = declaration["type"], declaration["name"], declaration["dims"]
    alignment = declaration[2] or declaration[3] or "1"
    if declaration["extern"]:
        assert re.fullmatch(r"\[\s*\]", dims), f"extern __shared__ {name} needs []"
        return f'auto* {name} = cuda_emulator::dynamic_shared<{kind}>({alignment}, "{name}");'
    return f'auto& {name} = cuda_emulator::shared<{kind}{dims}>({alignment}, "{name}", __LINE__);'
