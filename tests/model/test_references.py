"""Models of many families against what transformers computes from the same weights.

Each is a model file written here by hand; where a family keeps the three projections in one tensor
per head, the test takes them apart itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checkpoints import CASES, NDArray
from helpers.tolerance import TRANSFORMERS, assert_within
from safetensors.numpy import load_file, save_file

import tfgraph
from tfgraph.model import Model, read_model

SIZES = "layers: 2\nwidth: 32\nheads: 4\nvocabulary: 96\nhidden_states: true\n"
DECODER = SIZES + "kind: decoder\nmask: [causal, padding]\n"
GATED = (
    DECODER + "ffn: 64\nbias: false\nactivation: silu\ngated: true\nhead: {kind: lm, tied: false}\n"
)


def _each(name: str, tensor: str) -> dict[str, str]:
    """A rule for each of q, k and v, which stand for {n} in it."""
    return {name.replace("{n}", n): tensor.replace("{n}", n) for n in "qkv"}


LLAMA = {
    "embeddings.tokens": "model.embed_tokens.weight",
    "layers.{i}.attention_norm.scale": "model.layers.{i}.input_layernorm.weight",
    **_each(
        "layers.{i}.attention.{n}.weight", "transpose(model.layers.{i}.self_attn.{n}_proj.weight)"
    ),
    "layers.{i}.attention.out.weight": "transpose(model.layers.{i}.self_attn.o_proj.weight)",
    "layers.{i}.ffn_norm.scale": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.ffn.{n}.weight": "transpose(model.layers.{i}.mlp.{n}_proj.weight)",
    "final_norm.scale": "model.norm.weight",
}
UNTIED = {"lm_head.weight": "transpose(lm_head.weight)"}
QWEN2 = LLAMA | _each("layers.{i}.attention.{n}.bias", "model.layers.{i}.self_attn.{n}_proj.bias")
QWEN3 = LLAMA | {
    f"layers.{{i}}.attention.{n}_norm.scale": f"model.layers.{{i}}.self_attn.{n}_norm.weight"
    for n in "qk"
}
_MOE = "model.layers.{i}.block_sparse_moe"
MIXTRAL = {name: tensor for name, tensor in LLAMA.items() if ".mlp." not in tensor} | {
    "layers.{i}.ffn.router.weight": f"transpose({_MOE}.gate.weight)",
    "layers.{i}.ffn.experts.{e}.gate.weight": f"transpose({_MOE}.experts.{{e}}.w1.weight)",
    "layers.{i}.ffn.experts.{e}.down.weight": f"transpose({_MOE}.experts.{{e}}.w2.weight)",
    "layers.{i}.ffn.experts.{e}.up.weight": f"transpose({_MOE}.experts.{{e}}.w3.weight)",
}
GPT2 = {
    "embeddings.tokens": "transformer.wte.weight",
    "embeddings.positions": "transformer.wpe.weight",
    **{
        f"layers.{{i}}.attention.{n}.{w}": f"part(transformer.h.{{i}}.attn.c_attn.{w}, {p}, 3)"
        for p, n in enumerate("qkv")
        for w in ("weight", "bias")
    },
    **{
        f"layers.{{i}}.{ours}.{w}": f"transformer.h.{{i}}.{theirs}.{w}"
        for ours, theirs in (
            ("attention.out", "attn.c_proj"),
            ("ffn.up", "mlp.c_fc"),
            ("ffn.down", "mlp.c_proj"),
        )
        for w in ("weight", "bias")
    },
    "layers.{i}.attention_norm.scale": "transformer.h.{i}.ln_1.weight",
    "layers.{i}.attention_norm.bias": "transformer.h.{i}.ln_1.bias",
    "layers.{i}.ffn_norm.scale": "transformer.h.{i}.ln_2.weight",
    "layers.{i}.ffn_norm.bias": "transformer.h.{i}.ln_2.bias",
    "final_norm.scale": "transformer.ln_f.weight",
    "final_norm.bias": "transformer.ln_f.bias",
}
GPTJ = {
    "embeddings.tokens": "transformer.wte.weight",
    "layers.{i}.attention_norm.scale": "transformer.h.{i}.ln_1.weight",
    "layers.{i}.attention_norm.bias": "transformer.h.{i}.ln_1.bias",
    **_each("layers.{i}.attention.{n}.weight", "transpose(transformer.h.{i}.attn.{n}_proj.weight)"),
    "layers.{i}.attention.out.weight": "transpose(transformer.h.{i}.attn.out_proj.weight)",
    "layers.{i}.ffn.up.weight": "transpose(transformer.h.{i}.mlp.fc_in.weight)",
    "layers.{i}.ffn.up.bias": "transformer.h.{i}.mlp.fc_in.bias",
    "layers.{i}.ffn.down.weight": "transpose(transformer.h.{i}.mlp.fc_out.weight)",
    "layers.{i}.ffn.down.bias": "transformer.h.{i}.mlp.fc_out.bias",
    "final_norm.scale": "transformer.ln_f.weight",
    "final_norm.bias": "transformer.ln_f.bias",
    "lm_head.weight": "transpose(lm_head.weight)",
}
PHI = {
    "embeddings.tokens": "model.embed_tokens.weight",
    "layers.{i}.attention_norm.scale": "model.layers.{i}.input_layernorm.weight",
    "layers.{i}.attention_norm.bias": "model.layers.{i}.input_layernorm.bias",
    **_each(
        "layers.{i}.attention.{n}.weight", "transpose(model.layers.{i}.self_attn.{n}_proj.weight)"
    ),
    **_each("layers.{i}.attention.{n}.bias", "model.layers.{i}.self_attn.{n}_proj.bias"),
    "layers.{i}.attention.out.weight": "transpose(model.layers.{i}.self_attn.dense.weight)",
    "layers.{i}.attention.out.bias": "model.layers.{i}.self_attn.dense.bias",
    "layers.{i}.ffn.up.weight": "transpose(model.layers.{i}.mlp.fc1.weight)",
    "layers.{i}.ffn.up.bias": "model.layers.{i}.mlp.fc1.bias",
    "layers.{i}.ffn.down.weight": "transpose(model.layers.{i}.mlp.fc2.weight)",
    "layers.{i}.ffn.down.bias": "model.layers.{i}.mlp.fc2.bias",
    "final_norm.scale": "model.final_layernorm.weight",
    "final_norm.bias": "model.final_layernorm.bias",
    "lm_head.weight": "transpose(lm_head.weight)",
}


def _per_head(base: str) -> dict[str, str]:
    """Names of BLOOM and GPT-NeoX, whose q, k and v `_taken_apart` separates."""
    pairs = {
        "attention.out": "out",
        "ffn.up": "mlp.dense_h_to_4h",
        "ffn.down": "mlp.dense_4h_to_h",
    }
    rules = {
        "layers.{i}.attention_norm.scale": f"{base}.{{i}}.input_layernorm.weight",
        "layers.{i}.attention_norm.bias": f"{base}.{{i}}.input_layernorm.bias",
        "layers.{i}.ffn_norm.scale": f"{base}.{{i}}.post_attention_layernorm.weight",
        "layers.{i}.ffn_norm.bias": f"{base}.{{i}}.post_attention_layernorm.bias",
    }
    for ours, theirs in (_each("attention.{n}", "{n}") | pairs).items():
        rules[f"layers.{{i}}.{ours}.weight"] = f"transpose({base}.{{i}}.{theirs}.weight)"
        rules[f"layers.{{i}}.{ours}.bias"] = f"{base}.{{i}}.{theirs}.bias"
    return rules


BLOOM = _per_head("transformer.h") | {
    "embeddings.tokens": "transformer.word_embeddings.weight",
    "embeddings.norm.scale": "transformer.word_embeddings_layernorm.weight",
    "embeddings.norm.bias": "transformer.word_embeddings_layernorm.bias",
    "final_norm.scale": "transformer.ln_f.weight",
    "final_norm.bias": "transformer.ln_f.bias",
}
NEOX = _per_head("gpt_neox.layers") | {
    "embeddings.tokens": "gpt_neox.embed_in.weight",
    "final_norm.scale": "gpt_neox.final_layer_norm.weight",
    "final_norm.bias": "gpt_neox.final_layer_norm.bias",
    "lm_head.weight": "transpose(embed_out.weight)",
}


def _t5(gated: bool) -> dict[str, str]:
    rules = {} if gated else {"embeddings.tokens": "shared.weight"}
    for stack, ffn in (("encoder", 1), ("decoder", 2)):
        block = f"{stack}.block.{{i}}.layer"
        parts = [("attention", "0.SelfAttention", "0")]
        if stack == "decoder":
            parts.append(("cross_attention", "1.EncDecAttention", "1"))
        for ours, theirs, layer in parts:
            for n, m in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
                name = f"{stack}.layers.{{i}}.{ours}.{n}.weight"
                rules[name] = f"transpose({block}.{theirs}.{m}.weight)"
            rules[f"{stack}.layers.{{i}}.{ours}_norm.scale"] = f"{block}.{layer}.layer_norm.weight"
        wi = (("gate", "wi_0"), ("up", "wi_1")) if gated else (("up", "wi"),)
        for n, m in (*wi, ("down", "wo")):
            name = f"{stack}.layers.{{i}}.ffn.{n}.weight"
            rules[name] = f"transpose({block}.{ffn}.DenseReluDense.{m}.weight)"
        rules[f"{stack}.layers.{{i}}.ffn_norm.scale"] = f"{block}.{ffn}.layer_norm.weight"
        rules[f"{stack}.final_norm.scale"] = f"{stack}.final_layer_norm.weight"
        table = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rules[f"{stack}.positions.table"] = table
    if gated:
        rules |= {"embeddings.tokens": "shared.weight"}
        rules |= {"lm_head.weight": "transpose(lm_head.weight)"}
    return rules


def _marian() -> dict[str, str]:
    rules = {
        "embeddings.tokens": "model.shared.weight",
        "lm_head.bias": "final_logits_bias",
    }
    for stack in ("encoder", "decoder"):
        rules[f"{stack}.embeddings.positions"] = f"{stack}.positions"
        base = f"model.{stack}.layers.{{i}}"
        parts = [("attention", "self_attn", "self_attn_layer_norm")]
        if stack == "decoder":
            parts.append(("cross_attention", "encoder_attn", "encoder_attn_layer_norm"))
        pairs = {"ffn.up": "fc1", "ffn.down": "fc2"}
        for ours, theirs, norm in parts:
            pairs |= {f"{ours}.{n}": f"{theirs}.{n}_proj" for n in ("q", "k", "v", "out")}
            rules[f"{stack}.layers.{{i}}.{ours}_norm.scale"] = f"{base}.{norm}.weight"
            rules[f"{stack}.layers.{{i}}.{ours}_norm.bias"] = f"{base}.{norm}.bias"
        rules[f"{stack}.layers.{{i}}.ffn_norm.scale"] = f"{base}.final_layer_norm.weight"
        rules[f"{stack}.layers.{{i}}.ffn_norm.bias"] = f"{base}.final_layer_norm.bias"
        for ours, theirs in pairs.items():
            rules[f"{stack}.layers.{{i}}.{ours}.weight"] = f"transpose({base}.{theirs}.weight)"
            rules[f"{stack}.layers.{{i}}.{ours}.bias"] = f"{base}.{theirs}.bias"
    return rules


PRE_RMS = "norm: {kind: rms_norm, placement: pre, eps: 1e-6}\n"
PARALLEL = "norm: {placement: parallel}\n"
T5 = (
    SIZES + PRE_RMS + "kind: encoder-decoder\nmask: padding\nffn: 64\nbias: false\n"
    "attention: {scale: 1}\npositions: {kind: relative, buckets: 8, max_distance: 12}\n"
)
MODELS: dict[str, tuple[str, dict[str, str]]] = {
    "llama": (GATED + PRE_RMS + "kv_heads: 2\npositions: rotary\n", LLAMA | UNTIED),
    "qwen2": (
        GATED.replace("tied: false", "tied: true") + PRE_RMS
        + "kv_heads: 2\npositions: rotary\nattention: {bias: true, out_bias: false}\n",
        QWEN2,
    ),
    "qwen3": (
        GATED + PRE_RMS + "kv_heads: 2\nhead_size: 16\npositions: rotary\n"
        "attention: {qk_norm: rms_norm}\n",
        QWEN3 | UNTIED,
    ),
    "mistral": (
        GATED.replace("causal, padding", "causal, padding, {kind: window, left: 3}") + PRE_RMS
        + "kv_heads: 2\npositions: rotary\n",
        LLAMA | UNTIED,
    ),
    "gemma": (
        GATED.replace("silu", "gelu_tanh").replace("tied: false", "tied: true")
        + "norm: {kind: rms_norm, placement: pre, eps: 1e-6, unit_offset: true}\n"
        "kv_heads: 1\nhead_size: 16\npositions: rotary\nembedding: {scale: sqrt(width)}\n",
        LLAMA,
    ),
    "mixtral": (
        GATED + "norm: {kind: rms_norm, placement: pre}\nkv_heads: 2\n"
        "positions: {kind: rotary, base: 1000000}\nexperts: {count: 4}\n",
        MIXTRAL | UNTIED,
    ),
    "gpt2": (
        DECODER + "activation: gelu_tanh\nnorm: {placement: pre}\n"
        "positions: {kind: learned, max: 40}\nhead: lm\n",
        GPT2,
    ),
    "gptj": (
        DECODER + PARALLEL + "activation: gelu_tanh\nattention: {bias: false}\n"
        "positions: {kind: rotary, size: 4, layout: interleaved}\n"
        "head: {kind: lm, tied: false, bias: true}\n",
        GPTJ,
    ),
    "phi": (
        DECODER + PARALLEL + "ffn: 64\nactivation: gelu_tanh\npositions: {kind: rotary, size: 4}\n"
        "head: {kind: lm, tied: false, bias: true}\n",
        PHI,
    ),
    "gpt_neox": (
        DECODER + "norm: {placement: parallel, shared: false}\nffn: 64\n"
        "positions: {kind: rotary, size: 4}\nhead: {kind: lm, tied: false}\n",
        NEOX,
    ),
    "bloom": (
        DECODER + "norm: {placement: pre}\nactivation: gelu_tanh\npositions: alibi\n"
        "embedding: {norm: true}\nhead: lm\n",
        BLOOM,
    ),
    "t5": (T5 + "activation: relu\nhead: {kind: lm, scale: rsqrt(32)}\n", _t5(gated=False)),
    "t5_gated": (
        T5 + "activation: gelu_tanh\ngated: true\nhead: {kind: lm, tied: false}\n", _t5(gated=True)
    ),
    "marian": (
        SIZES + "kind: encoder-decoder\nmask: padding\nffn: 64\nactivation: silu\n"
        "positions: {kind: sinusoidal, max: 40, layout: halves}\n"
        "embedding: {scale: sqrt(width)}\nhead: {kind: lm, bias: true}\n",
        _marian(),
    ),
}  # fmt: skip


def sinusoidal_halves(positions: int, width: int) -> NDArray:
    """Sines, then cosines, of Marian; written from Vaswani et al. 2017."""
    angles = np.arange(positions)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


def tensors_of(case: str) -> dict[str, NDArray]:
    """The tensors of a checkpoint, those of q, k and v taken apart where each head has all three
    one after another: [heads, 3, d, width]."""
    found = load_file(CASES / case / "model.safetensors")
    for name in [n for n in found if "query_key_value" in n]:
        merged = found.pop(name)
        layer, _, kind = name.rpartition(".")
        layer = layer.rpartition(".")[0].rpartition(".")[0]
        each = merged.reshape(4, 3, 8, *merged.shape[1:])
        for i, letter in enumerate("qkv"):
            part = each[:, i].reshape(32, *merged.shape[1:])
            found[f"{layer}.{letter}.{kind}"] = np.ascontiguousarray(part)
        dense = next(n for n in found if n.startswith(layer) and n.endswith(f"dense.{kind}"))
        found[f"{layer}.out.{kind}"] = found.pop(dense)
    if case == "marian":
        found["final_logits_bias"] = found["final_logits_bias"].reshape(-1)
        found |= {f"{s}.positions": sinusoidal_halves(40, 32) for s in ("encoder", "decoder")}
    return found


def model(case: str, folder: Path) -> Model:
    text, rules = MODELS[case]
    save_file(tensors_of(case), folder / "model.safetensors")
    lines = [f'    "{name}": "{tensor}"\n' for name, tensor in rules.items()]
    weights = "weights:\n  file: model.safetensors\n  names:\n" + "".join(lines)
    (folder / "model.yaml").write_text(text + weights)
    return read_model(folder / "model.yaml")


def stored(case: str) -> dict[str, NDArray]:
    with np.load(CASES / case / "ref.npz") as data:
        return dict(data)


def check(case: str, got: dict[str, NDArray], want: dict[str, NDArray], kept: NDArray) -> None:
    """Hidden states and logits, where the mask is 1; a decoder with memory has no padding."""
    compared = 0
    for name, expected in want.items():
        kind, _, rest = name.partition(".")
        ours = {"hidden": name, "enc_hidden": f"encoder.hidden.{rest}"}.get(kind, rest)
        ours = f"decoder.hidden.{rest}" if kind == "dec_hidden" else ours
        if kind not in ("out", "hidden", "enc_hidden", "dec_hidden") or ours not in got:
            continue
        compared += 1
        real = kept if expected.shape[:2] == kept.shape else np.ones(expected.shape[:2], bool)
        assert_within(got[ours][real], expected[real], TRANSFORMERS, name)
    assert compared >= 4


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_case(tmp_path: Path, case: str, backend: str) -> None:
    made = model(case, tmp_path)
    executable = tfgraph.compile(made.graph, backend, weights=made.weights)
    want = stored(case)
    inputs = {k.removeprefix("in."): v for k, v in want.items() if k.startswith("in.")}
    mask = inputs["attention_mask"]
    assert not mask.all()
    check(case, executable(**inputs), want, mask.astype(bool))

    ones = np.ones_like(mask)
    unmasked = executable(**inputs | {"attention_mask": ones})["logits"]
    assert_within(unmasked, want["nomask.logits"], TRANSFORMERS, "nomask")


RELATIVE_TO_KEYS = [case for case in MODELS if case not in ("t5", "t5_gated", "marian", "gpt2")]


@pytest.mark.parametrize("case", RELATIVE_TO_KEYS)
def test_left_padding(tmp_path: Path, case: str) -> None:
    """Where positions count by their differences alone, tokens may stand anywhere: padding on the
    left, which no causal mask hides, changes nothing."""
    made = model(case, tmp_path)
    executable = tfgraph.compile(made.graph, "numpy", weights=made.weights)
    want = stored(case)
    inputs: dict[str, Any] = {k: want[f"leftpad.{k}"] for k in ("input_ids", "attention_mask")}
    real = inputs["attention_mask"].astype(bool)
    assert not real[:, 0].all()
    got = executable(**inputs)["logits"]
    assert_within(got[real], want["leftpad.logits"][real], TRANSFORMERS)
