"""`generate --text` and `run --text`: the text as it comes, batches, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.artifacts import edit_manifest
from helpers.small_tokenizers import byte_level, word_level
from helpers.text_models import as_before, write_decoder, write_encoder_decoder

import tfgraph as tg

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
DRAW = ("--temperature", "3", "--seed", "4", "--max-tokens", "30")


def build(file: Path) -> Path:
    found = tg.build(file, output=file.with_suffix(".tfgraph"), check=False).artifact
    assert found is not None
    return found


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(write_decoder(tmp_path_factory.mktemp("decoder"), "generation: {stop: 0}\n"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    return build(write_encoder_decoder(folder, "generation: {start: 3}\n"))


def test_text_comes_as_it_is_generated(
    tfgraph: Callable[..., Any], decoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what the package makes of all tokens, printed in pieces."""
    prompt = byte_level().encode("the cät").ids
    with tg.load(decoder) as model:
        tokens = list(model.generate(prompt, max_tokens=30, temperature=3.0, seed=4))
    known = byte_level().decode(prompt)
    want = byte_level().decode([*prompt, *tokens]).removeprefix(known)
    assert "\ufffd" in want  # bytes that are no character
    got = tfgraph("generate", decoder, "--text", "the cät", *DRAW)
    assert (got.code, got.out) == (0, want + "\n")
    assert got.err.startswith(f"{len(tokens)} tokens in ")
    found = tfgraph("generate", decoder, "--text", "the cät", *DRAW, "--json").json
    assert (found["ids"], found["text"]) == (tokens, want)
    ids = ",".join(map(str, prompt))
    found = tfgraph("generate", decoder, "--ids", ids, *DRAW, "--json").json
    assert found["ids"] == tokens
    assert "text" not in found
    printed: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *a, **_: printed.append(*a or ("",)))
    tfgraph("generate", decoder, "--text", "the cät", *DRAW, "-q")
    assert len(printed) > 10


def test_the_stop_token_is_the_models_unless_given(
    tfgraph: Callable[..., Any], decoder: Path, tmp_path: Path
) -> None:
    line = ("--text", "the", "--max-tokens", "20", "--json")
    free = tfgraph("generate", decoder, *line).json["ids"]
    third = free[: free.index(free[2]) + 1]
    assert len(third) < len(free) == 20
    entry = {"start": None, "stop": [free[2]]}
    stops = edit_manifest(decoder, tmp_path / "stops.tfgraph", generation=entry)
    assert tfgraph("generate", stops, *line).json["ids"] == third
    assert tfgraph("generate", stops, *line, "--stop", free[0]).json["ids"] == free[:1]
    assert tfgraph("generate", stops, *line, "--stop", "").json["ids"] == free


def test_an_encoder_decoder_goes_on_from_a_text(tfgraph: Callable[..., Any], both: Path) -> None:
    with tg.load(both) as model:
        for words, prefix in ((), [3]), (("--prefix", "on the"), [3, 7, 4]):
            want = list(model.generate([2, 4, 5, 3], max_tokens=7, prefix=prefix))
            line = ("generate", both, "--text", "the cat", *words, "--max-tokens", 7)
            found = tfgraph(*line, "--json").json
            text = word_level().decode([*prefix, *want])
            text = text.removeprefix(word_level().decode(prefix))
            assert (found["ids"], found["text"]) == (want, text)


def test_run_takes_texts(tfgraph: Callable[..., Any], both: Path) -> None:
    line = ("run", both, "--text", "the cat sat", "--text", "the", "--prefix", "on")
    got = tfgraph(*line, "--save", "out")
    assert got.code == 0, got.err
    assert got.out.splitlines()[:3] == [
        f"{both} at batch=2 seq=5 target=2",
        "  tokens  [CLS] the cat sat [SEP]",
        "  tokens  [CLS] the [SEP] [PAD] [PAD]",
    ]
    with tg.load(both) as model:
        want = model(**model.tokenize(["the cat sat", "the"], prefix="on"))["logits"]
    np.testing.assert_array_equal(np.load("out/logits.npy"), want)
    assert tfgraph(*line, "--json").json["tokens"][1][-1] == "[PAD]"
    model_too = ("run", both.with_suffix(".yaml"), *line[2:], "--target", "numpy", "--json")
    assert tfgraph(*model_too).json["outputs"]["logits"]["shape"] == [2, 2, 12]


def test_inspect_says_that_it_takes_text(tfgraph: Callable[..., Any], decoder: Path) -> None:
    assert "\n  takes text, by tokenizer.json\n" in tfgraph("inspect", decoder).out


def test_what_is_refused(tfgraph: Callable[..., Any], decoder: Path, both: Path) -> None:
    def refused(*words: object) -> list[str]:
        got = tfgraph(*words)
        assert (got.code, got.out) == (2, "")
        return [line.partition(": ")[2] for line in got.err.splitlines()]

    (error, _) = refused("generate", decoder, "--text", "a", "--ids", "5")
    assert error == "--ids and --text are both given"
    assert refused("generate", decoder)[0] == "a prompt is missing"
    assert refused("generate", decoder, "--text", "") == ["--text: this text has no tokens"]
    refusal = refused("generate", decoder, "--text", "a", "--prefix", "b")
    assert refusal == ["speaker is no encoder-decoder: it has no prefix"]
    assert refused("run", both, "--prefix", "the") == ["--prefix goes with --text"]
    np.save("ids.npy", np.zeros((1, 3), np.int64))
    refusal = refused("run", both, "--text", "the", "--input", "input_ids=ids.npy")
    assert refusal == ["--input input_ids=ids.npy: 'input_ids' is made of --text"]
    assert tfgraph("compile", "tiny.tfg", "-o", "t.tfgraph", "--no-verify", "-q").code == 0
    assert refused("run", "t.tfgraph", "--text", "the")[0] == (
        "tiny takes no text: it has no input 'input_ids'"
    )


def test_without_a_tokenizer(tfgraph: Callable[..., Any], decoder: Path, tmp_path: Path) -> None:
    old = as_before(decoder, tmp_path / "old.tfgraph")
    for verb in ("generate", "run"):
        got = tfgraph(verb, old, "--text", "the")
        assert (got.code, got.err.splitlines()) == (
            2,
            [
                "error: speaker has no tokenizer",
                "hint: name one in its model file, `tokenizer: tokenizer.json`, and compile again",
            ],
        )


def test_without_the_package(
    tfgraph: Callable[..., Any], decoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    got = tfgraph("generate", decoder, "--text", "the", "--json")
    assert (got.code, got.json["error"]["code"]) == (3, "missing-tool")
    assert got.json["error"]["hint"].startswith("pip install tokenizers, or 'tfgraph[text]'")
    assert tfgraph("generate", decoder, "--ids", "5", "--max-tokens", 1).code == 0


def test_text_imports_the_package_and_ids_do_not(decoder: Path) -> None:
    script = (
        "import sys, json; from tfgraph.cli import main; found = []\n"
        "for words in (['--ids', '5'], ['--text', 'the']):\n"
        "    code = main(['generate', sys.argv[1], *words, '--json'])\n"
        "    found += [[code, sorted({m.partition('.')[0] for m in sys.modules})]]\n"
        "print(json.dumps(found), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, decoder],
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    (first, ids), (second, text) = json.loads(done.stderr.splitlines()[-1])
    assert (first, second) == (0, 0)
    assert "tokenizers" not in ids
    assert "tokenizers" in text
    heavy = {"tvm", "typer", "pydantic", "networkx", "ruamel", "onnx", "huggingface_hub"}
    assert not heavy & set(text)
