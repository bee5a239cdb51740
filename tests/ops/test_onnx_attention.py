"""The fused op `attention` against ONNX's `Attention` of opset 23, in onnx.reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.onnx_oracle import close, run_onnx, run_ours
from helpers.tolerance import UNIT, relative

from tfgraph.ir import DType, rsqrt
from tfgraph.ir.mask import bias, causal, dense, padding

if TYPE_CHECKING:
    from tfgraph.ir import Mask

    NDArray = np.ndarray[Any, Any]

rng = np.random.default_rng(3)


def qkv(
    queries: int, keys: int, heads: int, kv_heads: int, kind: str = "float64", size: int = 8
) -> list[NDArray]:
    """q, k, v of [batch, length, heads * size]; the heads of v are wider by one."""
    shapes = [(queries, heads * size), (keys, kv_heads * size), (keys, kv_heads * (size + 1))]
    return [rng.normal(size=(2, *shape)).astype(kind) for shape in shapes]


def both(
    x: list[NDArray],
    heads: int,
    kv_heads: int,
    m: Mask | None = None,
    onnx_mask: NDArray | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    is_causal: int = 0,
) -> None:
    """Ours and theirs agree."""
    (got,) = run_ours(
        "attention", [*x, m], heads=heads, kv_heads=kv_heads, softcap=softcap,
        scale=rsqrt(x[0].shape[-1] // heads) if scale is None else scale,
    )  # fmt: skip
    attrs = {"scale": scale, "softcap": softcap}
    (want,) = run_onnx(
        "Attention", [*x, onnx_mask], opset=23, q_num_heads=heads, kv_num_heads=kv_heads,
        is_causal=is_causal, **{k: v for k, v in attrs.items() if v is not None},
    )  # fmt: skip
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    # ONNX holds these attributes in float32, and they multiply scores of up to 16.
    rounded = 16 * UNIT["float32"] if scale is not None or softcap is not None else 0.0
    length = x[0].shape[-1] // heads + x[1].shape[1]
    close(got, want, relative(got.dtype.name, length) + rounded, terms=2.0)


HEADS = pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (4, 2), (6, 2), (5, 1)])
LENGTHS = pytest.mark.parametrize("lengths", [(1, 1), (7, 7), (3, 65), (65, 3), (1, 64)], ids=str)


@HEADS
@LENGTHS
def test_plain_and_grouped_heads(heads: int, kv_heads: int, lengths: tuple[int, int]) -> None:
    both(qkv(*lengths, heads, kv_heads), heads, kv_heads)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_other_dtypes(kind: str) -> None:
    both(qkv(7, 65, 4, 2, kind), 4, 2)


@HEADS
@pytest.mark.parametrize("length", [1, 2, 7, 65])
def test_causal(heads: int, kv_heads: int, length: int) -> None:
    both(qkv(length, length, heads, kv_heads), heads, kv_heads, causal(), is_causal=1)


def test_causal_behind_cached_tokens_is_past_key() -> None:
    q, k, v = qkv(3, 10, 4, 2)
    (got,) = run_ours("attention", [q, k, v, causal(7)], heads=4, kv_heads=2, scale=rsqrt(8))

    def four(x: NDArray) -> NDArray:
        return x.reshape(2, -1, 2, x.shape[-1] // 2).transpose(0, 2, 1, 3)

    want, _, _ = run_onnx(
        "Attention", [q, k[:, 7:], v[:, 7:], None, four(k[:, :7]), four(v[:, :7])], opset=23,
        outputs=3, q_num_heads=4, kv_num_heads=2, is_causal=1,
    )  # fmt: skip
    close(got, want, relative("float64", 8 + 10), terms=2.0)


@pytest.mark.parametrize("shape", [(7, 9), (1, 9), (4, 7, 9), (2, 1, 7, 9), (2, 4, 7, 9)], ids=str)
def test_dense_bool_masks(shape: tuple[int, ...]) -> None:
    allowed = rng.random(shape) < 0.6
    allowed[..., 0] = True
    both(qkv(7, 9, 4, 4), 4, 4, dense(allowed), allowed)


def test_dense_and_causal() -> None:
    allowed = rng.random((7, 7)) < 0.6
    both(qkv(7, 7, 4, 2), 4, 2, dense(allowed) & causal(), allowed, is_causal=1)


def test_rows_without_an_allowed_key_give_zeros() -> None:
    """As ONNX has it since 1.19; softmax alone would give NaN there."""
    allowed = rng.random((7, 9)) < 0.5
    allowed[[0, 3]] = False
    x = qkv(7, 9, 4, 2)
    both(x, 4, 2, dense(allowed), allowed)
    (got,) = run_ours("attention", [*x, dense(allowed)], heads=4, kv_heads=2, scale=1)
    assert not got[:, [0, 3]].any()
    assert got[:, [1, 2, 4, 5, 6]].all()


def test_bias_is_added_after_the_scale() -> None:
    values = rng.normal(size=(4, 7, 9))
    both(qkv(7, 9, 4, 4), 4, 4, bias(values), values, scale=0.5)


def test_padding_is_a_mask_of_keys() -> None:
    lengths = np.array([9, 4])
    allowed = np.arange(9) < lengths[:, None, None, None]
    x = qkv(7, 9, 4, 2)
    both(x, 4, 2, padding(lengths), allowed)
    both(x, 4, 2, padding(allowed[:, 0, 0]), allowed)


@pytest.mark.parametrize("scale", [1.0, 0.125, 3.0])
def test_scale(scale: float) -> None:
    both(qkv(7, 9, 4, 4), 4, 4, scale=scale)


@pytest.mark.parametrize("softcap", [0.5, 1.0, 30.0])
def test_softcap_comes_before_the_mask(softcap: float) -> None:
    allowed = rng.random((7, 9)) < 0.6
    allowed[2] = False
    x = qkv(7, 9, 4, 2)
    both(x, 4, 2, softcap=softcap)
    both(x, 4, 2, dense(allowed), allowed, softcap=softcap)


def test_what_a_masked_key_holds_does_not_matter() -> None:
    q, k, v = qkv(7, 9, 4, 2)
    padded = padding(np.array([9, 4]))
    (want,) = run_ours("attention", [q, k, v, padded], heads=4, kv_heads=2, scale=1)
    k[1, 4:], k[1, 5:] = np.nan, np.inf
    v[1, 4:] = 1e300
    (got,) = run_ours("attention", [q, k, v, padded], heads=4, kv_heads=2, scale=1)
    np.testing.assert_array_equal(got, want)


def test_float16_is_rounded_once() -> None:
    x = qkv(7, 9, 4, 2, "float16")
    options: dict[str, Any] = {"heads": 4, "kv_heads": 2, "scale": rsqrt(8)}
    (got,) = run_ours("attention", x, **options)
    (wide,) = run_ours("attention", [a.astype(np.float64) for a in x], **options)
    assert got.dtype == DType.float16.value
    np.testing.assert_array_equal(got, wide.astype(np.float16))
