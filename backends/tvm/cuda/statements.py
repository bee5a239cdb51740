"""The body of a kernel as TVM prints it, rewritten as a person would write it.

TVM prints one statement a line. Here arrays of one element become variables, a value that is chosen
by `if` and `else` becomes `condition ? a : b`, loops that follow each other share their names, and
expressions lose what C does not need (expressions.py). Nothing is moved, and nothing is computed in
another order. A line that is none of these stays as it is. May import: expressions, kernel.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tfgraph.backends.tvm.cuda.expressions import Expressions
from tfgraph.backends.tvm.cuda.kernel import REMARK

WIDTH = 100
_TYPE = r"(?:int64_t|int|uint|float|bool|int8_t|uint8_t|half|nv_bfloat16)"
_ARRAY = re.compile(
    rf"^(?P<indent> *)(?P<shared>__shared__ )?alignas\(64\) (?P<type>{_TYPE}) (?P<name>\w+)"
    r"\[(?P<size>\d+)\];$"
)
_DECLARED = re.compile(
    rf"^ *(?:__shared__ |const )*(?P<type>{_TYPE}) (?P<name>\w+)(?:\[\d+\])?(?: =|;)"
)
_ASSIGNED = re.compile(
    rf"^(?P<indent> *)(?P<type>{_TYPE} )?(?P<target>\w+(?:\[.*?\])?) = (?P<value>.*);$"
)
_LOOP = re.compile(
    rf"^(?P<indent> *)for \((?P<type>{_TYPE}) (?P<name>\w+) = (?P<start>.*?); (?P=name) < "
    r"(?P<end>.*); \+\+(?P=name)\) \{$"
)
_CALL = re.compile(r"^(?P<indent> *)(?P<name>\w+(?:<\d+>)?)(?P<arguments>\(.+\));$")
_IF = re.compile(r"^(?P<indent> *)if \((?P<condition>.*)\) \{$")
_NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")


def rewrite(parameters: Sequence[tuple[str, str]], body: Sequence[str]) -> list[str]:
    """The lines of a kernel's body, between its braces; parameters are (type, name)."""
    if any("*)" in line for line in body):  # vectors: their arrays need what we would take away
        return [_remark(line) for line in body]
    lines = [_short_names(line) for line in body]
    scalars = _one_element_arrays(lines)
    lines = [_as_variables(line, scalars) for line in lines]
    lines = _without_unused(_merge_declarations(_choices(lines)))
    if any(re.search(r"\bthread\b", line) for line in lines):
        lines.insert(0, "  const int thread = threadIdx.x;")
    types = dict(_types(lines)) | {name: kind for kind, name in parameters}
    expressions = Expressions(types)
    lines = [_tidy(line, expressions) for line in lines]
    lines = _names_by_scope(lines, {name for _, name in parameters})
    return [part for line in lines for part in _wrap(_remark(line))]


def _short_names(line: str) -> str:
    """`thread` for the index of the thread."""
    return line.replace("((int)threadIdx.x)", "thread").replace("threadIdx.x", "thread")


def _one_element_arrays(lines: Sequence[str]) -> set[str]:
    """Arrays of one element in registers."""
    found = [match for line in lines if (match := _ARRAY.match(line))]
    return {m["name"] for m in found if m["size"] == "1" and not m["shared"]}


def _as_variables(line: str, scalars: set[str]) -> str:
    if declared := _ARRAY.match(line):
        size = "" if declared["name"] in scalars else f"[{declared['size']}]"
        aligned = "__shared__ " if declared["shared"] else ""
        return f"{declared['indent']}{aligned}{declared['type']} {declared['name']}{size};"
    return re.sub(r"\b(\w+)\[0\]", lambda m: m[1] if m[1] in scalars else m[0], line)


def _choices(lines: Sequence[str]) -> list[str]:
    """`T v; if (c) { v = a; } else { v = b; } use(v);` becomes `use(c ? a : b);`.

    C computes only the one that is chosen, as before. Innermost first, since they nest.
    """
    lines = list(lines)
    for at in reversed(range(len(lines))):
        declared = re.match(rf"^ *{_TYPE} (condval\w*);$", lines[at])
        if declared is None or at + 6 >= len(lines):
            continue
        name = declared[1]
        condition, use = _IF.match(lines[at + 1]), lines[at + 6]
        values = [re.match(rf"^ *{name} = (.*);$", lines[at + i]) for i in (2, 4)]
        ends = [lines[at + i].strip() for i in (3, 5)]
        uses = re.findall(rf"\b{name}\b", use)
        if condition and values[0] and values[1] and ends == ["} else {", "}"] and len(uses) == 1:
            chosen = f"({condition['condition']} ? {values[0][1]} : {values[1][1]})"
            before, after = re.split(rf"\b{name}\b", use)
            lines[at : at + 7] = [before + chosen + after]
    return lines


def _merge_declarations(lines: Sequence[str]) -> list[str]:
    """`T v; v = a;` becomes `T v = a;`, with `const` where that is its only value."""
    merged: list[str] = []
    for line in lines:
        before = re.match(rf"^( *)({_TYPE}) (\w+);$", merged[-1]) if merged else None
        if before and (value := re.match(rf"^ *{before[3]} = (.*);$", line)):
            changes = sum(bool(re.match(rf"^ *{before[3]} = ", other)) for other in lines)
            const = "const " if changes == 1 else ""
            merged[-1] = f"{before[1]}{const}{before[2]} {before[3]} = {value[1]};"
        else:
            merged.append(line)
    return merged


def _without_unused(lines: Sequence[str]) -> list[str]:
    """The lines without constants that nothing reads."""
    lines = list(lines)
    while True:
        code = [line for line in lines if REMARK not in line]
        counts = Counter(name for line in code for name in _NAME.findall(line))
        constants = [re.match(rf"^ *const {_TYPE} (\w+) = ", line) for line in lines]
        kept = [line for line, c in zip(lines, constants, strict=True) if not c or counts[c[1]] > 1]
        if len(kept) == len(lines):
            return kept
        lines = kept


def _types(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Variables and arrays with their types."""
    found: list[tuple[str, str]] = []
    for line in lines:
        if match := _DECLARED.match(line):
            found.append((match["name"], match["type"]))
        elif loop := _LOOP.match(line):
            found.append((loop["name"], loop["type"]))
    return found


def _tidy(line: str, expressions: Expressions) -> str:
    """The line with tidy expressions."""
    if match := re.match(rf"^( *(?:const )?({_TYPE}) \w+ = )(.*);$", line):
        return f"{match[1]}{expressions.tidy(match[3], match[2])};"
    if match := _ASSIGNED.match(line):
        return match["indent"] + expressions.assign(match["target"], match["value"])
    if (match := _CALL.match(line)) and REMARK not in line:
        return f"{match['indent']}{expressions.call(match['name'], match['arguments'])};"
    if match := _IF.match(line):
        return f"{match['indent']}if ({expressions.tidy(match['condition'])}) {{"
    if match := _LOOP.match(line):
        kind, name = match["type"], match["name"]
        start, end = (expressions.tidy(match[part], kind) for part in ("start", "end"))
        head = f"for ({kind} {name} = {start}; {name} < {end}; ++{name})"
        return f"{match['indent']}{head} {{"
    return line


def _remark(line: str) -> str:
    """The line, as a comment if it is what `kernel.remark` leaves; a `#pragma` stays one."""
    line = re.sub(rf'^( *){REMARK}\("(#.*)"\);$', r"\1\2", line)
    return re.sub(rf'^( *){REMARK}\("(.*)"\);$', r"\1// \2", line)


def _wrap(line: str) -> list[str]:
    """A long assignment as two lines, a long call as a line for each argument."""
    if len(line) > WIDTH and (called := _CALL.match(line)):
        indent = called["indent"] + "    "
        head, *rest = _arguments(called["arguments"][1:-1])
        lines = [f"{called['indent']}{called['name']}({head}", *(indent + part for part in rest)]
        return [*(part + "," for part in lines[:-1]), lines[-1] + ");"]
    target, sign, value = line.partition("= ")
    if len(line) <= WIDTH or not sign or not line.endswith(";"):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return [target + sign.rstrip(), indent + value]


def _arguments(text: str) -> list[str]:
    """Arguments of a call, split at the commas between them."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _names_by_scope(lines: Sequence[str], taken: set[str]) -> list[str]:
    """TVM numbers variables of one name; a number goes where no other of that name is in sight."""
    used_as_function = {m for line in lines for m in re.findall(r"\b(\w+)\(", line)}
    scopes: list[dict[str, str]] = [{name: name for name in taken | used_as_function}]
    result: list[str] = []
    for line in lines:
        if line.strip().startswith("}"):
            scopes.pop()
        loop = _LOOP.match(line)
        opens = line.rstrip().endswith("{")
        if opens:
            scopes.append({})
        declared = loop or _DECLARED.match(line)
        if declared:
            in_sight = {new for scope in scopes for new in scope.values()}
            base = re.sub(r"(_ptr)?(_\d+)?$", "", declared["name"])
            names = itertools.chain([base], (f"{base}_{n}" for n in itertools.count(2)))
            scopes[-1][declared["name"]] = next(n for n in names if n not in in_sight)
        known = {old: new for scope in scopes for old, new in scope.items()}
        result.append(_renamed(line, known))
    return result


def _renamed(line: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: names.get(match[0], match[0]), line)
