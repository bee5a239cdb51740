"""What is wrong with a model file is said with line and column, all of it in one go."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from helpers.mistakes import FREE, SMALL, errors_of

from tfgraph.errors import TfgraphError, render
from tfgraph.model import read_model
from tfgraph.model.read import MOST_ERRORS

GOOD = (Path(__file__).parents[2] / "examples" / "encoder.yaml").read_text("utf-8")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("layers: 1\nwidth: 8\nheads: seven\n", "3:8: heads: expected an integer, got 'seven'"),
        ("layers: 1.0\nwidth: 8\n", "1:9: layers: expected an integer, got 1.0"),
        ("layers: true\nwidth: 8\n", "1:9: layers: expected an integer, got true"),
        ("layers:\nwidth: 8\n", "1:1: layers: expected an integer, got nothing"),
        (SMALL + "seed: 9223372036854775808\n",
         "3:7: seed: expected below 9223372036854775808, got 9223372036854775808"),
        (SMALL + "heads:\n", "3:1: heads: expected a value, got nothing"),
        (SMALL + "positions:\n  max: # none\n",
         "4:3: positions.max: expected a value, got nothing"),
        (SMALL + "arch: sm_banana\n",
         "3:7: arch: expected a CUDA architecture such as sm_80, got 'sm_banana'"),
        (SMALL + "dtype: bf16\ntf32: true\n", "4:7: tf32: is for float32, and dtype is bf16"),
        (SMALL + "tf32: yes\n", "3:7: tf32: expected true or false, got 'yes'"),
        (SMALL + "positions: {kind: none, max: 8}\n",
         "3:30: positions.max: there are no positions"),
        # One error: rows before the first position are for learned positions.
        (SMALL + "positions: {kind: sinusoidal, max: 8, offset: 2}\nsymbols: {seq: {max: 8}}\n",
         "3:47: positions.offset: is for learned positions"),
        ("layers: [1]\nwidth: 8\n", "1:9: layers: expected an integer, got a list"),
        ("width: 8\n", "1:1: layers is missing"),
        (SMALL + "layerz: 3\n", "3:1: layerz: unknown key"),
        (SMALL + "norm: {epz: 1}\n", "3:8: norm.epz: unknown key"),
        (SMALL + "norm: rms\n", "3:7: norm: expected layer_norm, rms_norm or none, got 'rms'"),
        (SMALL + "norm: {eps: small}\n",
         "3:13: norm.eps: expected a finite number, or one such as rsqrt(64), got 'small'"),
        (SMALL + "mask: [padding,\n  caussal]\n",
         "4:3: mask[1]: expected padding, causal, window, prefix, segments, dense or bias, "
         "got 'caussal'"),
        (SMALL + "width: 9\n", "3:1: width: duplicate key"),
        (SMALL + "norm: {eps: 1, eps: 2}\n", "3:16: eps: duplicate key"),
        (SMALL + "heads: 3\n", "3:8: heads: 3 heads do not divide the width 8"),
        (SMALL + "heads: 4\nkv_heads: 3\n",
         "4:11: kv_heads: 4 query heads are not a multiple of 3 key/value heads"),
        (SMALL + "hidden_states: on\n", "3:16: hidden_states: expected true or false, got 'on'"),
        (SMALL + "activation: gelo\n",
         "3:13: activation: expected none, relu, relu2, sigmoid, silu, gelu, gelu_tanh, quick_gelu "
         "or tanh, got 'gelo'"),
        (SMALL + "norm: {kind: rms_norm, bias: true}\n",
         "3:30: norm.bias: rms_norm has no bias"),
        (SMALL + "norm: {scale: false, unit_offset: true}\n",
         "3:35: norm.unit_offset: there is no scale"),
        (SMALL + "norm: {shared: false}\n", "3:16: norm.shared: is for parallel"),
        (SMALL + "norm: none\nfinal_norm: true\n", "4:13: final_norm: there is no norm"),
        (SMALL + "kind: encoder-decoder\nnorm: {placement: parallel}\n",
         "4:19: norm.placement: the parts of a layer with memory follow each other"),
        (SMALL + "residual: false\nresidual_scale: 2\n",
         "4:17: residual_scale: there is no residual"),
        (SMALL + "residual_scale: 1e-50\n", "3:17: residual_scale: 1e-50 is 0 in f32"),
        (SMALL + "experts: {count: 2, active: 3}\n", "3:10: experts: 3 active experts of 2"),
        (SMALL + "positions: {kind: rotary, size: 10}\n",
         "3:33: positions.size: 10 is more than the head size 8"),
        (SMALL + "positions: {kind: rotary, size: 5}\n",
         "3:33: positions.size: rotary positions turn pairs, and 5 is odd"),
        (SMALL + "positions: {kind: rotary, base: 0.5}\n",
         "3:33: positions.base: expected at least 1"),
        (SMALL + "positions: {kind: rotary, scaling: {kind: llama3, factor: 8}}\n",
         "3:36: positions.scaling: llama3 needs the original length"),
        (SMALL + "positions: {kind: rotary, scaling: {kind: linear, factor: 8, low: 2}}\n",
         "3:67: positions.scaling.low: is for llama3 or yarn"),
        (SMALL + "positions: {kind: rotary, scaling: {kind: linear, factr: 8, factor: 8}}\n",
         "3:51: positions.scaling.factr: unknown key"),
        (SMALL + "positions: {kind: rotary, scaling: {kind: linear, factor: -1}}\n",
         "3:59: positions.scaling.factor: expected a positive rational, got -1"),
        (SMALL + "positions: {kind: alibi, base: 500}\n",
         "3:32: positions.base: is for rotary positions"),
        (SMALL + "positions: {kind: relative, max: 500}\n",
         "3:34: positions.max: is for sinusoidal, rotary, disentangled or learned positions"),
        (SMALL + "positions: {kind: relative, buckets: 7}\n",
         "3:38: positions.buckets: expected an even number of at least 4"),
        (SMALL + "positions: {kind: relative, max_distance: 16}\n",
         "3:43: positions.max_distance: expected more than half of the 32 buckets"),
        (SMALL + "head: {kind: pointer, scale: 2}\n", "3:30: head.scale: is for lm and mlm"),
        (SMALL + "head: lm\n", "3:7: head: needs a vocabulary"),
        (SMALL + "embedding: {norm: true}\n", "3:12: embedding: needs a vocabulary"),
        (SMALL + "vocabulary: 9\nhead: classifier\n",
         "4:7: head: a classifier needs labels, the number of classes"),
        (SMALL + "vocabulary: 9\nembedding: {size: 4}\nhead: lm\n",
         "5:7: head: cannot be tied: the embedding's size 4 is not the width 8"),
        (SMALL + "positions: learned\n",
         "3:12: positions: learned positions need a number of rows"),
        (SMALL + "positions: {kind: learned, max: 8}\nsymbols:\n  seq: {max: 9}\n",
         "5:14: symbols.seq.max: 9 is more than the 8 positions"),
        (SMALL + "symbols: {bach: {min: 1}}\n", "3:17: symbols.bach: unknown symbol"),
        (SMALL + "symbols: {seq: {min: 5, max: 4}}\n", "3:30: symbols.seq.max: is below min: 5"),
        (SMALL + "symbols: {seq: {max: 4, example: 5}}\n",
         "3:34: symbols.seq.example: is not between min and max"),
        (SMALL + "kind: decoder\nmask: none\n", "4:7: mask: a decoder is causal"),
        (SMALL + "kind: encoder-decoder\nvocabulary: 9\nembedding: {token_types: 2}\n",
         "5:26: embedding.token_types: is for one stack, with one input token_type_ids"),
        (SMALL + "mask: {kind: window}\n", "3:7: mask: the window has no bound"),
        (SMALL + "norm: {eps: -1}\n", "3:13: norm.eps: expected a number of at least 0, got -1"),
        (SMALL + "norm: {eps: 1e-50}\n", "3:13: norm.eps: 1e-50 is 0 in f32"),
        (SMALL + "norm: {eps: 1e300}\n", "3:13: norm.eps: 1e+300 does not fit f32"),
        (SMALL + "attention: {softcap: 0}\n",
         "3:22: attention.softcap: expected a positive rational, got 0"),
        (SMALL + "attention: {softcap: -5}\n",
         "3:22: attention.softcap: expected a positive rational, got -5"),
        (SMALL + "attention: {softcap: sqrt(2)}\n",
         "3:22: attention.softcap: expected a positive rational, got 'sqrt(2)'"),
        (SMALL + "attention: {scale: 1e-60}\n", "3:20: attention.scale: 1e-60 is 0 in f32"),
        (SMALL + "dtype: float16\nattention: {softcap: 70000}\n",
         "4:22: attention.softcap: 70000 does not fit f16"),
        (SMALL + "vocabulary: 9\nembedding: {scale: 1e39}\n",
         "4:20: embedding.scale: 1e+39 does not fit f32"),
        (SMALL + "mask: [padding, padding]\n",
         "3:17: mask[1]: the padding mask is given twice"),
        (SMALL + "mask: [causal, padding,\n  causal]\n",
         "4:3: mask[2]: the causal mask is given twice"),
        (SMALL + "kind: encoder-decoder\nmask: [padding,\n  causal]\n",
         "5:3: mask[1]: causal: here the mask is that of the encoder; decoders are causal"),
        (SMALL + "mask: [bias, padding, bias]\n", "3:23: mask[2]: the bias is given twice"),
        (SMALL + "mask: {kind: segments, left: 3}\n",
         "3:7: mask: left and right are for a window"),
        (SMALL + "head: pointer\nmask: [padding,\n  dense]\n",
         "5:3: mask[1]: dense: is for heads, a pointer has none"),
        (SMALL + "mask: prefx\n",
         "3:7: mask: expected padding, causal, window, prefix, segments, dense or bias, "
         "got 'prefx'"),
        (SMALL + "mask: [padding, {kind: window}]\n", "3:17: mask[1]: the window has no bound"),
        (SMALL + "name: two words\n",
         "3:7: name: 'two words' is not a name of letters, digits and _"),
        (SMALL + "weights: missing.safetensors\n",
         "3:10: weights: missing.safetensors: cannot read weights: No such file or directory"),
        (SMALL + "weights: model.bin\n",
         "3:10: weights: model.bin is a pickle, which can run code when it is read: refused"),
    ],
)  # fmt: skip
def test_one_mistake(tmp_path: Path, content: str, expected: str) -> None:
    assert errors_of(tmp_path, content) == [expected]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "1:1: the file is empty"),
        ("# nothing\n", "1:1: the file is empty"),
        ("- a\n", "1:1: expected a mapping such as `layers: 4`, got a list"),
        ("hello\n", "1:1: expected a mapping such as `layers: 4`, got 'hello'"),
        ("a: [1, 2\n", "2:1: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c\n", "1:5: not YAML: mapping values are not allowed here"),
        ("a: 1\nb: \x07\n", "2:4: not YAML: special characters are not allowed"),
        (b"a: 1\nb: \xff\n", "2:4: not YAML: the text is not UTF-8"),
        ("a: *b\n", "1:4: not YAML: found undefined alias 'b'"),
        ("a: 1\n---\nb: 1\n", "2:1: not YAML: but found another document"),
    ],
)
def test_not_a_model_at_all(tmp_path: Path, content: str | bytes, expected: str) -> None:
    assert errors_of(tmp_path, content) == [expected]


@pytest.mark.parametrize(
    ("tagged", "message"),
    [
        ("!!int", "!!int '' is no number"),
        ("!!float x", "!!float 'x' is no number"),
        ("!!bool 1", "!!bool '1' is neither true nor false"),
    ],
)
def test_a_tag_that_its_text_does_not_fit(tmp_path: Path, tagged: str, message: str) -> None:
    first, *_ = errors_of(tmp_path, f"{SMALL}norm: {tagged}\n")
    assert first.endswith(message)


def test_all_mistakes_in_one_go(tmp_path: Path) -> None:
    """Wrong keys don't hide what does not fit together among the right ones."""
    content = GOOD.replace("heads: 4", "heads: 7").replace("ffn: 1024", "ffn: wide")
    content += "layerz: 3\nlayers: 2\n"
    line = content.splitlines().index("heads: 7") + 1
    last = content.count("\n")
    assert errors_of(tmp_path, content) == [
        f"{line}:8: heads: 7 heads do not divide the width 256",
        f"{line + 1}:6: ffn: expected an integer, got 'wide'",
        f"{last - 1}:1: layerz: unknown key",
        f"{last}:1: layers: duplicate key",
    ]


def test_the_text_has_excerpt_caret_and_hint(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("layers: 1\nwidth: 8\nnorm:\n  kindd: rms_norm\n")
    with pytest.raises(TfgraphError) as caught:
        read_model(path)
    assert render(caught.value) == (
        f"{path}:4:3: error: norm.kindd: unknown key\n"
        "      kindd: rms_norm\n"
        "      ^\n"
        "hint: did you mean 'kind'?"
    )


def bomb() -> str:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]")
    return "\n".join(lines) + "\n"


def doubling(width: int, levels: int) -> str:
    """Within the limit of aliases: a list, then lists of twice the one before."""
    first = f"a0: &a0 [{','.join('x' * width)}]\n"
    return first + "".join(f"a{i}: &a{i} [*a{i - 1},*a{i - 1}]\n" for i in range(1, levels + 1))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (bomb(), "3:29: the file is refused: more than 16 aliases (*name)"),
        ("a: &a [*a]\n", "1:8: the file is refused: an alias contains itself"),
        ("a: &a {b: [&c [*c, *a]]}\n", "1:16: the file is refused: an alias contains itself"),
        (doubling(2000, 8), "6:14: the file is refused: more than 100000 values"),
        (doubling(5000, 8), "5:10: the file is refused: more than 100000 values"),
        ("a: &a " + "[" * 20 + "]" * 20 + "\nb: " + "[" * 13 + "*a" + "]" * 13 + "\n",
         "2:17: the file is refused: nested deeper than 32"),
        ("[" * 100_000, "1:33: the file is refused: nested deeper than 32"),
        ("a: " + "{a: " * 40, "1:128: the file is refused: nested deeper than 32"),
        ("layers: " + "9" * 5000 + "\nwidth: 8\n", "1:9: a number with too many digits"),
        (GOOD.replace("layers: 4", "layers: 1000000000"),
         "5:9: layers: expected at most 1024, got 1000000000"),
        (GOOD.replace("width: 256", "width: 99999999"),
         "6:8: width: expected at most 131072, got 99999999"),
        (GOOD.replace("vocabulary: 1000", "vocabulary: 999999999999"),
         "14:13: vocabulary: expected at most 16777216, got 999999999999"),
        ("layers: 64\nwidth: 131072\nheads: 1\n",
         "2:8: width: 1.32e+13 parameters; at most 1.37e+11 are supported"),
        ("layers: 1\nwidth: 65536\nheads: 1\n",
         "2:8: width: 192.0 GiB of seeded weights; at most 16.0 GiB are made up"),
        ("layers: 100\nwidth: 4096\nheads: 1\n", "1:9: layers: 75.0 GiB of seeded weights; at"),
        ("layers: 1\nwidth: 4096\nffn: 999999\n", "3:6: ffn: 30.8 GiB of seeded weights; at most"),
        ("layers: 1\nwidth: 4096\nvocabulary: 9999999\n",
         "3:13: vocabulary: 153.3 GiB of seeded weights; at most"),
        ("layers: 1\nwidth: 4096\nhead_size: 99999\n", "3:12: head_size: "),
        ("layers: 1\nwidth: 8192\nheads: 1\npositions: {kind: learned, max: 9999999}\n",
         "4:12: positions: "),
        (FREE + "weights: {w: 'f32[8,4000000000]'}\nnodes: {y: 'linear(x, w)'}\n"
         "outputs: {y: y}\n", "3:14: weights.w: 119.2 GiB of seeded weights"),
    ],
)  # fmt: skip
def test_bombs_and_absurd_sizes_take_no_memory(tmp_path: Path, content: str, expected: str) -> None:
    tracemalloc.start()
    found = errors_of(tmp_path, content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found[0].startswith(expected)
    assert peak < 30e6


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("#" * 5_000_000)
    with pytest.raises(TfgraphError, match="a model file of 5000000 bytes"):
        read_model(path)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (SMALL + "dtype: float\n", "did you mean 'float32'?"),
        (SMALL + "positions: {kind: none, max: 8}\n", "leave max out, or kind: learned"),
        (SMALL + "positions: {kind: sinusoidal, padding_id: 2}\nvocabulary: 9\n",
         "kind: learned, or leave padding_id out"),
        (SMALL + "positions: {kind: learned, max: 8, offset: 2}\nsymbols: {seq: {max: 8}}\n",
         "positions: max: 10"),
        (SMALL + "embedding: {norm: true}\n", "vocabulary: 30522, or leave embedding out"),
        (SMALL + "heads:\n", "leave the key out for its default"),
    ],
)  # fmt: skip
def test_hints(tmp_path: Path, content: str, hint: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(content)
    with pytest.raises(TfgraphError) as caught:
        read_model(path)
    assert caught.value.hint == hint


def test_null_is_written_to_mean_the_default(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(SMALL + "heads: null\n")
    read_model(path)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_files_that_are_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(TfgraphError, match=r"cannot read the model: (no such file|a folder)"):
        read_model(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "first"),
    [
        (SMALL + "width: 9\n" * 300, "3:1: width: duplicate key"),
        (SMALL + "".join(f"width{i}: 9\n" for i in range(300)), "3:1: width0: unknown key"),
        (
            FREE
            + "outputs: {y: x}\nnodes:\n"
            + "".join(f"  a{i}: neg(b{i})\n" for i in range(300)),
            "5:11: 'b0' is not defined",
        ),
    ],
)
def test_of_very_many_errors_the_first_are_told(tmp_path: Path, content: str, first: str) -> None:
    found = errors_of(tmp_path, content)
    assert found[0] == first
    assert len(found) == MOST_ERRORS + 1
    assert found[-1] == "0:0: and 100 more"
