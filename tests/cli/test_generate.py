"""`tfgraph generate`: tokens on stdout as they come, the JSON object, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.generating import YAML, compiled, model

import tfgraph as tg
from tfgraph.cli import main

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
    want: dict[str, Any] = {"ids": ids, "steps": 4, "prefill_lengths": [3]}
    assert tfgraph(*line).json == want
    assert tfgraph(*line, "--check-cache").json == {**want, "logit_max_abs_vs_uncached": 0.0}
    assert tfgraph(*line, "--no-cache").json == {**want, "prefill_lengths": [3, 4, 5, 6]}
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
    wrong = tfgraph("generate", "t.tfgraph", *IDS, "--prefix", "0,99")
    assert (wrong.code, wrong.err) == (2, "error: prefix holds 99, expected 0 to 39\n")


def test_values_that_mean_off_draw_nothing(tfgraph: Callable[..., Any], artifact: Path) -> None:
    off = ("--top-k", "0", "--top-p", "1", "--min-p", "0", "--repetition-penalty", "1")
    want = list(compiled("learned").generate([5, 6, 7], max_tokens=9))
    line = ("generate", artifact, *IDS, "--max-tokens", 9, "--json")
    assert tfgraph(*line, *off).json["ids"] == want
    assert tfgraph(*line, *off, "--greedy", "--temperature", "0").json["ids"] == want
    assert tfgraph(*line, *off, "--beams", "3").code == 0


def test_it_says_that_positions_ended_it(tfgraph: Callable[..., Any], artifact: Path) -> None:
    prompt = ",".join(["1"] * 148)  # of 150
    got = tfgraph("generate", artifact, "--ids", prompt)
    assert got.code == 0
    assert got.out.count(",") == 2
    assert "ended early: model has no position for another token\n" in got.err
    assert "ended" not in tfgraph("generate", artifact, "--ids", prompt, "--max-tokens", 3).err
    got = tfgraph("generate", artifact, "--ids", prompt + ",1,1,1")
    assert (got.code, got.out) == (2, "")
    assert got.err == "error: model takes at most 150 tokens, and these would be 151\n"


@pytest.mark.parametrize("words", [("--json",), ("--beams", "2"), ()])
def test_progress_where_tokens_are_not_shown_as_they_come(
    artifact: Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert main(["generate", str(artifact), *IDS, "--max-tokens", "20", *words]) == 0
    assert capsys.readouterr().out
    *before, last = terminal.getvalue().split("20 tokens in ")
    assert last.endswith(" tokens/s\n")
    assert bool(before[1:]) == bool(words)  # on the line that goes away when it is done


class Terminal(StringIO):
    """What says that it is one."""

    def isatty(self) -> bool:
        return True


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
        "--beams 2 draws nothing, so it does not go with --top-k",
    ),
    (
        (*IDS, "--temperature", "0", "--min-p", "0.1"),
        "--temperature 0 draws nothing, so it does not go with --min-p",
    ),
    (
        (*IDS, "--greedy", "--temperature", "0.5"),
        "--greedy draws nothing, so it does not go with --temperature",
    ),
    (
        (*IDS, "--greedy", "--beams", "2"),
        "--greedy keeps one beam, so it does not go with --beams 2",
    ),
    (
        (*IDS, "--beams", "2", "--repetition-penalty", "1.5"),
        "--beams 2 goes by the logits as they are, so it does not go with --repetition-penalty",
    ),
    (
        (*IDS, "--no-cache", "--chunk", "2"),
        "--no-cache has no cache, so it does not go with --chunk",
    ),
    (
        (*IDS, "--no-cache", "--check-cache"),
        "--no-cache has no cache, so it does not go with --check-cache",
    ),
    ((*IDS, "--seed", "0"), "--seed is given and nothing draws"),
    ((*IDS, "--beams", "2", "--seed", "1"), "--seed is given and nothing draws"),
    ((*IDS, "--greedy", "--seed", "1", "--top-k", "0"), "--seed is given and nothing draws"),
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
    Path("e.yaml").write_text("layers: 1\nwidth: 8\nvocabulary: 9\nhead: lm\n")
    tfgraph("compile", "e.yaml", "-o", "e.tfgraph", "--no-verify")
    got = tfgraph("generate", "e.tfgraph", *IDS)
    why = "e does not generate: an encoder's tokens depend on those behind them"
    assert (got.code, got.err.splitlines()[0]) == (2, f"error: {why}")
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
