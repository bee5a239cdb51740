"""`make mutants`: the table of what became of them, and those that no test fails for."""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import signal
import sys
import time
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import tfgraph
from mutants.child import ROOT, warm_up
from mutants.edit import Mutant
from mutants.generate import generate
from mutants.memory import Memory
from mutants.plan import TESTS, stages
from mutants.run import Fate, Module, run_all
from mutants.tree import File

EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
MEMORY = ROOT / ".mutants.json"
SHARE = 0.03
"""How many of all mutants may be said to be equivalent."""
LEAST = 3
"""Mutants of each rule."""
SECONDS = 60
"""CPU time for the tests of a mutant; one that needs more does not end."""


def main() -> int:
    options = _options()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # children end with it
    start = time.monotonic()
    if not Path(tfgraph.__file__).is_relative_to(ROOT):
        print(f"mutants: tfgraph is {tfgraph.__file__}, not the one of {ROOT}", file=sys.stderr)
        return 1
    warm_up()
    modules, mutants = _generate(options.files)
    equivalents = tomllib.loads(options.equivalents.read_text())
    chosen = [m for m in mutants if any(part in m.id for part in options.only or [""])]
    if options.list:
        for mutant in chosen:
            print(f"passes/{mutant.file}.py:{mutant.line}: {mutant.id}")
        return 0
    memory = Memory.load(MEMORY)
    unchanged = run_all(_baseline(modules), options.jobs, SECONDS, memory)
    if failed := [fate.by for fate in unchanged if fate.fate != "survived"]:
        print(f"mutants: tests fail without any: {', '.join(failed)}", file=sys.stderr)
        return 1
    jobs = [(modules[m.file], m) for m in chosen]
    fates: list[Fate] = []
    try:
        for fate in run_all(jobs, options.jobs, SECONDS, memory):
            fates.append(fate)
            _progress(fate, len(fates), len(chosen), options.verbose)
    finally:
        memory.save()
    wrong = _report(modules, fates, equivalents, whole=len(chosen) == len(mutants))
    print(f"{time.monotonic() - start:.0f} s with {options.jobs} at once")
    return 1 if wrong else 0


def _progress(fate: Fate, done: int, of: int, verbose: bool) -> None:
    if verbose and fate.mutant is not None:
        print(f"{fate.fate} {fate.cpu:.1f} s {fate.mutant.id}: {fate.by}", flush=True)
    elif sys.stderr.isatty():
        print(f"\r{done} of {of} mutants", end="\n" if done == of else "", file=sys.stderr)
    elif done % 200 == 0:
        print(f"{done} of {of} mutants", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help="of passes/, without .py; all with rules")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", action="append", help="mutants with this in their name")
    parser.add_argument("--equivalents", type=Path, default=EQUIVALENTS, help="with reasons")
    parser.add_argument("--list", action="store_true", help="print them, and run nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="each, and what killed it")
    options = parser.parse_args()
    if unknown := set(options.files) - set(TESTS):
        parser.error(f"no file of rules: {', '.join(sorted(unknown))}; {', '.join(TESTS)}")
    return options


def _generate(files: list[str]) -> tuple[dict[str, Module], list[Mutant]]:
    modules: dict[str, Module] = {}
    mutants: list[Mutant] = []
    for name in files or TESTS:
        path = ROOT / "passes" / f"{name}.py"
        tree, found = generate(name, path.read_text())
        modules[name] = Module(f"tfgraph.passes.{name}", path, tree, stages(name))
        mutants += found
    return modules, mutants


def _baseline(modules: dict[str, Module]) -> list[tuple[Module, None]]:
    """Each stage of tests once, without a mutant."""
    chosen: dict[str, Module] = {}
    for module in modules.values():
        for stage in module.stages:
            chosen.setdefault(" ".join(stage), replace(module, stages=[stage]))
    return [(module, None) for module in chosen.values()]


def _report(
    modules: dict[str, Module], fates: list[Fate], equivalents: dict[str, str], whole: bool
) -> list[str]:
    """Print the table and what is wrong, which is returned."""
    by_id = {f.mutant.id: f for f in fates if f.mutant is not None}
    alive = {key: f for key, f in by_id.items() if f.fate == "survived"}
    wrong = [_diff(f.mutant) for key, f in alive.items() if key not in equivalents if f.mutant]
    columns = ("rules", "mutants", "least", "killed", "equivalent", "survived")
    row = "{:<24} {:>6} {:>9} {:>6} {:>8} {:>10} {:>9}".format
    print(row("file", *columns))
    total: Counter[str] = Counter()
    least: list[int] = []
    for name, module in modules.items():
        mine = [f for f in fates if f.mutant is not None and f.mutant.file == name]
        count = Counter(
            "equivalent" if f.mutant and f.fate == "survived" and f.mutant.id in equivalents
            else f.fate
            for f in mine
        )  # fmt: skip
        rules = File(name, module.tree).rules
        count["rules"], count["mutants"] = len(rules), len(mine) - count["stillborn"]
        total += count
        each = Counter(
            r for f in mine if f.mutant and f.fate != "stillborn" for r in f.mutant.rules
        )
        least += [each[r] for r in rules]
        if whole:
            wrong += [f"{name} {r}: {each[r]} mutants" for r in rules if each[r] < LEAST]
        count["least"] = min((each[r] for r in rules), default=0)
        print(row(name, *(count[c] if c != "least" or rules else "" for c in columns)))
    total["least"] = min(least, default=0)
    print(row("all", *(total[c] for c in columns)))
    print(f"{total['stillborn']} more do not even import, and do not count")
    if whole:
        files = {f"{name} " for name in modules}
        mine_listed = [key for key in equivalents if any(key.startswith(f) for f in files)]
        for key in mine_listed:
            if key not in alive:
                fate = by_id.get(key)
                why = f"killed by {fate.by}" if fate else "there is no such mutant"
                wrong.append(f"equivalents.toml is stale: {key}: {why}")
        if len(modules) == len(TESTS) and len(mine_listed) > SHARE * total["mutants"]:
            wrong.append(f"{len(mine_listed)} equivalents are more than {SHARE:.0%}")
    for text in wrong:
        print(f"\n{text}")
    return wrong


def _diff(mutant: Mutant) -> str:
    """A survivor: where it is, and the lines that change. It is applied for good."""
    path = ROOT / "passes" / f"{mutant.file}.py"
    tree, found = generate(mutant.file, path.read_text())
    before = ast.unparse(tree).splitlines()
    next(m for m in found if m.id == mutant.id).apply()
    after = ast.unparse(tree).splitlines()
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[3:]
    title = f"passes/{mutant.file}.py:{mutant.line}: survived: {mutant.id}"
    return "\n".join([title, *(f"  {line}" for line in lines)])


if __name__ == "__main__":
    sys.exit(main())
