"""Fuzzing of everything that reads what users give, guided by which lines of the readers ran.

    make readers SECONDS=600 ARGS="text yaml"                a while for each; without names for all
    python tests/reader_fuzz/run.py --seconds 600 --corpus corpus --findings findings

libFuzzer, through atheris, keeps the inputs that reach new branches; the changes are those of
`mutations`, the property that of `judge`. Each finding's input and traceback are written to
`--findings`, one for each exception and line; `--again FILE TARGET` judges an input once more.
Exits with 1 if there are findings. One process runs at a time.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reader_fuzz import seeds
from reader_fuzz.judge import judge, quiet
from reader_fuzz.targets import TARGETS

_STAT = re.compile(r"#(\d+)\s.*cov: (\d+) ft: (\d+) corp: (\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; without any all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="a folder for inputs that reach new lines")
    parser.add_argument("--findings", type=Path, default=Path("reader-findings"))
    parser.add_argument("--again", type=Path, help="judge this input of the target, nothing else")
    given = parser.parse_args()
    unknown = set(given.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if given.again is not None:
        return again(given.targets[0], given.again)
    counts = [parent(name, given) for name in given.targets or TARGETS]
    return int(any(counts))


def parent(target: str, given: argparse.Namespace) -> int:
    """Run a target in a process of its own; how many findings there are."""
    folder = given.findings / target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tfgraph-corpus-") as made:
        corpus = (given.corpus or Path(made)) / target
        corpus.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(Path(__file__).with_name("child.py")), target]
        command += [str(corpus), str(folder), str(given.seconds), str(given.seed)]
        log = folder / "log"
        with log.open("wb") as out:
            env = {**os.environ, "TMPDIR": made}  # the child ends without cleaning up
            code = subprocess.run(command, env=env, stdout=out, stderr=out, check=False).returncode
    told = log.read_text("utf-8", "replace")
    stats = [tuple(map(int, m)) for m in _STAT.findall(told)]
    found = [p for p in sorted(folder.iterdir()) if p.suffix == ".txt" or p.name.startswith("cras")]
    ran, edges, features, kept = stats[-1] if stats else (0, 0, 0, 0)
    print(f"{target}: {ran} inputs, {edges} edges, {features} features, {kept} kept, "
          f"{len(found)} findings")  # fmt: skip
    for path in found:
        print(f"  {path}")
    if code or not ran:
        print(f"  ended with {code}: see {log}")
    return len(found) + int(code != 0 or not ran)


def again(target: str, path: Path) -> int:
    """Judge one input, and print what is wrong."""
    quiet()
    with tempfile.TemporaryDirectory(prefix="tfgraph-reader-") as made:
        seeds.prepare(target, Path(made))
        finding = judge(TARGETS[target], Path(made), path.read_bytes())
    print(finding.trace if finding else "read, or refused as it should be")
    return int(finding is not None)


if __name__ == "__main__":
    sys.exit(main())
