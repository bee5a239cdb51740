"""One target under libFuzzer, in a process that ends with it: see `run`.

    python tests/reader_fuzz/child.py TARGET CORPUS FINDINGS SECONDS SEED

The readers are instrumented as they are imported, so nothing of them is imported before.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["tfgraph", "ruamel"]):
    from reader_fuzz import seeds
    from reader_fuzz.judge import Finding, judge, quiet
    from reader_fuzz.mutations import MUTATORS
    from reader_fuzz.targets import TARGETS

    import tfgraph.cli.inputs
    import tfgraph.hf
    import tfgraph.model
    import tfgraph.onnx
    import tfgraph.passes
    import tfgraph.runtime.model
    import tfgraph.text  # noqa: F401

MEMORY = 4 << 30  # bytes beyond those that the process has when it starts
LONGEST = 400_000  # bytes of an input


def main(target: str, corpus: Path, findings: Path, seconds: int, seed: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tfgraph-reader-"))
    seeds.prepare(target, folder)
    for i, data in enumerate(seeds.SEEDS[target]()):
        (corpus / f"seed-{i}").write_bytes(data)
    quiet()
    read, mutate = TARGETS[target], MUTATORS[target]
    known: dict[tuple[str, str], Finding] = {}

    def one(data: bytes) -> None:
        finding = judge(read, folder, data)
        if finding is not None and finding.key not in known:
            known[finding.key] = finding
            path = findings / f"{len(known)}-{finding.kind}"
            path.with_suffix(".bin").write_bytes(data)
            path.with_suffix(".txt").write_text(f"{finding.place}\n{finding.trace}", "utf-8")

    def changed(data: bytes, size: int, number: int) -> bytes:
        r = random.Random(number)
        made = mutate(data, r, lambda part: atheris.Mutate(part, max(1, len(part) + 16)))
        return made if len(made) <= size else atheris.Mutate(data, size)

    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    # Time and memory are limited by `judge` and above, so that one finding does not end the run.
    options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST}"]
    options += [
        "-timeout=600",
        "-rss_limit_mb=0",
        "-len_control=0",
        f"-artifact_prefix={findings}/",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))
