"""Element types and tensor types."""

from __future__ import annotations

import pytest

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, TensorType, as_dim, dtype, tensor
from tfgraph.ops.floats import numpy_dtype

SHORT = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64",
    "i32": "int32", "i8": "int8", "u8": "uint8", "i4": "int4", "bool": "bool",
}  # fmt: skip


def test_every_dtype_has_a_short_name() -> None:
    assert {d.short: d.value for d in DType} == SHORT


@pytest.mark.parametrize(("short", "long"), SHORT.items())
def test_both_names_are_read(short: str, long: str) -> None:
    found = dtype(short)
    assert found is dtype(long) is dtype(found)
    assert (str(found), found.value) == (short, long)


@pytest.mark.parametrize("kind", DType)
def test_classes_agree_with_numpy(kind: DType) -> None:
    there = numpy_dtype(kind)
    assert there.name == kind.value
    if kind not in (DType.bfloat16, DType.int4):  # NumPy knows these as void
        assert kind.is_float == (there.kind == "f")
        assert kind.is_int == (there.kind in "iu")
    assert kind.bits == (4 if kind == DType.int4 else there.itemsize * 8)
    assert (kind.is_float, kind.is_int, kind == DType.bool_).count(True) == 1


def test_an_unknown_dtype_gets_the_nearest() -> None:
    with pytest.raises(TfgraphError, match="unknown dtype 'flaot32'") as caught:
        dtype("flaot32")
    assert caught.value.hint == "did you mean 'float32'?"
    with pytest.raises(TfgraphError) as caught:
        dtype("???")
    assert caught.value.hint == "one of f64, f32, f16, bf16, i64, i32, i8, u8, i4, bool"


def test_tensor_types() -> None:
    t = tensor("f32", "batch", "seq", 256)
    assert str(t) == "f32[batch,seq,256]"
    assert t == TensorType(DType.float32, (as_dim("batch"), as_dim("seq"), as_dim(256)))
    assert hash(t) == hash(tensor(DType.float32, "batch", "seq", 256))
    assert t.rank == 3
    assert str(tensor("i4")) == "i4[]"
    assert tensor("i4").rank == 0
    assert str(t.with_dtype(DType.bool_)) == "bool[batch,seq,256]"
    assert str(t.with_shape([as_dim("seq") * 2, 1])) == "f32[2*seq,1]"
    assert t != tensor("f32", "batch", "seq", 255)
    assert t != tensor("f16", "batch", "seq", 256)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("float", "float32"), ("double", "float64"), ("half", "float16"), ("int", "int64")],
)
def test_names_of_other_libraries_get_what_they_mean(name: str, meant: str) -> None:
    with pytest.raises(TfgraphError, match=f"unknown dtype '{name}'") as caught:
        dtype(name)
    assert caught.value.hint == f"did you mean '{meant}'?"
