"""What the code needs of a CPU, against what Linux tells of CPUs: recorded on machines of all
kinds, so that the check does not rest on the one that runs the tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.artifacts import edit_manifest, python

import tfgraph
from tfgraph.backends.tvm.target import _CPUINFO_NAMES, cpu_machine
from tfgraph.runtime import cores

DATA = Path(__file__).parents[1] / "data" / "cpuinfo"
MACHINES = sorted(path.stem for path in DATA.iterdir())
NO_AVX2 = {"piledriver"}
AVX512 = {"cascade-lake", "sapphire-rapids", "zen4", "zen5"}


def on(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_CPUINFO", DATA / f"{machine}.txt")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("mcpu", "fits"),
    [
        ("x86-64-v3", set(MACHINES) - NO_AVX2),
        ("haswell", set(MACHINES) - NO_AVX2),
        ("znver3", {"zen3", "zen4", "zen5"}),
        ("x86-64-v4", AVX512),
        ("cascadelake", AVX512),
        ("sapphirerapids", {"sapphire-rapids"}),
        ("znver4", {"zen4", "zen5"}),
        ("znver5", {"zen5"}),
    ],
)
def test_who_may_run_what(
    machine: str, mcpu: str, fits: set[str], artifact: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The flags, read from the machine's own text, and the features that LLVM gives the CPU."""
    features = list(cpu_machine(mcpu).features)
    on(machine, monkeypatch)
    assert cores.cpu_flags().issuperset(features) == (machine in fits)
    if machine in fits:
        return
    path = tmp_path / "other.tfgraph"
    edit_manifest(artifact, path, cpu={"mcpu": mcpu, "features": features})
    with pytest.raises(tfgraph.MissingTool, match=f"compiled for {mcpu}; this CPU has no ") as e:
        tfgraph.load(path)
    assert e.value.hint == "compile it here, or with --mcpu"
    named = e.value.message.partition("this CPU has no ")[2].split(", ")
    text = (DATA / f"{machine}.txt").read_text()
    assert named == sorted(f for f in features if not re.search(rf"\b{f}\b", text))


def test_flags_are_those_of_the_line_that_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    on("kaby-lake", monkeypatch)
    flags = cores.cpu_flags()
    assert {"fpu", "avx2", "arch_capabilities"} <= flags
    assert "ept_x_only" not in flags  # of "vmx flags"


def test_every_name_we_ask_for_is_one_that_linux_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    for machine in MACHINES:
        on(machine, monkeypatch)
        seen |= cores.cpu_flags()
    assert set(_CPUINFO_NAMES.values()) <= seen


def test_no_code_is_opened_where_a_feature_is_missing(artifact: Path, tmp_path: Path) -> None:
    """Counted by the interpreter: what is opened at all, and mapped or loaded after that."""
    path = tmp_path / "future.tfgraph"
    features = json.loads((artifact / "manifest.json").read_text())["cpu"]["features"]
    edit_manifest(artifact, path, cpu={"mcpu": "future", "features": [*features, "avx9000"]})
    code = """if True:
        import sys
        import tfgraph, tfgraph.runtime.model
        opened = []
        watched = ("open", "ctypes.dlopen", "mmap.__new__")
        sys.addaudithook(lambda event, args: opened.append(str(args)) if event in watched else None)
        try:
            tfgraph.load(sys.argv[1])
        except tfgraph.MissingTool as error:
            print(error)
        print(*opened, sep="\\n", file=sys.stderr)"""
    for folder, refused in ((path, True), (artifact, False)):
        done = python("-c", code, str(folder))
        assert ("this CPU has no avx9000" in done.stdout) == refused, done.stderr
        assert "manifest.json" in done.stderr
        for part in ("kernels", "weights.safetensors", "libtvm_runtime"):
            assert (part in done.stderr) != refused, part
