"""`make mutants` itself: what it changes, and that it sees a mutant die and another survive."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutants.generate import generate
from mutants.plan import TESTS, stages

ROOT = Path(__file__).resolve().parents[1]


def mutants_of(source: str) -> list[str]:
    """What stands there, and what takes its place."""
    return [" -> ".join(m.shown) for m in generate("m", source)[1]]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "def f(x):\n    if x.a and x.b < 3:\n        raise NoMatch\n",
            [
                "x.a and x.b < 3 -> False",
                "x.a and x.b < 3 -> not (x.a and x.b < 3)",
                "x.a and x.b < 3 -> x.b < 3",
                "x.a and x.b < 3 -> x.a",
                "x.b < 3 -> x.b <= 3",
                "x.b < 3 -> x.b < 4",
            ],
        ),
        ("def f(x):\n    return x[0] + x[-1]\n", [
            "x[0] + x[-1] -> x[0] - x[-1]", "x[0] -> x[1]", "x[-1] -> x[-2]",
        ]),
        ("def f(x):\n    check(x)\n    return x.axis in (-1, 3)\n", [
            "check(x) -> pass",
            "x.axis in (-1, 3) -> x.axis in (3,)",
            "x.axis in (-1, 3) -> x.axis in (-1,)",
            "x.axis in (-1, 3) -> True",
            "x.axis in (-1, 3) -> False",
        ]),
        ("P = call('sub', var('x'), const('c', 1), shared=True)\n", [
            "shared=True -> nothing",
            "'sub' -> ('sub', 'add')",
            "call('sub', var('x'), const('c', 1), shared=True) -> "
            "call('sub', const('c', 1), var('x'), shared=True)",
            "const('c', 1) -> const('c')",
        ]),
        ("from tfgraph.ops import add, sub\ndef f(a, b):\n    return add(a, sub(a, b, eps=1))\n", [
            "sub(a, b, eps=1) -> sub(b, a, eps=1)",
            "sub(a, b, eps=1) -> sub(a, b)",
        ]),
    ],
)  # fmt: skip
def test_what_is_changed(source: str, expected: list[str]) -> None:
    assert mutants_of(source) == expected


def test_each_changes_one_thing_under_a_name_of_its_own() -> None:
    source = (ROOT / "passes" / "fuse_add_norm.py").read_text()
    tree, found = generate("fuse_add_norm", source)
    assert len({m.id for m in found}) == len(found) > 0
    before = ast.unparse(tree)
    for i in range(0, len(found), len(found) // 5):
        again, same = generate("fuse_add_norm", source)
        same[i].apply()
        assert ast.unparse(again) != before


def test_all_files_of_rules_are_mutated() -> None:
    files = {p.stem for p in (ROOT / "passes").glob("*.py") if "@register_pass" in p.read_text()}
    assert files - {"pipeline"} <= set(TESTS)
    for file in TESTS:
        assert (ROOT / "passes" / f"{file}.py").is_file()
        assert all((ROOT / path).is_file() for path, *_ in stages(file))


def test_some_die_and_some_survive(tmp_path: Path) -> None:
    """Of one function: a condition that tests see, and a key whose parts may stand in any order,
    which without a reason is one that no test fails for."""
    reasons = tmp_path / "reasons.toml"
    alive = "(node.op, operands, tuple(node.attrs.items())) -> "
    reasons.write_text(
        f'"cleanup same_result: {alive}(node.op, tuple(node.attrs.items()), operands)" = "a key"\n'
    )
    only = ("--only", "commutative -> False", "--only", alive)
    found = subprocess.run(
        [sys.executable, "-m", "mutants", "cleanup", "-j1", "-v", *only, "--equivalents", reasons],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1, found.stdout + found.stderr
    lines = found.stdout.splitlines()
    assert next(line.split() for line in lines if line.startswith("all ")) == [
        "all", "0", "3", "0", "1", "1", "1",
    ]  # fmt: skip
    assert sum("test_cleanup.py::test_equal_nodes_become_one" in line for line in lines) == 1
    (at,) = (i for i, line in enumerate(lines) if ": survived: " in line)
    assert lines[at].endswith(f": {alive}(operands, node.op, tuple(node.attrs.items()))")
    assert lines[at + 1] == "  -    return (node.op, operands, tuple(node.attrs.items()))"
    assert lines[at + 2] == "  +    return (operands, node.op, tuple(node.attrs.items()))"
