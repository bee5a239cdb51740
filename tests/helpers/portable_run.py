"""Run what a portable artifact holds on a device: its source, launch by launch of its plan.

OpenCL C runs on any OpenCL device, and PoCL makes one of the CPU; WGSL on any adapter of wgpu, such
as Mesa's lavapipe, which is the CPU; Metal as C++, which it nearly is. Behind each array stands a
margin: what a kernel reads there shows in its result, what it writes there is an error. (In WGSL
arrays have sizes, and nothing is read or written behind them.)
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulator.build import require_host_compiler
from safetensors.numpy import load_file

NDArray = np.ndarray[Any, Any]
MARGIN = 4096  # bytes
_FILLED = 0xFF  # which makes NaN of floats


class PlanRun(ABC):
    """A source, built, and its plan."""

    def __init__(self, source: str, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.kernels = {k["name"]: k for k in plan["kernels"]}
        self.build(source)

    @abstractmethod
    def build(self, source: str) -> None:
        """Compile it."""

    @abstractmethod
    def put(self, data: NDArray) -> Any:
        """Bytes in the device's memory, and a margin."""

    @abstractmethod
    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int],
        arrays: Sequence[Any], sizes: Sequence[np.generic],
    ) -> None:  # fmt: skip
        """Launch a kernel."""

    @abstractmethod
    def get(self, buffer: Any, count: int) -> NDArray:
        """The first bytes of what `put` gave, once the margin has been checked."""

    def __call__(
        self, given: Mapping[str, NDArray], sizes: Mapping[str, int]
    ) -> dict[str, NDArray]:
        """The outputs, from inputs and weights by name, and all sizes by symbol."""
        described = self.plan["arrays"]
        shapes = {n: tuple(_size(d, sizes) for d in a["shape"]) for n, a in described.items()}
        memory = {n: self.put(_stored(given, n, a, shapes[n])) for n, a in described.items()}
        for item in self.plan["launches"]:
            entry = self.kernels[item["kernel"]]
            arrays: list[Any] = []
            named: dict[str, np.generic] = {}
            for parameter, argument in zip(entry["parameters"], item["arguments"], strict=True):
                kind = parameter["type"]
                if kind.endswith("*"):
                    assert kind == f"{described[argument]['dtype']}*", (item, parameter)
                    arrays.append(memory[argument])
                else:
                    named[parameter["name"]] = np.dtype(kind).type(sizes[argument])
            extents = {name: int(value) for name, value in named.items()}
            grid = [_size(text, extents) for text in entry["grid"]]
            self.launch(entry["name"], grid, entry["block"], arrays, list(named.values()))
        results: dict[str, NDArray] = {}
        for output, found in self.plan["outputs"].items():
            dtype = np.dtype(described[found["array"]]["dtype"])
            shape = tuple(_size(d, sizes) for d in found["shape"])
            count = int(np.prod(shapes[found["array"]], dtype=np.int64)) * dtype.itemsize
            data = self.get(memory[found["array"]], count)
            results[output] = data.view(dtype).reshape(shape)
        return results


def _size(dim: int | str, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return int(eval(re.sub(r"[^\W\d]\w*", lambda m: str(sizes.get(m[0], m[0])), dim)))


def _stored(
    given: Mapping[str, NDArray], name: str, entry: Mapping[str, Any], shape: tuple[int, ...]
) -> NDArray:
    """The bytes of an array before the first launch."""
    dtype = np.dtype(entry["dtype"])
    if entry["from"] == "made":
        assert name not in given
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.full(count, _FILLED, np.uint8)
    assert given[name].shape == shape, name
    if entry["from"] == "weight":  # which stand in their file as in the device's memory
        assert given[name].dtype == dtype, name
    return np.ascontiguousarray(given[name].astype(dtype)).reshape(-1).view(np.uint8)


class OpenCLRun(PlanRun):
    """On the first OpenCL device."""

    def build(self, source: str) -> None:
        self.queue = _opencl()
        import pyopencl as cl

        self.program = cl.Program(self.queue.context, source).build(["-cl-std=CL1.2"])

    def put(self, data: NDArray) -> Any:
        import pyopencl as cl

        whole = np.concatenate([data, np.full(MARGIN, _FILLED, np.uint8)])
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=whole)

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int],
        arrays: Sequence[Any], sizes: Sequence[np.generic],
    ) -> None:  # fmt: skip
        import pyopencl as cl

        total = [n * size for n, size in zip(grid, block, strict=True)]
        cl.Kernel(self.program, kernel)(self.queue, total, block, *arrays, *sizes)

    def get(self, buffer: Any, count: int) -> NDArray:
        import pyopencl as cl

        whole = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(self.queue, whole, buffer)
        assert (whole[count:] == _FILLED).all(), "a kernel wrote behind an array"
        return whole[:count]


@cache
def _opencl() -> Any:
    cl = pytest.importorskip("pyopencl", reason="no pyopencl to run OpenCL C with")
    try:
        context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    except (cl.Error, IndexError):
        pytest.skip("no OpenCL device; pip install pocl-binary-distribution makes one of the CPU")
    return cl.CommandQueue(context)


class WebGPURun(PlanRun):
    """On the first adapter of wgpu."""

    def build(self, source: str) -> None:
        self.device = _adapter()
        self.module = self.device.create_shader_module(code=source)
        self.pipelines: dict[str, Any] = {}

    def put(self, data: NDArray) -> Any:
        import wgpu

        usage = wgpu.BufferUsage
        return self.device.create_buffer_with_data(
            data=np.ascontiguousarray(data), usage=usage.STORAGE | usage.COPY_SRC
        )

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int],
        arrays: Sequence[Any], sizes: Sequence[np.generic],
    ) -> None:  # fmt: skip
        import wgpu

        if kernel not in self.pipelines:
            self.pipelines[kernel] = self.device.create_compute_pipeline(
                layout="auto", compute={"module": self.module, "entry_point": kernel}
            )
        pipeline, buffers = self.pipelines[kernel], list(arrays)
        if sizes:
            data = np.array(sizes, np.int32)
            uniform = wgpu.BufferUsage.UNIFORM
            buffers.append(self.device.create_buffer_with_data(data=data, usage=uniform))
        bound = self.device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[{"binding": i, "resource": {"buffer": b}} for i, b in enumerate(buffers)],
        )
        encoder = self.device.create_command_encoder()
        work = encoder.begin_compute_pass()
        work.set_pipeline(pipeline)
        work.set_bind_group(0, bound)
        work.dispatch_workgroups(*grid)
        work.end()
        self.device.queue.submit([encoder.finish()])

    def get(self, buffer: Any, count: int) -> NDArray:
        return np.frombuffer(self.device.queue.read_buffer(buffer), np.uint8)[:count].copy()


@cache
def _adapter() -> Any:
    wgpu = pytest.importorskip("wgpu", reason="no wgpu to run WGSL with")
    found = wgpu.gpu.enumerate_adapters_sync()
    if not found:
        pytest.skip("wgpu finds no adapter; Mesa's lavapipe makes one of the CPU")
    return found[0].request_device_sync()


_METAL = """
#include <cmath>
#include <cstring>
#define kernel extern "C"
#define device
#define constant const
typedef unsigned int uint;
typedef unsigned char uchar;
namespace metal {
using std::abs, std::copysign, std::fabs, std::floor, std::isnan;
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T, class U> T as_type(U x) { T y; std::memcpy(&y, &x, sizeof y); return y; }
namespace precise {
inline float exp(float x) { return std::exp(x); }
inline float log(float x) { return std::log(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline float sin(float x) { return std::sin(x); }
inline float cos(float x) { return std::cos(x); }
inline float tanh(float x) { return std::tanh(x); }
inline float pow(float x, float y) { return std::pow(x, y); }
}
}
"""


_METAL_OPTIONS = ("-std=c++17", "-fPIC", "-Wno-attributes")


@cache
def _metal_stdlib() -> tempfile.TemporaryDirectory[str]:
    """A folder with that header, compiled once: reading <cmath> takes longer than any kernel."""
    folder = tempfile.TemporaryDirectory()
    (Path(folder.name) / "metal_stdlib").write_text(_METAL)
    command = [require_host_compiler(), *_METAL_OPTIONS, "-x", "c++-header", "metal_stdlib"]
    subprocess.run([*command, "-o", "metal_stdlib.gch"], cwd=folder.name, check=True)
    return folder


class MetalRun(PlanRun):
    """As the C++ that Metal is derived from, by the host's compiler: one thread after another."""

    def build(self, source: str) -> None:
        compiler, header = require_host_compiler(), _metal_stdlib().name
        text = source + "".join(map(_loop, self.plan["kernels"]))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kernels.cpp").write_text(text)
            command = [compiler, *_METAL_OPTIONS, "-shared", f"-I{header}"]
            subprocess.run([*command, "kernels.cpp", "-o", "kernels.so"], cwd=folder, check=True)
            self.library = ctypes.CDLL(str(Path(folder) / "kernels.so"))

    def put(self, data: NDArray) -> Any:
        return np.concatenate([data, np.full(MARGIN, _FILLED, np.uint8)])

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int],
        arrays: Sequence[Any], sizes: Sequence[np.generic],
    ) -> None:  # fmt: skip
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        numbers = [ctypes.c_int64(int(size)) for size in sizes]
        getattr(self.library, f"run_{kernel}")(grid[0] * block[0], *pointers, *numbers)

    def get(self, buffer: Any, count: int) -> NDArray:
        assert (buffer[count:] == _FILLED).all(), "a kernel wrote behind an array"
        return buffer[:count]


_C_TYPES = {
    "float32": "float",
    "int64": "long",
    "int32": "int",
    "int8": "char",
    "uint8": "uchar",
    "bool": "bool",
}


def _loop(entry: Mapping[str, Any]) -> str:
    """A C function that calls a kernel for each thread."""
    typed = [
        f"{_C_TYPES[p['type'].rstrip('*')]}{'*' * p['type'].count('*')} a{i}"
        for i, p in enumerate(entry["parameters"])
    ]
    names = "".join(f"a{i}, " for i in range(len(typed)))
    return (
        f'\nextern "C" void run_{entry["name"]}(uint count, {", ".join(typed)}) {{\n'
        f"  for (uint t = 0; t < count; ++t) {entry['name']}({names}t);\n}}\n"
    )


RUNS: Mapping[str, type[PlanRun]] = {"opencl": OpenCLRun, "metal": MetalRun, "webgpu": WebGPURun}
"""The targets that something here may run."""


def run_of(artifact: Path, target: str) -> PlanRun:
    """What an artifact holds, built."""
    kernels = artifact / "kernels"
    (source,) = kernels.glob("kernels.*")
    return RUNS[target](source.read_text(), json.loads((kernels / "launch.json").read_text()))


def weights_of(artifact: Path) -> dict[str, NDArray]:
    """The weights of an artifact."""
    return load_file(artifact / "weights.safetensors")
