"""A small encoder layer as a Relax module over the CUDA kernels, with symbolic batch and length."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.attention import attention
from tfgraph.backends.tvm.cuda.attention_mask import KeyMask
from tfgraph.backends.tvm.cuda.linear import linear
from tfgraph.backends.tvm.cuda.norm import layer_norm
from tfgraph.backends.tvm.kernels import AttentionShape

WIDTH, HEADS, HIDDEN = 64, 4, 96
ROWS = ("batch", "seq")


def encoder_layer() -> Any:
    """main(x, keep, weights...): one post-norm layer, then tanh, for which there is no kernel."""
    builder = relax.BlockBuilder()
    batch, seq = tirx.Var("batch", "int64"), tirx.Var("seq", "int64")

    def tensor(*shape: Any, dtype: str = "float32") -> Any:
        return relax.TensorType(shape, dtype)

    x = relax.Var("x", tensor(batch, seq, WIDTH))
    keep = relax.Var("keep", tensor(batch, seq, dtype="int64"))
    weights = {
        name: relax.Var(name, tensor(*shape))
        for name, shape in {
            "w_qkv": (3 * WIDTH, WIDTH),
            "b_qkv": (3 * WIDTH,),
            "w_out": (WIDTH, WIDTH),
            "scale": (WIDTH,),
            "bias": (WIDTH,),
            "w_up": (HIDDEN, WIDTH),
            "b_up": (HIDDEN,),
            "w_down": (WIDTH, HIDDEN),
        }.items()
    }

    def call(function: Any, name: str, width: int, *arguments: Any) -> Any:
        callee = builder.add_func(function, name)
        return builder.emit(relax.call_tir(callee, list(arguments), tensor(batch, seq, width)))

    d, w = WIDTH // HEADS, weights
    shape = AttentionShape(
        HEADS, HEADS, d, d, 3 * WIDTH, 3 * WIDTH, 3 * WIDTH, k_offset=WIDTH, v_offset=2 * WIDTH
    )
    flash = attention(shape, MaskPlan((KeyMask(),)), scale=d**-0.5, queries="seq", keys="seq")
    norm = layer_norm(ROWS, WIDTH, eps=1e-5, add=True)
    with builder.function("main", [x, keep, *weights.values()]):
        with builder.dataflow():
            project = linear(ROWS, WIDTH, 3 * WIDTH, bias=True)
            qkv = call(project, "linear", 3 * WIDTH, x, w["w_qkv"], w["b_qkv"])
            heads = call(flash, "attention", WIDTH, qkv, qkv, qkv, keep)
            out = call(linear(ROWS, WIDTH, WIDTH), "linear", WIDTH, heads, w["w_out"])
            y = call(norm, "add_layer_norm", WIDTH, x, out, w["scale"], w["bias"])
            up = linear(ROWS, WIDTH, HIDDEN, bias=True, activation="gelu")
            h = call(up, "linear_gelu", HIDDEN, y, w["w_up"], w["b_up"])
            down = call(linear(ROWS, HIDDEN, WIDTH), "linear", WIDTH, h, w["w_down"])
            z = call(norm, "add_layer_norm", WIDTH, y, down, w["scale"], w["bias"])
            result = builder.emit_output(relax.op.tanh(z))
        builder.emit_func_output(result)
    return builder.finalize()
