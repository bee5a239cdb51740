"""`inspect --attention`, of artifacts and of models, and `compile --tap`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.artifacts import environment
from helpers.text_models import write_encoder, write_encoder_decoder
from helpers.tolerance import assert_close

import tfgraph as tg
from tfgraph.cli import main
from tfgraph.cli.attention import AttentionMap, Request, bare, distinct, find_word, print_attention
from tfgraph.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

ENCODER = """\
name: encoder
kind: encoder
layers: 2
width: 16
heads: 2
ffn: 32
vocabulary: 50
embedding: {token_types: 2}
mask: padding
positions: {kind: learned, max: 12}
symbols: {batch: {max: 4}}
"""
TRANSLATOR = """\
name: translator
kind: encoder-decoder
layers: 1
width: 16
heads: 2
ffn: 32
vocabulary: 50
mask: padding
positions: {kind: sinusoidal, max: 12}
head: lm
"""
IDS = [7, 5, 9, 5, 11]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models, and artifacts of the encoder with taps and without."""
    made = tmp_path_factory.mktemp("attention")
    (made / "encoder.yaml").write_text(ENCODER)
    (made / "translator.yaml").write_text(TRANSLATOR)
    tg.build(made / "encoder.yaml", "cpu", made / "tapped.tfgraph", tap="attention", check=False)
    tg.build(made / "encoder.yaml", "cpu", made / "plain.tfgraph", check=False)
    return made


def weights(folder: Path, ids: list[int]) -> Any:
    """The outputs of the tapped artifact on these tokens alone."""
    with tg.load(folder / "tapped.tfgraph") as model:
        row = np.array([ids])
        given = {"input_ids": row, "attention_mask": row * 0 + 1, "token_type_ids": row * 0}
        return model(**given)


@pytest.mark.parametrize("source", ["tapped.tfgraph", "encoder.yaml"])
def test_what_a_token_attends_to(source: str, folder: Path, tfgraph: Callable[..., Any]) -> None:
    line = ("inspect", folder / source, "--attention", "--ids", "7,5,9,5,11", "--token", "5")
    found = tfgraph(*line, "--top", 2, "--json").json
    expected = weights(folder, IDS)
    assert found["tokens"] == {"seq": ["7", "5", "9", "5", "11"]}
    assert [(m["name"], m["layer"]) for m in found["maps"]] == [
        ("layers.0.attention.probabilities", 0),
        ("layers.1.attention.probabilities", 1),
    ]
    for m in found["maps"]:
        p = expected[m["name"]][0]
        assert [(row["position"], row["head"]) for row in m["rows"]] == [
            (1, 0),
            (1, 1),
            (3, 0),
            (3, 1),
        ]
        for row in m["rows"]:
            own = p[row["head"], row["position"]]
            order = np.argsort(-own)[:2]
            assert [a["position"] for a in row["attends"]] == list(order)
            assert [a["token"] for a in row["attends"]] == [str(IDS[i]) for i in order]
            assert_close(
                [a["weight"] for a in row["attends"]], own[order], dtype="float32", length=64
            )


def test_the_table(folder: Path, tfgraph: Callable[..., Any]) -> None:
    line = ("inspect", folder / "tapped.tfgraph", "--attention", "--ids", "7,5,9,5,11")
    result = tfgraph(*line, "--token", "9", "--layer", 1)
    p = weights(folder, IDS)["layers.1.attention.probabilities"][0]
    names = ["7", "5@1", "9", "5@3", "11"]
    lines = result.out.splitlines()
    assert lines[0] == "layers.1.attention  9"
    assert len(lines) == 3
    for head, text in enumerate(lines[1:]):
        order = np.argsort(-p[head, 2])
        cells = [f"{names[i]} {p[head, 2, i]:.2f}" for i in order]
        assert re.split(r"\s{2,}", text.strip()) == [f"head {head}", *cells]
    summary = tfgraph(*line, "--top", 1).out.splitlines()
    assert summary[0] == "layers.0.attention"
    assert summary[3] == ""
    q, k = np.unravel_index(np.argmax(p[1]), p[1].shape)
    assert summary[-1] == f"  head 1  {names[q]} > {names[k]} {p[1, q, k]:.2f}"


def test_cross_attention(folder: Path, tfgraph: Callable[..., Any]) -> None:
    """Queries are the target's tokens, keys the source's."""
    line = ("inspect", folder / "translator.yaml", "--attention", "--ids", "7,5,9")
    found = tfgraph(*line, "--prefix", "0,4", "--token", 4, "--json").json
    assert found["tokens"] == {"seq": ["7", "5", "9"], "target": ["0", "4"]}
    maps = {m["name"]: m["rows"] for m in found["maps"]}
    own, cross = (
        f"decoder.layers.0.{part}.probabilities" for part in ("attention", "cross_attention")
    )
    assert set(maps) == {own, cross}  # the encoder's queries have no such token
    keys = {a["token"] for row in maps[cross] for a in row["attends"]}
    assert keys == {"7", "5", "9"}
    assert {a["token"] for row in maps[own] for a in row["attends"]} == {"0", "4"}
    started = tfgraph(*line, "--json").json
    assert started["tokens"]["target"] == ["0"]
    assert len(started["maps"]) == 3


@pytest.mark.parametrize(
    ("source", "options", "message", "hint"),
    [
        ("plain.tfgraph", "--ids 5", "does not give its attention weights", "--tap attention -o "),
        ("tapped.tfgraph", "", "--attention needs a text", "or --ids 5,6,7"),
        ("tapped.tfgraph", "--ids 5,x", "'x' is no token id", "--ids 5,6,7"),
        ("tapped.tfgraph", "--ids 5,6 --token 9", "--token 9: no such token", "tokens are 5 6"),
        ("tapped.tfgraph", "--ids 5 --layer 7", "--layer 7: the model has no", "it has 0, 1"),
        ("tapped.tfgraph", "--ids 5 --prefix 1", "--prefix is for encoder-decoders", ""),
        ("tapped.tfgraph", "--ids 5 --text a", "takes --ids or --text, not both", ""),
        ("tapped.tfgraph", "--text a", "encoder has no tokenizer", "tokenizer: tokenizer.json"),
        ("tapped.tfgraph", "--ids 50", "holds 50, expected 0 to 49", ""),
        ("encoder.yaml", "--ids 5 --cost", "--attention runs the model; --cost shows", ""),
    ],
)
def test_mistakes(
    source: str,
    options: str,
    message: str,
    hint: str,
    folder: Path,
    tfgraph: Callable[..., Any],
) -> None:
    result = tfgraph("inspect", folder / source, "--attention", *options.split())
    assert result.code == 2
    assert result.out == ""
    assert message in result.err
    assert hint in result.err


def test_options_that_need_attention(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("inspect", "tiny.tfg", "--token", "it")
    assert (result.code, result.err) == (2, "error: --token is for --attention\n")
    result = tfgraph("inspect", "tiny.tfg", "--attention", "--ids", "5")
    assert result.code == 2
    assert "no value is attention" in result.err


def test_the_hint_makes_one(
    folder: Path, tfgraph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    line = ("inspect", "plain.tfgraph", "--attention", "--ids", "5")
    command = tfgraph(*line).err.splitlines()[1].partition("again: ")[2].split()
    assert command[-4:] == ["--tap", "attention", "-o", "plain.tfgraph"]
    command[-1] = "again.tfgraph"
    assert tfgraph(*command[1:], "--no-verify").code == 0
    assert tfgraph("inspect", "again.tfgraph", "--attention", "--ids", "5").code == 0


def test_an_artifact_runs_past_the_compiler(folder: Path) -> None:
    """Neither typer nor anything but the runtime is loaded."""
    code = (
        "import sys; from tfgraph.cli import main; code = main(sys.argv[1:]);"
        "print([m for m in ('typer', 'tvm', 'pydantic', 'tfgraph.ir') if m in sys.modules], code)"
    )
    line = ["inspect", str(folder / "tapped.tfgraph"), "--attention", "--ids", "5,6"]
    done = subprocess.run(
        [sys.executable, "-c", code, *line],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_both_ways_do_the_same(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfgraph.cli import lean

    line = ["inspect", str(folder / "tapped.tfgraph"), "--attention", "--ids", "5,6,5"]
    options = ["--token 5 --top=2", "--layer 1 --json", "--top 0"]

    def results() -> list[tuple[int, str, str]]:
        return [(main([*line, *more.split()]), *capfd.readouterr()) for more in options]

    past_typer = results()
    monkeypatch.setattr(lean, "run_lean", lambda *_: None)
    assert past_typer == results()
    assert [code for code, *_ in past_typer] == [0, 0, 2]


@pytest.mark.parametrize(
    ("token", "positions"),
    [("the", [1, 5]), ("The", [1, 5]), ("[SEP]", [7]), ("größer", [])],
)
def test_text(
    token: str, positions: list[int], tmp_path: Path, tfgraph: Callable[..., Any]
) -> None:
    """Tokens are shown, and found, as the tokenizer writes them."""
    line = ("inspect", write_encoder(tmp_path / "words"), "--attention")
    result = tfgraph(*line, "--text", "the cat sat on the mat", "--token", token, "--json")
    if not positions:
        assert result.code == 2
        assert "the tokens are [CLS] the cat sat on mat [SEP]" in result.json["error"]["hint"]
        return
    found = result.json
    tokens = ["[CLS]", "the", "cat", "sat", "on", "the", "mat", "[SEP]"]
    assert found["tokens"] == {"seq": tokens}
    rows = found["maps"][0]["rows"]
    assert [(r["position"], r["token"]) for r in rows if r["head"] == 0] == [
        (i, tokens[i]) for i in positions
    ]
    by_ids = tfgraph(*line, "--ids", "2,4,5,6,7,4,8,3", "--json").json
    assert by_ids["tokens"] == found["tokens"]


def test_text_of_an_encoder_decoder(tmp_path: Path, tfgraph: Callable[..., Any]) -> None:
    file = write_encoder_decoder(tmp_path / "both", "generation: {start: 2}\n")
    line = ("inspect", file, "--attention", "--text", "the cat", "--json")
    assert tfgraph(*line, "--prefix", "dog").json["tokens"] == {
        "seq": ["[CLS]", "the", "cat", "[SEP]"],
        "target": ["[CLS]", "dog"],
    }


def test_rows_without_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    """A query that may attend to nothing says so."""
    with tg.graph("empty") as g:
        ids = g.input("ids", "i64", "batch", "seq", fill=tg.Fill("ids", 9))
        x = tg.blocks.embedding(ids, 9, 4)
        # Each position attends to the one before it: the first to none.
        y = tg.blocks.attention(x, x, x, heads=1, mask=tg.causal(offset=-1) & tg.window(0))
        g.output("y", y)
    graph = g.build()
    out = Output(json=False, verbose=False, quiet=False, color=False)
    with tg.compile(graph, "numpy", tap="attention") as model:
        assert print_attention(out, model, [], Request(ids="3,4", token="3")) == 0
    assert capsys.readouterr().out == "attention  3\n  head 0  nothing\n"


def test_words() -> None:
    """Tokens by their text, without the marks of tokenizers; with positions where they repeat."""
    assert [bare(t) for t in ("##ing", "▁it", "Ġit", "it</w>", "it")] == ["ing", *["it"] * 4]
    assert distinct(["a", "b", "a"]) == ["a@0", "b", "a@2"]
    m = AttentionMap("layers.12.attention.probabilities", np.ones((1, 1, 1)), ["a"], ["a"])
    assert (m.title, m.layer) == ("layers.12.attention", 12)


@pytest.mark.parametrize(
    ("tokens", "word", "positions"),
    [
        ("[CLS] em ##bed ##ding ##s em ##bed the ##s [SEP]", "embeddings", [1, 2, 3, 4]),
        ("[CLS] em ##bed ##ding ##s em ##bed the ##s [SEP]", "Embed", [1, 2, 5, 6]),
        ("[CLS] em ##bed ##ding ##s em ##bed the ##s [SEP]", "##s", [4, 8]),
        ("[CLS] em ##bed ##ding ##s em ##bed the ##s [SEP]", "s", [4, 8]),
        ("[CLS] em ##bed ##ding ##s em ##bed the ##s [SEP]", "emthe", []),
        ("<s> ▁Em bed ding s . ▁em bed </s>", "embed", [6, 7]),
        ("<s> ▁Em bed ding s . ▁em bed </s>", "EMBED", [1, 2, 6, 7]),
        ("<s> ▁Em bed ding s . ▁em bed </s>", "Embeddings", [1, 2, 3, 4]),
        ("<s> ▁Em bed ding s . ▁em bed </s>", "bedem", []),
        ("ĠEm bed ĠEm", "embed", [0, 1]),
        ("em bed</w> bed</w>", "embed", [0, 1]),
        ("5 9 59", "59", [2]),
        ("The the", "the", [1]),
        ("The THE", "the", [0, 1]),
    ],
)
def test_a_word_may_be_several_tokens(tokens: str, word: str, positions: list[int]) -> None:
    """Those that go on with each other, by the marks of their tokenizer; numbers have none."""
    assert find_word(tokens.split(), word) == positions


def test_compile_says_what_is_tapped(folder: Path, tfgraph: Callable[..., Any]) -> None:
    line = ("compile", folder / "encoder.yaml", "-o", "e.tfgraph", "--tap", "attention")
    result = tfgraph(*line, "--tap", "hidden", "--no-verify")
    assert result.code == 0
    told = result.out.partition("\ntaps    ")[2].splitlines()
    assert told[0].startswith("3 further outputs; 2 fused away, recomputed by ")
    assert re.split(r"\s{2,}", told[1].strip()) == [
        "layers.0.attention.probabilities",
        "f32[batch,2,seq,seq]",
        "recomputed",
    ]
    assert told[4] == "  and 1 more, which -v lists"
    more = tfgraph(*line, "--tap=hidden", "-v", "--no-verify")
    assert "the output last_hidden_state already" in more.out
    shown = tfgraph("run", "e.tfgraph", "--dim", "seq=3", "--save", "out", "--json").json
    assert shown["outputs"]["layers.0.attention.probabilities"]["shape"][1:] == [2, 3, 3]
    assert Path("out/layers.0.attention.probabilities.npy").is_file()
    wrong = tfgraph("compile", folder / "encoder.yaml", "--tap", "layers.0.atention")
    assert wrong.code == 2
    assert "the nearest are layers.0.attention" in wrong.err
    for word, meant in (("atention", "attention"), ("hiden", "hidden")):
        wrong = tfgraph("compile", folder / "encoder.yaml", "--tap", word)
        assert wrong.err.splitlines()[1].startswith(f"hint: the nearest are {meant}")
