"""ONNX's own node cases of `Attention`, in the op `attention`: what the installed onnx holds, none
left out. Each backend has a table of those outside of what it computes, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
from helpers.onnx_attention import (
    AttentionCase,
    as_graph,
    attention_cases,
    cases_of,
    covering,
    inputs_of,
)
from helpers.tolerance import assert_close
from onnx.backend.test.loader import load_model_tests

import tfgraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CASES = attention_cases()
COUNT = {"1.23.2": 93}  # by version of onnx

OUTSIDE_NUMPY: dict[str, str] = {}  # by name; all are inside
NO_KERNELS = "the CPU has kernels for float32 alone"
OUTSIDE_CPU = {
    f"test_attention_{name}": NO_KERNELS
    for name in (
        "24_qk_matmul_output_mode3_softmax_precision",
        "3d_causal_bf16",
        "4d_attn_mask_causal_bf16",
        "4d_causal_bf16",
        "4d_causal_fp16",
        "4d_causal_padded_kv_bf16",
        "4d_fp16",
        "4d_gqa_causal_nonpad_decode_fp16",
        "4d_gqa_with_past_and_present_fp16",
        "4d_padded_kv_bf16",
        "local_window_ext_cache_float16_mask",
    )
}


def check(cases: Sequence[AttentionCase], backend: str) -> None:
    """What the backend computes is what is recorded, in shape, dtype and value."""
    with tfgraph.compile(as_graph(cases), backend) as model:
        got = model(**inputs_of(cases))
    for case in cases:
        # A result is a sum over keys of products with sums over the head, and ONNX rounds the
        # scaled Q and K, and the softmax, on the way.
        length = case.shares[2] + 2 * case.keys
        for role, want in case.outputs.items():
            array = got[f"{case.name}.{role}"]
            assert array.dtype == want.dtype
            assert_close(array, want, length=length, dtype=case.dtype, name=f"{case.name}: {role}")


def test_none_is_left_out() -> None:
    print(f"onnx {onnx.__version__}: {len(CASES)} cases of Attention")
    assert len(CASES) == COUNT.get(onnx.__version__, len(CASES))
    assert len(CASES) >= 60  # those of the first version with the op
    assert OUTSIDE_NUMPY.keys() | OUTSIDE_CPU.keys() <= CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_on_numpy(name: str) -> None:
    fits_unless_listed(CASES[name], "numpy", OUTSIDE_NUMPY)


def fits_unless_listed(case: AttentionCase, backend: str, outside: Mapping[str, str]) -> None:
    """A case in the table has to fail: one that fits is to be taken out of it."""
    if case.name not in outside:
        check([case], backend)
        return
    with pytest.raises((tfgraph.TfgraphError, AssertionError)):
        check([case], backend)


def test_every_feature_on_the_cpu() -> None:
    """The fewest cases with all features, in one graph."""
    check(covering({n: case for n, case in CASES.items() if n not in OUTSIDE_CPU}), "cpu")


@pytest.mark.parametrize("name", OUTSIDE_CPU)
def test_outside_of_the_cpu(name: str) -> None:
    with pytest.raises(tfgraph.TfgraphError, match="no compiled kernel") as caught:
        check([CASES[name]], "cpu")
    assert caught.value.hint


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    fits_unless_listed(CASES[name], "cpu", OUTSIDE_CPU)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # onnx makes the cases of all ops
def test_the_loader_has_no_others() -> None:
    found: dict[str, Any] = cases_of(load_model_tests(kind="node"))
    assert found.keys() == CASES.keys()
