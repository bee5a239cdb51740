"""Checkpoints and rules against files that the safetensors library writes; seeded weights."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from helpers.tolerance import UNIT
from safetensors.numpy import save_file

from tfgraph.errors import TfgraphError
from tfgraph.ir import Fill, Param, Value, exact, tensor
from tfgraph.weights import Checkpoint, Seeded, Weights, seeded, sinusoidal_table

if TYPE_CHECKING:
    from pathlib import Path


def param(name: str, *shape: int, dtype: str = "f32", fill: Fill | None = None) -> Param:
    return Param(Value(name, tensor(dtype, *shape)), fill or Fill("normal", exact(0.02)))


def saved(path: Path, **arrays: np.ndarray[Any, Any]) -> Path:
    save_file({k.replace("__", "."): v for k, v in arrays.items()}, path)
    return path


A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    arrays = {
        "f32": A,
        "f16": A.astype(np.float16),
        "bf16": A.astype(ml_dtypes.bfloat16),
        "i64": np.arange(4),
        "u8": np.arange(3, dtype=np.uint8),
        "flag": np.array([True, False]),
        "scalar": np.array(3.5),
        "none": np.zeros((0, 4), np.float32),
    }
    checkpoint = Checkpoint(saved(tmp_path / "m.safetensors", **arrays))
    assert set(checkpoint) == set(arrays)
    for name, array in arrays.items():
        got = checkpoint[name]
        assert got.dtype == array.dtype
        assert got.shape == array.shape
        assert got.tobytes() == array.tobytes()


def test_tensors_are_mapped_not_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(saved(tmp_path / "m.safetensors", a=A))
    a = checkpoint["a"]
    assert not a.flags.writeable
    assert not a.flags.owndata


def test_shards(tmp_path: Path) -> None:
    saved(tmp_path / "1.safetensors", a=A)
    saved(tmp_path / "2.safetensors", b=A + 1)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    checkpoint = Checkpoint(index)
    np.testing.assert_array_equal(checkpoint["b"], A + 1)
    index.write_text(json.dumps({"weight_map": {"c": "1.safetensors"}}))
    with pytest.raises(TfgraphError, match=r"'c' is not in 1\.safetensors"):
        Checkpoint(index)


def test_narrow_files_widen(tmp_path: Path) -> None:
    half, brain = A.astype(np.float16), A.astype(ml_dtypes.bfloat16)
    checkpoint = Checkpoint(saved(tmp_path / "m.safetensors", h=half, b=brain))
    weights = Weights([param("h", 2, 3), param("b", 2, 3)], checkpoint)
    for name in ("h", "b"):
        assert weights[name].dtype == np.float32
        np.testing.assert_array_equal(weights[name], A)


def test_narrowing_rounds_once_and_refuses_infinities(tmp_path: Path) -> None:
    arrays = {"a": np.array([1 + 2**-12], np.float32), "b": np.array([1e6], np.float32)}
    checkpoint = Checkpoint(saved(tmp_path / "m.safetensors", **arrays))
    weights = Weights([param("a", 1, dtype="f16"), param("b", 1, dtype="f16")], checkpoint)
    assert weights["a"] == np.float16(1)
    with pytest.raises(TfgraphError, match="'b' has values too large for f16"):
        weights["b"]


def test_rules(tmp_path: Path) -> None:
    qkv = np.arange(24, dtype=np.float32).reshape(2, 12)
    path = saved(tmp_path / "m.safetensors", enc__0__w=A, enc__1__w=A + 1, qkv=qkv, same=A)
    rules = {
        "layers.{i}.w": "transpose(enc.{i}.w)",
        "k": "part(qkv, 1, 3)",
        "v": "transpose(part(qkv, 2, 3))",
    }
    params = [param(f"layers.{i}.w", 3, 2) for i in range(2)]
    params += [param("k", 2, 4), param("v", 4, 2), param("same", 2, 3)]
    weights = Weights(params, Checkpoint(path), rules)
    np.testing.assert_array_equal(weights["layers.1.w"], (A + 1).T)
    np.testing.assert_array_equal(weights["k"], qkv[:, 4:8])
    np.testing.assert_array_equal(weights["v"], qkv[:, 8:].T)
    np.testing.assert_array_equal(weights["same"], A)
    assert weights.source("layers.0.w") == "enc.0.w"


def test_rules_for_fused_matrices(tmp_path: Path) -> None:
    """Of 2 groups of 3 slots of 2 rows each, and convolutions; each element says where it stood."""
    each = np.arange(2 * 3 * 2 * 5, dtype=np.float32).reshape(2, 3, 2, 5)
    kernel = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    path = saved(tmp_path / "m.safetensors", qkv=each.reshape(12, 5), conv=kernel)
    rules = {
        "k": "transpose(slots(qkv, 2, 1, 2, 3))",
        "qk": "slots(qkv, 2, 0, 2, 3)",
        "last": "slots(qkv, 1, 5, 6, 6)",
        "conv": "transpose(matrix(conv, 1))",
        "rows": "matrix(conv, 2)",
        "line": "flat(conv)",
    }
    shapes = {"k": (5, 4), "qk": (8, 5), "last": (2, 5), "conv": (6, 4), "rows": (8, 3)}
    params = [param(name, *shape) for name, shape in shapes.items()] + [param("line", 24)]
    weights = Weights(params, Checkpoint(path), rules)
    expected = {
        "k": each[:, 1].reshape(4, 5).T,
        "qk": each[:, :2].reshape(8, 5),
        "last": each[1, 2],
        "conv": np.array([[row[c, t] for row in kernel] for c in range(2) for t in range(3)]),
        "rows": np.concatenate(list(kernel)),
        "line": np.arange(24),
    }
    for name, array in expected.items():
        np.testing.assert_array_equal(weights[name], array, name)


def test_sines_of_positions_need_no_file(tmp_path: Path) -> None:
    """They are computed, unless the file has them or a rule says where."""
    fill = Fill("sinusoidal_halves")
    params = [Param(Value("p", tensor("f32", 3, 4)), fill), param("a", 2, 3)]
    file = saved(tmp_path / "m.safetensors", a=A)
    made = Weights(params, Checkpoint(file))
    angles = np.arange(3)[:, None] / 10000 ** (np.arange(0, 4, 2) / 4)
    want = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    np.testing.assert_allclose(made["p"], want, rtol=0, atol=UNIT["float32"])
    assert list(made) == ["a", "p"]
    assert (len(made), made.source("p")) == (2, "p")
    own = saved(tmp_path / "own.safetensors", a=A, p=np.ones((3, 4), np.float32))
    assert (Weights(params, Checkpoint(own))["p"] == 1).all()
    with pytest.raises(TfgraphError, match="has no tensor 'table'"):
        Weights(params, Checkpoint(file), {"p": "table"})


@pytest.mark.parametrize(
    ("params", "rules", "message"),
    [
        ([param("aa", 2, 3)], {}, "m.safetensors has no tensor 'aa'"),
        ([param("a", 3, 2)], {}, "m.safetensors: 'a' is [2, 3], expected [3, 2]"),
        ([param("a", 2, 3, dtype="i64")], {}, "m.safetensors: 'a' is f32, expected i64"),
        ([param("b", 2, 3)], {"b": "a", "c.{i}": "a"}, "the rule 'c.{i}' fits no parameter"),
        ([param("b", 2, 3)], {"b": "flip(a)"}, "'flip(a)' is not a rule"),
        ([param("b", 2, 1)], {"b": "part(a, 3, 3)"}, "part 3 of 3 of the last axis of [2, 3]"),
        ([param("b", 2, 1)], {"b": "part(a, 3)"}, "'part(a, 3)' is not a rule"),
        (
            [param("b", 2, 3)],
            {"b": "slots(a, 2, 0, 1, 3)"},
            "slots 0 to 1 of 3, in 2 groups, of the first axis of [2, 3]",
        ),
        (
            [param("b", 2, 3)],
            {"b": "slots(a, 1, 1, 1, 2)"},
            "slots 1 to 1 of 2, in 1 groups, of the first axis of [2, 3]",
        ),
        ([param("b", 2, 3)], {"b": "matrix(a, 2)"}, "2 axes made one, and the others, of [2, 3]"),
        ([], {}, "m.safetensors: 'a' is a tensor that no parameter uses"),
    ],
)
def test_what_does_not_fit(
    tmp_path: Path, params: list[Param], rules: dict[str, str], message: str
) -> None:
    checkpoint = Checkpoint(saved(tmp_path / "m.safetensors", a=A))
    with pytest.raises(TfgraphError) as caught:
        Weights(params, checkpoint, rules)
    assert message in str(caught.value)
    assert caught.value.location is not None
    assert "m.safetensors" in caught.value.location.file


def test_every_problem_is_named_and_nearest_names_are_hinted(tmp_path: Path) -> None:
    checkpoint = Checkpoint(saved(tmp_path / "m.safetensors", layer__weight=A))
    with pytest.raises(TfgraphError) as caught:
        Weights([param("layer.weigth", 2, 3), param("other", 1)], checkpoint)
    assert caught.value.hint == "did you mean 'layer.weight'?"
    assert [e.message for e in caught.value.related] == ["m.safetensors has no tensor 'other'"]


def test_ignored_names(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.safetensors", a=A, x__position_ids=A)
    assert len(Weights([param("a", 2, 3)], Checkpoint(path), ignore=["*.position_ids"])) == 1


def header(text: bytes, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\x05\0\0", "truncated"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "not a safetensors file, or is truncated"),
        (header(b"[1]"), "not an object"),
        (header(b"{nonsense"), "not JSON"),
        (header(b'{"a": 3}'), "'a' has a damaged entry"),
        (header(b'{"a": {"dtype": "F4", "shape": [], "data_offsets": [0, 0]}}'), "dtype F4"),
        (
            header(
                b'{"a": {"dtype": "F32", "shape": [9999999], "data_offsets": [0, 4]}}', b"0" * 4
            ),
            "'a' has 4 bytes, which do not hold F32 [9999999]",
        ),
        (
            header(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}', b"0" * 4),
            "which do not hold",
        ),
        (
            header(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', b"0" * 4),
            "is truncated: 'a' ends at byte",
        ),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(TfgraphError) as caught:
        Checkpoint(path)
    assert message in caught.value.message
    assert "m.safetensors" in caught.value.message


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = saved(tmp_path / "m.safetensors", a=A, b=A).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut.safetensors").write_bytes(whole[:length])
        with pytest.raises(TfgraphError):
            Checkpoint(tmp_path / "cut.safetensors")


def test_missing_and_pickled_files(tmp_path: Path) -> None:
    with pytest.raises(TfgraphError, match="No such file"):
        Checkpoint(tmp_path / "m.safetensors")
    for name in ("pytorch_model.bin", "model.pt"):
        with pytest.raises(TfgraphError, match="is a pickle") as caught:
            Checkpoint(tmp_path / name)
        assert "safetensors.torch.save_file" in str(caught.value.hint)


def test_seeded_weights_are_bell_shaped() -> None:
    x = seeded(param("w", 300, 1000))
    assert x.dtype == np.float32
    # Within three standard errors.
    assert abs(x.mean()) < 3 * 0.02 / np.sqrt(x.size)
    assert abs(x.std() / 0.02 - 1) < 3 / np.sqrt(2 * x.size)
    assert abs(np.corrcoef(x[0], x[1])[0, 1]) < 3 / np.sqrt(1000)
    # A sum of a few uniform numbers is near a normal distribution, which has 0.683 here.
    within = (np.abs(x) < 0.02).mean()
    assert abs(within - 0.683) < 0.02


def test_seeds_and_names_matter_and_order_does_not() -> None:
    a, b = param("a", 8), param("b", 8)
    one, two = Seeded([a, b], 1), Seeded([b, a], 1)
    assert (one["a"] == two["a"]).all()
    assert (one["a"] != one["b"]).all()
    assert (one["a"] != Seeded([a], 2)["a"]).all()


def test_seeded_bits_are_fixed() -> None:
    """Recorded once: another machine, process or NumPy must give the same bits."""
    assert seeded(param("w", 3), 5).tobytes().hex() == "b7805b3c7b3d9e3ad6df15bc"
    code = (
        "from tfgraph.weights import seeded\n"
        "from tfgraph.ir import Fill, Param, Value, exact, tensor\n"
        "p = Param(Value('w', tensor('f32', 3)), Fill('normal', exact(0.02)))\n"
        "print(seeded(p, 5).tobytes().hex())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == seeded(param("w", 3), 5).tobytes().hex()


def test_seeded_bits_are_the_words_of_philox() -> None:
    """Of more words than are made at a time: the sum of the four parts of each, in order."""
    key = np.frombuffer(hashlib.sha256(b"0:w").digest()[:16], "<u8")
    words = np.random.Philox(key=key).random_raw(100_000)
    sums = words.view("<u2").reshape(-1, 4).sum(axis=1, dtype=np.int64)
    want = (2 * sums - 4 * 0xFFFF) / np.sqrt(4 * (2.0**32 - 1) / 3)
    np.testing.assert_array_equal(seeded(param("w", 100_000)), (want * 0.02).astype(np.float32))


def test_what_is_made_ahead_has_the_same_bits() -> None:
    params = [param(f"w{i}", 40_000) for i in range(12)]
    ahead = Seeded(params)
    ahead.make_ahead()
    ahead.make_ahead()  # which finds that it was begun
    for one in params:
        assert np.array_equal(ahead[one.value.name], seeded(one))
        assert ahead[one.value.name] is ahead[one.value.name]


def test_large_tensors_continue_where_chunks_meet() -> None:
    """More elements than are made at a time: the sequence of the generator goes on."""
    long = seeded(param("w", (1 << 20) + 5))
    assert (long[:5] == seeded(param("w", 5))).all()
    assert len(set(long[-5:].tolist()) & set(long[:5].tolist())) == 0


def test_other_fills() -> None:
    assert (seeded(param("w", 2, 2, fill=Fill("ones"))) == 1).all()
    assert (seeded(param("w", 2, 2, fill=Fill("zeros"))) == 0).all()
    table = seeded(param("w", 7, 4, fill=Fill("sinusoidal")))
    np.testing.assert_array_equal(table, sinusoidal_table(7, 4).astype(np.float32))
    with pytest.raises(TfgraphError, match=r"no way to fill it with ids\(3\)"):
        seeded(param("w", 2, fill=Fill("ids", exact(3))))
