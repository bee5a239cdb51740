"""Whole small models on an emulated GPU: TVM's own CUDA runtime and virtual machine run artifacts
as `tfgraph compile` writes them, in a process of their own, against the reference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cuda_artifacts import BUILD, MODELS, done, on_gpu
from helpers.tolerance import assert_close

from tfgraph.runtime import format as layout


@pytest.fixture(scope="module")
def built(fake_cuda: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models' artifacts, each verified on the GPU: all functions, many sizes."""
    folder = tmp_path_factory.mktemp("models")
    for name, text in MODELS.items():
        (folder / f"{name}.yaml").write_text(text)
    printed = on_gpu(fake_cuda, BUILD, folder)
    assert sorted(printed.splitlines()) == [f"{name} True None" for name in sorted(MODELS)]
    return folder


ONE_LINEAR = """
import sys
import numpy as np
import tfgraph
folder = sys.argv[1]
graph = tfgraph.parse_graph('''
graph one(%x: f32[n,8] = normal(1)) {
  symbol n: 1..8, example 3
  %y = linear(%x, %w) : f32[n,4]
  return y=%y
}
weights {
  %w : f32[8,4] = normal(1)
}
''')
x, w = (np.load(f"{folder}/{name}.npy") for name in "xw")
with tfgraph.compile(graph, "cuda", weights={"w": w}) as model:
    np.save(f"{folder}/y.npy", model(x=x)["y"])
"""


def test_one_linear(fake_cuda: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    x, w = (draw.standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 4)))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    on_gpu(fake_cuda, ONE_LINEAR, tmp_path)
    assert_close(np.load(tmp_path / "y.npy"), x.astype(np.float64) @ w, length=8)


GENERATE = """
import sys
import tfgraph
from helpers.cuda_artifacts import ROUNDINGS
from helpers.tolerance import relative
path, model, name = sys.argv[1:]
run = tfgraph.load(path)
reference = tfgraph.compile(model, "numpy")
prompts = [[5, 6, 7], [9, 0, 1, 4, 4]]
for options in ({}, {"chunk": 2}, {"temperature": 1.2, "seed": 4}):
    got = list(run.generate(prompts, max_tokens=8, **options))
    assert got == list(reference.generate(prompts, max_tokens=8, **options)), options
    kept = run.generate(prompts, max_tokens=8, check_cache=True, **options)
    list(kept)
    assert kept.difference < relative("float32", ROUNDINGS), kept.difference
assert list(run.generate([5, 6], max_tokens=6, beams=3)) == list(
    reference.generate([5, 6], max_tokens=6, beams=3)
)
"""


@pytest.mark.parametrize("name", [name for name in MODELS if name != "encoder"])
def test_generation_is_that_of_the_reference(fake_cuda: Path, built: Path, name: str) -> None:
    """In batches, in pieces, sampled and with beams, whose states are reordered on the GPU."""
    on_gpu(fake_cuda, GENERATE, built / f"{name}.tfgraph", built / f"{name}.yaml", name)


STATES = """
import sys
import numpy as np
import tfgraph
from helpers.cuda_artifacts import ROUNDINGS
from helpers.tolerance import assert_close
path, model = sys.argv[1:]
ids = np.random.default_rng(2).integers(0, 30, (2, 70))[:, :40]
ends = []
for run in (tfgraph.load(path), tfgraph.compile(model, "numpy")):
    state = run.new_state(2)
    state.feed(ids[:, :30])
    other = state.fork()
    state.feed(ids[:, 30:35])
    state.truncate(31)
    state.reorder([1, 1])
    ends.append([state.feed(ids[:, 35:]), other.feed(ids[:, 30:])])
for a, b in zip(*ends):
    assert_close(a, b, length=ROUNDINGS)
"""


def test_states_are_forked_truncated_and_reordered(fake_cuda: Path, built: Path) -> None:
    on_gpu(fake_cuda, STATES, built / "llama.tfgraph", built / "llama.yaml")


STEPS = """
import sys
import tfgraph
run = tfgraph.load(sys.argv[1])
state = run.new_state(1)
import numpy as np
state.feed(np.array([[1, 2, 3]]))
with open(sys.argv[2], "w"):
    pass
for token in (4, 5):
    state.feed(np.array([[token]]))
"""


def test_the_cache_stays_on_the_device(fake_cuda: Path, built: Path, tmp_path: Path) -> None:
    """A step copies its token and where its row begins in, the logits out, and nothing else."""
    log = tmp_path / "log"
    on_gpu(fake_cuda, STEPS, built / "llama.tfgraph", log, FAKE_CUDA_LOG=str(log))
    assert done(log, "copy") == {"in 8": 2 * 2, f"out {30 * 4}": 2}
    manifest = layout.read_manifest(built / "llama.tfgraph")
    step = [launch["kernel"] for launch in manifest["functions"]["step"]["launches"]]
    assert done(log, "launch").total() == 2 * len(step)
    assert "rotary_append_kv" in step


CALL = """
import sys
import tfgraph
with tfgraph.load(sys.argv[1]) as run:
    for _ in range(3):
        run(**run.example())
"""


@pytest.mark.parametrize("name", MODELS)
def test_what_is_launched_and_copied_is_what_the_manifest_says(
    fake_cuda: Path, built: Path, name: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    artifact = built / f"{name}.tfgraph"
    on_gpu(fake_cuda, CALL, artifact, FAKE_CUDA_LOG=str(log))
    manifest = layout.read_manifest(artifact)
    assert done(log, "launch").total() == 3 * manifest["cuda"]["launches"]
    assert manifest["cuda"]["launches"] == len(manifest["launches"])
    known = {kernel["name"] for kernel in json.loads((artifact / layout.LAUNCHES).read_text())}
    assert done(log, "launch").keys() <= known
    functions = [manifest, *manifest.get("functions", {}).values()]
    weights = {w["name"] for function in functions for w in function["weights"]}
    inputs = len(manifest["inputs"])
    copied = sum(n for what, n in done(log, "copy").items() if what.startswith("in "))
    assert copied == len(weights) + 3 * inputs
    assert done(log, "module") == {"cubin sm_80": 1}


ARRAYS = """
import ctypes
import sys
import numpy as np
import tfgraph
import tvm_ffi
from tfgraph.errors import TfgraphError
from tfgraph.runtime.cuda.array import CudaArray, upload, view

class Other:  # as another library has it: an array that knows DLPack and nothing of tfgraph
    def __init__(self, array):
        self.tensor = upload(array, tvm_ffi.device("cuda", 0))
    def __dlpack__(self, *, stream=None):
        assert stream == 1
        return self.tensor.__dlpack__()
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

run = tfgraph.load(sys.argv[1])
inputs = run.example({"batch": 2, "seq": 9})
want = run(**inputs)["last_hidden_state"]
there = {name: Other(array) for name, array in inputs.items()}
got = run(**there)["last_hidden_state"]
assert isinstance(got, CudaArray) and got.shape == want.shape and got.dtype == "float32"
assert got.__dlpack_device__() == (2, 0)
assert np.array_equal(got.numpy(), want)
again = CudaArray(tvm_ffi.from_dlpack(got))
assert again.address == got.address  # read where it is
mixed = run(**{**inputs, "input_ids": there["input_ids"]})["last_hidden_state"]
assert np.array_equal(mixed.numpy(), want)
out = np.empty_like(want)
assert run(**there, out={"last_hidden_state": out})["last_hidden_state"] is out
assert np.array_equal(out, want)
for given in (inputs, there):
    target = Other(np.full_like(want, np.nan))
    assert run(**given, out={"last_hidden_state": target})["last_hidden_state"] is target
    assert np.array_equal(CudaArray(target.tensor).numpy(), want)

def refused(text, out=None, **changed):
    try:
        run(**{**there, **changed}, out=out)
    except TfgraphError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

ids = inputs["input_ids"]
refused("'input_ids' is int32, expected int64", input_ids=Other(ids.astype(np.int32)))
refused("'input_ids' holds 30, expected 0 to 29", input_ids=Other(np.full_like(ids, 30)))
refused("seq", input_ids=Other(ids[:, :-1]))

class As(Other):  # the same memory as float32 of that shape and these strides, to be looked at
    def __init__(self, other, shape, strides):
        self.tensor = other.tensor
        self.sizes = [(ctypes.c_int64 * len(shape))(*numbers) for numbers in (shape, strides)]
    def __dlpack__(self, *, stream=None):
        capsule = self.tensor.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        at = pointer(capsule, b"dltensor")  # DLTensor of dlpack.h
        ctypes.c_int32.from_address(at + 16).value = len(self.sizes[0])
        (ctypes.c_uint8 * 2).from_address(at + 20)[:] = 2, 32
        for i, numbers in enumerate(self.sizes):
            ctypes.c_void_p.from_address(at + 24 + 8 * i).value = ctypes.addressof(numbers)
        return capsule

def refused_out(text, target):
    refused(text, out={"last_hidden_state": target})

name = "out 'last_hidden_state' "
refused_out(name + "is float64, expected float32", Other(want.astype(np.float64)))
refused_out(name + "has shape [2, 8, 16], expected [2, 9, 16]", Other(want[:, :-1].copy()))
refused_out(name + "is not contiguous", As(Other(want), (2, 9, 16), (16, 32, 1)))
ids_as_floats = As(there["input_ids"], (2, 9, 16), (144, 16, 1))
refused_out(name + "shares memory with input 'input_ids'", ids_as_floats)
refused_out(name + "is a list", [1.0])
assert np.array_equal(run(**inputs)["last_hidden_state"], want)

behind = Other(np.append(0, ids.ravel()))  # eight bytes further on
behind.tensor = view(behind.tensor, ids.shape, 8)
refused("'input_ids' starts at an address that is no multiple of 16 bytes", input_ids=behind)
"""


def test_arrays_on_the_gpu_are_taken_and_given_without_a_copy(fake_cuda: Path, built: Path) -> None:
    on_gpu(fake_cuda, ARRAYS, built / "encoder.tfgraph")


STATE_ARRAYS = """
import ctypes
import sys
import numpy as np
import tfgraph
from helpers.cuda_artifacts import ROUNDINGS
from helpers.tolerance import assert_close
import tvm_ffi
from tfgraph.errors import TfgraphError
from tfgraph.runtime.cuda.array import CudaArray, upload
path, model = sys.argv[1:]
inputs = ends = None
gpu = tfgraph.load(path).functions["step"]
cpu = tfgraph.compile(model, "numpy").functions["step"]
inputs = cpu.example({"batch": 2, "seq": 3, "end": 5, "capacity": 8})
states = [port.name for port in gpu.inputs if port.is_state]
want = cpu(**inputs, dims={"end": 5})
copied = {name: array.copy() for name, array in inputs.items()}
got = gpu(**copied, dims={"end": 5})
there = {name: CudaArray(upload(a, tvm_ffi.device("cuda", 0))) for name, a in inputs.items()}
on_gpu = gpu(**there, dims={"end": 5})
for name in want:
    assert_close(got[name], want[name], length=ROUNDINGS)
    assert_close(on_gpu[name].numpy(), want[name], length=ROUNDINGS)
for name in states:
    assert got[name] is copied[name]
    assert on_gpu[name] is there[name]
try:
    gpu(**{**there, states[1]: there[states[0]]}, dims={"end": 5})
except TfgraphError as error:
    assert "shares memory" in str(error), error
else:
    raise AssertionError("two states in one memory")
"""


def test_a_state_is_written_where_it_lies(fake_cuda: Path, built: Path) -> None:
    on_gpu(fake_cuda, STATE_ARRAYS, built / "llama.tfgraph", built / "llama.yaml")


THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import tfgraph
run = tfgraph.load(sys.argv[1])
calls = [run.example({"seq": n}, seed=n) for n in range(1, 25)]
want = [run(**inputs)["last_hidden_state"] for inputs in calls]
with ThreadPoolExecutor(8) as pool:
    got = list(pool.map(lambda inputs: run(**inputs)["last_hidden_state"], calls * 2))
assert all(np.array_equal(a, b) for a, b in zip(got, want * 2))
stored = {w.name: w.array for w in run.stored_weights()}
assert all(isinstance(array, np.ndarray) for array in stored.values())
run.close()
"""


def test_any_number_of_threads_may_call(fake_cuda: Path, built: Path) -> None:
    on_gpu(fake_cuda, THREADS, built / "encoder.tfgraph")


DECODE = """
import tfgraph
from tfgraph import ops
from tfgraph.ir.mask import padding
with ops.graph("decode") as g:
    batch, s, t = g.symbol("batch", 1, 4), g.symbol("s", 1, 512), g.symbol("t", 1, 512)
    q, k, v = g.input("q", "f16", batch, s, 64), *(g.input(n, "f16", batch, t, 32) for n in "kv")
    mask = padding(g.input("lengths", "i64", batch))
    g.output("y", ops.attention(q, k, v, mask, heads=4, kv_heads=2, scale=0.25))
graph = g.build()
for t in (300, 40, 410):  # the workspace grows
    report = tfgraph.compare(graph, backends=("numpy", "cuda"), dims={"batch": 2, "s": 3, "t": t})
    print(report.ok)
"""


def test_few_queries_share_the_keys_out(fake_cuda: Path, tmp_path: Path) -> None:
    """Two launches and the workspace between them, before 256 keys or more; else one."""
    log = tmp_path / "log"
    assert on_gpu(fake_cuda, DECODE, FAKE_CUDA_LOG=str(log)).split() == ["True"] * 3
    launched = done(log, "launch")
    split, combine, one = (launched[f"attention_kernel{n}"] for n in ("", "_1", "_2"))
    assert split == combine == 2 * one > 0


REMEMBERED = """
import os
import sys
from pathlib import Path
import tfgraph
from tfgraph.backends.base import Target
from tfgraph.cache import Cache
graph = tfgraph.parse_graph("graph g(%x: f32[8]) {\\n  %y = exp(%x)\\n  return y=%y\\n}\\n")
folder = Path(sys.argv[1])
gpus = [
    {},
    {"FAKE_CUDA_NAME": "Other GPU"},
    {"FAKE_CUDA_CAPABILITY": "86"},
    {"FAKE_CUDA_DRIVER": "13010"},
]
for gpu in gpus:
    os.environ.update(gpu)  # the driver reads them at each call
    for again in (False, True):
        target, cache = Target("cuda", arch="sm_80"), Cache(folder / "cache")
        found = tfgraph.build(graph, target, folder / "g.tfgraph", cache=cache).verification
        assert found.ok
        assert found.remembered == again, gpu
"""


def test_a_verification_is_remembered_of_this_gpu_alone(fake_cuda: Path, tmp_path: Path) -> None:
    on_gpu(fake_cuda, REMEMBERED, tmp_path)
