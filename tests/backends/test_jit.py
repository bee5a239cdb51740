"""Object files and the lean runtime: reproducible, loaded without the compiler, thread-safe."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from helpers.tolerance import assert_close
from tvm import ir, relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.build import build_objects, order_shape_stores
from tfgraph.backends.tvm.cpu.gemm import gemm, pack_weight, packed_shape
from tfgraph.backends.tvm.cpu.gemm_tile import tile_for
from tfgraph.backends.tvm.cpu.schedule import Schedule
from tfgraph.backends.tvm.kernels import LinearShape
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.errors import TfgraphError
from tfgraph.runtime import cores
from tfgraph.runtime.jit import ALIGNMENT, Program, aligned_empty, as_tensor

Array = np.ndarray[Any, np.dtype[Any]]

ROOT = Path(__file__).parents[2]
WIDTHS = [40, 96, 33, 64, 50, 72]  # of a chain of linear layers: one symbolic shape expression each


def chain_module(mcpu: str | None = None) -> Any:
    """main(x, w0, w1, ...) = x @ w0 @ w1 ..., with a symbolic number of rows."""
    machine = cpu_machine(mcpu)
    m = tirx.Var("m", "int64")
    layers = list(pairwise(WIDTHS))
    x = relax.Var("x", relax.TensorType((m, WIDTHS[0]), "float32"))
    weights = [
        relax.Var(f"w{i}", relax.TensorType(packed_shape(k, n, tile_for(machine, n)), "float32"))
        for i, (k, n) in enumerate(layers)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            value: Any = x
            for (k, n), w in zip(layers, weights, strict=True):
                kernel = gemm(LinearShape(k, n), Schedule(tile_for(machine, n)))
                called = builder.add_func(kernel, f"linear_{k}_{n}")
                out = relax.TensorType((m, n), "float32")
                value = builder.emit(relax.call_tir(called, [value, w], out))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


@cache
def chain_objects(mcpu: str | None = None) -> list[bytes]:
    return build_objects(chain_module(mcpu), cpu_machine(mcpu))


def chain_weights() -> list[Array]:
    rng = np.random.default_rng(0)
    pairs = pairwise(WIDTHS)
    return [(rng.standard_normal((k, n)) / k**0.5).astype(np.float32) for k, n in pairs]


def packed(weights: list[Array], mcpu: str | None = None) -> list[Array]:
    return [pack_weight(w, tile_for(cpu_machine(mcpu), w.shape[1])) for w in weights]


def rows(m: int) -> Array:
    return np.random.default_rng(m).standard_normal((m, WIDTHS[0]), dtype=np.float32)


def reference(x: Array) -> Array:
    for w in chain_weights():
        x = x.astype(np.float64) @ w
    return x


@pytest.mark.parametrize("mcpu", [None, "x86-64-v3"])
def test_a_module_runs_for_any_number_of_rows(mcpu: str | None) -> None:
    with Program(chain_objects(mcpu), threads=2) as program:
        for m in (1, 5, 64, 100):
            (out,) = program.call("main", [rows(m), *packed(chain_weights(), mcpu)])
            assert_close(out, reference(rows(m)), length=sum(WIDTHS[:-1]))


def test_objects_load_without_compiler_linker_or_tvm(tmp_path: Path) -> None:
    for i, data in enumerate(chain_objects()):
        (tmp_path / f"{i}.o").write_bytes(data)
    np.savez(tmp_path / "args.npz", rows(7), *packed(chain_weights()))
    script = """
import sys
from pathlib import Path
import numpy as np
from tfgraph.runtime.jit import Program
here = Path(sys.argv[1])
objects = [path.read_bytes() for path in here.glob("*.o")]
out, = Program(objects).call("main", list(np.load(here / "args.npz").values()))
np.save(here / "out.npy", out)
heavy = {"tvm", "onnx", "networkx", "pydantic"} & set(sys.modules)
assert not heavy, heavy
"""
    clean = {"PATH": "", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=clean, check=True)
    out = np.load(tmp_path / "out.npy")
    assert_close(out, reference(rows(7)), length=sum(WIDTHS[:-1]))


def test_the_same_module_gives_the_same_bytes_in_every_process() -> None:
    script = "import test_jit; print(test_jit.digest())"
    places = os.pathsep.join([str(Path(__file__).parent), str(ROOT / "tests"), str(ROOT)])
    child = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": places, "PYTHONHASHSEED": "1", "PATH": ""},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert child.stdout.strip() == digest()


def test_shape_functions_fill_their_slots_in_order() -> None:
    with IRBuilder() as function:
        with T.prim_func(s_tir=True):
            T.func_name("shape_func")
            heap = T.match_buffer(T.arg("heap", T.handle()), (4,), "int64")
            for slot in (3, 1, 2):
                T.buffer_store(heap, T.int64(10 * slot), [T.int64(slot)])
    mod = order_shape_stores(tvm.IRModule({"shape_func": function.get()}), None)
    stores = mod["shape_func"].body.seq
    assert [int(store.indices[0]) for store in stores] == [1, 2, 3]
    assert [int(store.value) for store in stores] == [10, 20, 30]


def digest() -> str:
    return hashlib.sha256(b"".join(chain_objects())).hexdigest()


def test_threads_may_share_a_program() -> None:
    weights = [as_tensor(w) for w in packed(chain_weights())]
    failures: list[str] = []
    with Program(chain_objects(), threads=2) as program:
        sizes = [3, 17, 64, 90]
        want = {m: program.call("main", [rows(m), *weights])[0] for m in sizes}
        start = threading.Barrier(len(sizes))

        def work(m: int) -> None:
            try:
                start.wait()
                for _ in range(50):
                    (out,) = program.call("main", [rows(m), *weights])
                    assert np.array_equal(out, want[m])
            except Exception as error:
                failures.append(f"{m} rows: {error!r}")

        workers = [threading.Thread(target=work, args=(m,)) for m in sizes]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


def test_results_belong_to_the_caller() -> None:
    weights = packed(chain_weights())
    program = Program(chain_objects(), threads=1)
    (first,) = program.call("main", [rows(9), *weights])
    kept = first.copy()
    (second,) = program.call("main", [rows(10), *weights])
    second[...] = 0
    program.close()
    del program
    assert np.array_equal(first, kept)
    first[...] = 1  # and may be written to


def test_arguments_are_copied_only_where_they_must_be() -> None:
    aligned = aligned_empty((4, WIDTHS[0]), np.float32)
    assert np.shares_memory(aligned, np.from_dlpack(as_tensor(aligned)))
    x = rows(4)
    buffer = aligned_empty((4 * WIDTHS[0] + 1,), np.float32)
    unaligned = buffer[1:].reshape(4, WIDTHS[0])
    unaligned[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    weights = packed(chain_weights())
    with Program(chain_objects(), threads=1) as program:
        (want,) = program.call("main", [x, *weights])
        for other in (unaligned, frozen, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
            (out,) = program.call("main", [other, *weights])
            assert np.array_equal(out, want)


@pytest.mark.parametrize("shape", [(), (5,), (3, 7, 2), (0,), (0, 3), (2, 0, 5)])
def test_aligned_empty(shape: tuple[int, ...]) -> None:
    for dtype in (np.float32, np.int64, np.bool_):
        array = aligned_empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.ctypes.data % ALIGNMENT == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 5)])
def test_an_array_without_elements_is_a_tensor_of_its_shape(shape: tuple[int, ...]) -> None:
    """Wherever it starts: NumPy's own do so at multiples of 16."""
    memory = np.empty(256, np.uint8)
    for start in range(0, 64, 4):
        array = np.ndarray(shape, np.float32, memory, start)
        tensor = np.from_dlpack(as_tensor(array))
        assert (tensor.shape, tensor.dtype) == (shape, np.float32)


def test_scalars_pass_as_integers_and_several_results_come_back() -> None:
    with IRBuilder() as kernel:
        with T.prim_func(s_tir=True):
            T.func_name("shift")
            m = T.int64()
            x = T.match_buffer(T.arg("x", T.handle()), (m,), "int64")
            by = T.arg("by", T.int64())
            out = T.match_buffer(T.arg("out", T.handle()), (m,), "int64")
            with T.sblock("root"):
                T.reads()
                T.writes()
                with T.serial(0, m) as i:
                    T.buffer_store(out, x[i] + by, [i])
    builder = relax.BlockBuilder()
    size = tirx.Var("n", "int64")
    kind = relax.TensorType((size,), "int64")
    x_var, past = relax.Var("x", kind), relax.Var("past", ir.PrimType("int64"))
    with builder.function("main", [x_var, past]):
        with builder.dataflow():
            shift = builder.add_func(kernel.get(), "shift")
            by_past = builder.emit(relax.call_tir(shift, [x_var, past], kind))
            by_size = builder.emit(relax.call_tir(shift, [x_var, size], kind))
            result = builder.emit_output(relax.Tuple([by_past, by_size]))
        builder.emit_func_output(result)
    with Program(build_objects(builder.get(), cpu_machine()), threads=1) as program:
        first, second = program.call("main", [np.arange(3), np.int32(10)])
    assert first.tolist() == [10, 11, 12]
    assert second.tolist() == [3, 4, 5]


def test_misuse_is_reported() -> None:
    for threads in (0, 100_000):  # each would be a thread of the system
        with pytest.raises(TfgraphError, match="the CPUs this process may use"):
            Program(chain_objects(), threads=threads)
    program = Program(chain_objects(), threads=1)
    with pytest.raises(TfgraphError, match="no function 'missing'"):
        program.call("missing", [])
    program.close()
    with pytest.raises(TfgraphError, match="closed"):
        program.call("main", [])


def test_running_leaves_the_affinity_of_the_caller_alone() -> None:
    one = {min(os.sched_getaffinity(0))}
    seen: list[set[int]] = []

    def work() -> None:
        os.sched_setaffinity(0, one)  # of this thread
        program.call("main", [rows(64), *packed(chain_weights())])
        seen.append(os.sched_getaffinity(0))

    with Program(chain_objects(), threads=2) as program:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    assert seen == [one]


def test_cpu_names() -> None:
    v3 = cpu_machine("x86-64-v3")
    assert (v3.lanes, v3.registers) == (8, 16)
    assert {"avx2", "fma"} <= set(v3.features)
    assert "avx512f" not in v3.features
    v4 = cpu_machine("x86-64-v4")
    assert (v4.lanes, v4.registers) == (16, 32)
    assert "avx512f" in v4.features
    assert set(cpu_machine().features) <= cores.cpu_flags()
    with pytest.raises(TfgraphError, match=r"(?s)unknown CPU 'znvr4'.*did you mean 'znver4'"):
        cpu_machine("znvr4")
    with pytest.raises(TfgraphError, match="no AVX2"):
        cpu_machine("nehalem")
