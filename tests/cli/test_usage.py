"""Mistakes: what stderr says, letter for letter, and the exit code. Help and version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.errors import CheckFailed, MissingTool, TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
VERBS = ("compile", "run", "compare", "inspect", "fuzz", "export", "doctor", "init", "import")

MISTAKES = {
    "complie tiny.tfg": """\
error: no such command: complie
hint: did you mean 'compile'?
""",
    "compile": """\
error: missing argument 'MODEL'
hint: see `tfgraph compile --help`
""",
    "compile tiny.tfg --taget cpu": """\
error: no such option: --taget
hint: did you mean '--target'?
""",
    "run tiny.tfg --threads 0": """\
error: invalid value for '--threads': should be greater than or equal to 1
hint: see `tfgraph run --help`
""",
    "inspect tiny.tfg --format svg": """\
error: invalid value for '--format' / '-f': 'svg' is not one of 'text', 'dot', 'mermaid', 'yaml'
hint: see `tfgraph inspect --help`
""",
    "compile tiny.tfg --target cdua": """\
error: unknown target 'cdua'
hint: did you mean 'cuda'?
""",
    "compile tiny.tfg --target gpu": """\
error: unknown target 'gpu'
hint: did you mean 'cuda'?
""",
    "compile tiny.tfg --target wgsl": """\
error: unknown target 'wgsl'
hint: did you mean 'webgpu'?
""",
    "compile tiny.tfg --target opencll": """\
error: unknown target 'opencll'
hint: did you mean 'opencl'?
""",
    "compile tiny.tfg --passes cse{k=2}": """\
error: pass cse has no option 'k'
hint: it has none
""",
    "compile -": """\
-: error: cannot read the model: this is not a file
hint: models are read from files, not from standard input or a pipe: write it to one
""",
    "run tiny.tfg --target numpy --save tiny.tfg": """\
error: cannot write tiny.tfg: it is a file
hint: --save names a folder
""",
    "run tiny.tfg --target numpy --save tiny.tfg/o": """\
error: cannot write tiny.tfg/o: Not a directory
""",
    "compile tiny.tfg --target cpu --arch sm_80": """\
error: --arch is for --target cuda, not cpu
hint: --mcpu names a CPU
""",
    "compile tiny.tfg --target cuda --mcpu znver4": "error: --mcpu is for --target cpu, not cuda\n",
    "compile tiny.tfg --target cuda --arch sm_1": """\
error: unknown CUDA architecture 'sm_1'; known are sm_75, sm_80, sm_86, sm_87, sm_88, sm_89, \
sm_90, sm_100, sm_103, sm_110, sm_120, sm_121
hint: did you mean 'sm_75'?
""",
    "compile tiny.tfg --passes fuse-attn": """\
error: unknown pass 'fuse-attn'
hint: did you mean 'fuse-attention'?
""",
    "compile tiny.tfg --passes cse --print-after fuse-attention": """\
error: --print-after fuse-attention: no such pass runs
hint: passes are cse
""",
    "compile tiny.tfg -o tiny.tfg": """\
error: tiny.tfg exists and is not an artifact
hint: choose another -o
""",
    "compare tiny.tfg --backends numpy": """\
error: --backends numpy: expected two names
hint: such as --backends numpy,cpu
""",
    "compare tiny.tfg --backends numpy,onnx": """\
error: unknown target 'onnx'
hint: one of numpy, cpu, cuda, opencl, metal, webgpu, onnxruntime, onnx-reference
""",
    "run tiny.tfg --target numpy --dim m=3": """\
error: --dim m=3: the model has no symbol 'm'
hint: it has n
""",
    "run tiny.tfg --target numpy --dim n": "error: --dim n: expected NAME=SIZE, such as seq=128\n",
    "run tiny.tfg --target numpy --dim n=1 --dim n=2": "error: --dim n=2: 'n' is given twice\n",
    "run tiny.tfg --target numpy --input y=y.npy": """\
error: the model has no input 'y'
hint: it has x
""",
    "run tiny.tfg --target numpy --input x=x.npy": (
        "error: --input x: x.npy: No such file or directory\n"
    ),
    "run tiny.tfg --target numpy --input x=tiny.tfg": (
        "error: --input x: tiny.tfg is not a .npy file\n"
    ),
    "run tiny.tfg --trace --target cpu": """\
error: --trace is of the reference, not of cpu
hint: `tfgraph compare` names the first value that differs
""",
    "run tiny.tfg --plugin none.py": "none.py: error: no such plugin\n",
    "import hf none": "error: none: no such folder\n",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_explained(tfgraph: Callable[..., Any], line: str, tmp_path: Path) -> None:
    result = tfgraph(*line.split())
    assert (result.code, result.out, result.err) == (2, "", MISTAKES[line])
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.tfg"]


@pytest.mark.parametrize("line", ["complie", "compile", "run tiny.tfg --dim n=0", "run none.yaml"])
def test_with_json_a_mistake_is_an_object(tfgraph: Callable[..., Any], line: str) -> None:
    result = tfgraph(*line.split(), "--json")
    assert result.code == 2
    assert list(result.json) == ["error"]
    assert list(result.json["error"]) == ["code", "message", "file", "line", "column", "hint"]
    assert result.err == ""


def test_an_error_in_a_file_has_its_place(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "bad.tfg").write_text("graph bad(%x: f32[4]) {\n  %y = softmaxx(%x) : f32[4]\n}\n")
    plain = tfgraph("inspect", "bad.tfg")
    assert plain.code == 2
    assert plain.err.startswith("bad.tfg:2:8: error: ")
    assert "    %y = softmaxx(%x) : f32[4]\n           ^\n" in plain.err
    error = tfgraph("inspect", "bad.tfg", "--json").json["error"]
    assert (error["file"], error["line"], error["column"]) == ("bad.tfg", 2, 8)


def test_a_target_or_arch_of_the_model_file_has_its_place(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    model = "layers: 1\nwidth: 8\nheads: 1\nvocabulary: 9\n"
    (tmp_path / "m.yaml").write_text(model + "target: cdua\n")
    assert tfgraph("compile", "m.yaml").err.startswith("m.yaml:5:9: error: unknown target 'cdua'\n")
    (tmp_path / "m.yaml").write_text(model + "arch: sm_1\ntarget: cuda\n")
    error = tfgraph("compile", "m.yaml").err
    assert error.startswith("m.yaml:5:7: error: unknown CUDA architecture 'sm_1'")


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("target: tpu", "unknown target 'tpu'", "did you mean 'cpu'?"),
        ("target: gpu", "unknown target 'gpu'", "did you mean 'cuda'?"),
        ("arch: sm_81", "unknown CUDA architecture 'sm_81'", "did you mean 'sm_80'?"),
    ],
)
def test_settings_of_the_model_file_are_checked_where_they_are_not_used(
    tfgraph: Callable[..., Any], tmp_path: Path, line: str, message: str, hint: str
) -> None:
    (tmp_path / "m.yaml").write_text(f"layers: 1\nwidth: 8\n{line}\n")
    error = tfgraph("inspect", "m.yaml").err
    assert f"m.yaml:3:{line.index(' ') + 2}: error: {message}" in error
    assert f"hint: {hint}\n" in error


CPU, CUDA = "float32", "float32 or float16 or bfloat16"


@pytest.mark.parametrize(
    ("line", "target", "dtype", "runs"),
    [
        *(
            (line, "cpu", dtype, CPU)
            for line in ("compile", "run --save o", "compare")
            for dtype in ("float16", "bfloat16", "float64")
        ),
        ("compile --target cuda", "cuda", "float64", CUDA),
        ("compile --target webgpu", "webgpu", "float16", CPU),
    ],
)
def test_a_dtype_that_the_target_does_not_run(
    tfgraph: Callable[..., Any], tmp_path: Path, line: str, target: str, dtype: str, runs: str
) -> None:
    (tmp_path / "m.yaml").write_text(f"layers: 1\nwidth: 8\ndtype: {dtype}\n")
    verb, *options = line.split()
    result = tfgraph(verb, "m.yaml", *options)
    assert (result.code, result.err) == (
        2,
        f"m.yaml:3:8: error: dtype: {dtype} does not run on {target}\n"
        f"    dtype: {dtype}\n"
        "           ^\n"
        f"hint: dtype: {runs} does; `tfgraph run --target numpy` takes {dtype}\n",
    )
    assert tfgraph("run", "m.yaml", "--save", "o", "--target", "numpy").code == 0


def test_control_characters_do_not_reach_the_terminal(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("run", "no\x1b[31mne.yaml")
    assert result.code == 2
    assert "\x1b" not in result.err


def test_help_lists_the_verbs_and_every_verb_has_the_common_options(
    tfgraph: Callable[..., Any],
) -> None:
    result = tfgraph("--help")
    assert result.code == 0
    for verb in VERBS:
        assert f"\n  {verb} " in result.out
        if verb != "import":
            text = tfgraph(verb, "--help").out
            for option in ("--json", "-v,", "-q,", "--no-color", "--version", "--plugin"):
                assert option in text, (verb, option)
    assert tfgraph().code == 2


def test_usage_is_written_for_people(tfgraph: Callable[..., Any]) -> None:
    assert "tfgraph init [OPTIONS] [FILE]\n" in tfgraph("init", "--help").out
    assert "<int" not in tfgraph("run", "--help").out
    assert "..." not in tfgraph("import", "--help").out.partition("Commands:")[2]


def test_the_page_of_the_command_line_has_every_verb_and_exit_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [f"## {verb}" for verb in VERBS if f"\n## {verb}\n" not in page] == []
    classes = (TfgraphError, CheckFailed, MissingTool)
    for code in {*(c.exit_code for c in classes), 0, 70, 130, 141, 143}:
        assert f"\n| {code} |" in page
    for kind in classes:
        assert f"`{kind.code}`" in page


def test_the_version_is_told_everywhere(tfgraph: Callable[..., Any]) -> None:
    from tfgraph.runtime.version import VERSION

    for line in ("--version", "run --version", "import hf --version"):
        result = tfgraph(*line.split())
        assert (result.code, result.out) == (0, f"tfgraph {VERSION}\n")


def test_help_needs_no_heavy_import() -> None:
    heavy = ("numpy", "tvm", "tvm_ffi", "onnx", "networkx", "rich", "ruamel", "tfgraph.ir")
    code = (
        "import sys; from tfgraph.cli import main; assert main(['--help']) == 0; "
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("arguments", ["inspect", "inspect --json", "run --json --dim sek=3"])
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "m.yaml").write_text("layers: 20\nwidth: 8\nheads: 1\nvocabulary: 9\n")
    verb, *options = arguments.split()
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody_reads:
        done = subprocess.run(
            [sys.executable, "-m", "tfgraph", verb, str(tmp_path / "m.yaml"), *options],
            cwd=ROOT,
            stdout=nobody_reads,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (141, "")
    assert done.stderr == ""
