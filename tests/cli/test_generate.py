"""`tfgraph generate`: tokens on stdout as they come, the JSON object, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.generating import YAML, compiled, model

import tfgraph as tg

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
IDS = ("--ids", "5,6,7")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    found = tg.build(model("learned"), "cpu", folder / "m.tfgraph", check=False).artifact
    assert found is not None
    return found


def test_tokens_with_commas_and_the_rate(tfgraph: Callable[..., Any], artifact: Path) -> None:
    want = list(compiled("learned").generate([5, 6, 7], max_tokens=9))
    got = tfgraph("generate", artifact, *IDS, "--max-tokens", 9, "--greedy")
    assert (got.code, got.out) == (0, ",".join(map(str, want)) + "\n")
    assert got.err.startswith("9 tokens in ")
    assert got.err.endswith(" tokens/s\n")
    assert tfgraph("generate", artifact, *IDS, "--max-tokens", 9, "-q").err == ""


def test_json(tfgraph: Callable[..., Any], artifact: Path) -> None:
    line = ("generate", artifact, *IDS, "--max-tokens", 4, "--json")
    ids = list(compiled("learned").generate([5, 6, 7], max_tokens=4))
    want: dict[str, Any] = {"ids": ids, "text": None, "steps": 4, "prefill_lengths": [3]}
    assert tfgraph(*line).json == {**want, "logit_max_abs_vs_uncached": None}
    assert tfgraph(*line, "--check-cache").json == {**want, "logit_max_abs_vs_uncached": 0.0}
    anew = {**want, "prefill_lengths": [3, 4, 5, 6], "logit_max_abs_vs_uncached": None}
    assert tfgraph(*line, "--no-cache").json == anew
    assert tfgraph(*line, "--chunk", 2).json["prefill_lengths"] == [2, 1]


def test_options_mean_what_they_mean_in_python(tfgraph: Callable[..., Any], artifact: Path) -> None:
    drawing = {"temperature": 0.9, "top_k": 9, "top_p": 0.8, "min_p": 0.05, "seed": 4}
    for given in (drawing, {"top_k": 5}, {"repetition_penalty": 2.5}, {"beams": 3}):
        words = [w for n, v in given.items() for w in (f"--{n.replace('_', '-')}", str(v))]
        got = tfgraph("generate", artifact, *IDS, "--max-tokens", 12, *words, "--json").json["ids"]
        more = {"temperature": 1.0} if "top_k" in given and given is not drawing else {}
        run = compiled("learned").generate([5, 6, 7], max_tokens=12, **{**given, **more})  # type: ignore[arg-type]
        assert got == list(run), given
    stop = got[2]
    words = ["--beams", "3", "--stop", f"999,{stop}"]
    ended = tfgraph("generate", artifact, *IDS, "--max-tokens", 12, *words, "--json").json["ids"]
    assert stop not in ended[:-1]


def test_an_encoder_decoder_translates(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(YAML["encoder-decoder"])
    compiling = tfgraph("compile", "t.yaml", "-o", "t.tfgraph", "--json")
    assert compiling.json["verify"]["ok"] is True
    names = {output["name"] for output in compiling.json["verify"]["outputs"]}
    assert {"logits", "step: logits", "step: layers.1.v", "encode: memory.0"} <= names
    line = ("generate", "t.tfgraph", *IDS, "--max-tokens", 5, "--check-cache", "--json")
    found = tfgraph(*line, "--prefix", "0,3").json
    want = compiled("encoder-decoder").generate([5, 6, 7], max_tokens=5, prefix=[0, 3])
    assert found["ids"] == list(want)
    assert (found["logit_max_abs_vs_uncached"], found["prefill_lengths"]) == (0.0, [2])
    assert tfgraph(*line).json["prefill_lengths"] == [1]


REFUSED = [
    (("--ids", "5,40"), "input 'input_ids' holds 40, expected 0 to 39"),
    (("--ids", "5,99999999999999999999"), "--ids: '99999999999999999999' is no token id"),
    (("--ids", "5,-1"), "--ids: '-1' is no token id"),
    (("--ids", ""), "--ids: '' is no token id"),
    ((*IDS, "--stop", "x"), "--stop: 'x' is no token id"),
    (
        (*IDS, "--greedy", "--top-p", "0.5"),
        "--greedy draws nothing, so it does not go with --top-p",
    ),
    (
        (*IDS, "--beams", "2", "--top-k", "5"),
        "--beams draws nothing, so it does not go with --top-k",
    ),
    ((*IDS, "--top-p", "1.5"), "top_p is 1.5, expected above 0, at most 1"),
    ((*IDS, "--temperature", "nan"), "temperature is nan, expected a number of at least 0"),
    ((*IDS, "--max-tokens", "-1"), "invalid value for '--max-tokens': should be greater than"),
    ((), "a prompt is missing"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_is_refused(
    tfgraph: Callable[..., Any], artifact: Path, words: tuple[str, ...], message: str
) -> None:
    got = tfgraph("generate", artifact, *words)
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith(f"error: {message}")


def test_what_does_not_generate(tfgraph: Callable[..., Any]) -> None:
    assert tfgraph("generate", "tiny.tfg", *IDS).err.startswith(
        "error: tiny.tfg is not an artifact"
    )
    tfgraph("compile", "tiny.tfg", "-o", "tiny.tfgraph", "--no-verify")
    got = tfgraph("generate", "tiny.tfgraph", *IDS)
    assert (got.code, got.err.splitlines()[0]) == (2, "error: tiny does not generate")


def test_it_imports_no_compiler_and_no_typer(artifact: Path) -> None:
    script = (
        "import sys, json; from tfgraph.cli import main; code = main(sys.argv[1:]);"
        "print(json.dumps([code, sorted({m.partition('.')[0] for m in sys.modules})]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "generate", artifact, *IDS, "--top-k", "3"],
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert not {"tvm", "typer", "pydantic", "networkx", "ruamel", "onnx"} & set(modules)
