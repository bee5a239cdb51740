"""The programs that are compared, each as `SIDE(job)`: a function that runs the model once.

Each imports its runtime itself, so that a worker loads nothing it does not time. All keep what one
call leaves for the next on their own side: outputs lie in arrays made once where a runtime has
such, and keys and values are given where they lie. May import: NumPy, and what a side needs.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, np.dtype[Any]]
Forward = Callable[[], NDArray]

ARTIFACT, WEIGHTS, CONFIG = "artifact", "weights.npz", "numpy.json"
TORCH, GRAPH = ".torch.py", ".tfg"
ALIGNMENT = 64
"""Bytes: a cache line, and a vector of AVX-512."""
OLD_OPSET = 17
"""A version of ONNX's operators that every importer knows: of those with Attention few do."""
PAST = "past."
"""Before the name of keys or values that were computed earlier."""


@dataclass(frozen=True)
class Job:
    """What a side runs. `folder` holds the model: an artifact, ONNX files, weights for NumPy.
    `task` is "forward", the whole model; "prefill", the next token's logits after a prompt; or
    "decode", those after one more token behind it, whose keys and values are inputs. `inputs` is
    a .npz file of all these."""

    folder: Path
    task: str
    inputs: Path
    threads: int

    def arrays(self) -> dict[str, NDArray]:
        """The inputs by name, without keys and values."""
        return {n: a for n, a in self._all().items() if not n.startswith(PAST) and n != "prompt"}

    def past(self) -> dict[str, NDArray]:
        """Keys and values of the prompt by name: `past.layers.0.k` [batch, past, width]."""
        return {n: a for n, a in self._all().items() if n.startswith(PAST)}

    def prompt(self) -> NDArray:
        """The ids [batch, n] that were seen before, of a step: none before a whole prompt."""
        with np.load(self.inputs) as found:
            ids: NDArray = found["prompt"] if "prompt" in found else found["input_ids"][:, :0]
        return ids

    @property
    def onnx(self) -> Path:
        """The ONNX file of the task."""
        return self.folder / f"{self.task}.onnx"

    def graph(self) -> Graph:
        """The graph of the task at the sizes of the inputs; it tells how its weights are made."""
        from tfgraph import parse_graph

        return parse_graph(self.inputs.with_suffix(GRAPH).read_text())

    def export(self, file: Path) -> Graph:
        """Write the graph, which is given, as ONNX of `OLD_OPSET` with its weights."""
        from tfgraph import export_onnx

        graph = self.graph()
        export_onnx(graph, file, opset=OLD_OPSET, check=False)
        return graph

    def _all(self) -> dict[str, NDArray]:
        with np.load(self.inputs) as found:
            return {name: aligned(array) for name, array in found.items()}


def aligned(array: NDArray) -> NDArray:
    """A copy that starts at a multiple of `ALIGNMENT`, so that no side has to make one."""
    space = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -space.ctypes.data % ALIGNMENT
    made = space[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def numpy_side(job: Job, plain: bool = False) -> Forward:
    """numpy_bert.py, numpy_plain.py or numpy_gpt2.py; BLAS takes its threads from the
    environment."""
    sizes = json.loads((job.folder / CONFIG).read_text())
    with np.load(job.folder / WEIGHTS) as found:
        weights = Renamed(found)
        if job.task != "forward":
            import numpy_gpt2

            return _numpy_step(numpy_gpt2.Gpt2(numpy_gpt2.Config(**sizes), weights), job)
        import numpy_bert
        import numpy_plain

        kind = numpy_plain.PlainBert if plain else numpy_bert.Bert
        model: Any = kind(numpy_bert.Config(**sizes), weights)
    given = job.arrays()
    inputs = [given[n] for n in ("input_ids", "attention_mask", "token_type_ids")]
    return lambda: model(*inputs)


def _numpy_step(model: Any, job: Job) -> Forward:
    ids, prompt = job.arrays()["input_ids"][0], job.prompt()[0]
    if len(prompt):
        model.feed(prompt)

    def forward() -> NDArray:
        model.length = len(prompt)
        logits: NDArray = model.feed(ids)[None]
        return logits

    return forward


class Renamed(Mapping[str, NDArray]):
    """Weights by the names that the NumPy programs have; each is read when it is asked for."""

    def __init__(self, found: Mapping[str, NDArray]) -> None:
        self._found = found
        self._names = {_plain(name): name for name in found}

    def __getitem__(self, name: str) -> NDArray:
        return self._found[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _plain(name: str) -> str:
    """A parameter's name in the graph as numpy_bert.py has it."""
    name = name.removeprefix("embeddings.").removeprefix("layers.")
    return name.replace(".attention.", ".").replace(".ffn.", ".")


def tfgraph_side(job: Job, verify_weights: bool = True) -> Forward:
    """The artifact."""
    from tfgraph import load

    model = load(job.folder / ARTIFACT, threads=job.threads, verify_weights=verify_weights)
    inputs: dict[str, Any] = {**job.arrays()}
    if job.task == "forward":
        first = model.outputs[0].name
        return lambda: model(**inputs)[first]
    ids, prompt = inputs["input_ids"], job.prompt()
    state = model.new_state(len(ids))
    if prompt.size:
        state.feed(prompt)

    def forward() -> NDArray:
        state.truncate(prompt.shape[1])
        return state.feed(ids)

    return forward


def onnxruntime_side(job: Job, optimised: bool = True) -> Forward:
    """ONNX Runtime on the file that `tfgraph export` writes: inputs are bound where they lie, and
    outputs where the first run put them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    given = job.arrays() | job.past()
    session = onnxruntime.InferenceSession(str(job.onnx), options, ["CPUExecutionProvider"])
    bound = session.io_binding()
    for name, array in given.items():
        bound.bind_cpu_input(name, array)
    names = [output.name for output in session.get_outputs()]
    for name in names:
        bound.bind_output(name)
    session.run_with_iobinding(bound)
    outputs = bound.get_outputs()
    for name, output in zip(names, outputs, strict=True):
        bound.bind_ortvalue_output(name, output)

    # `given` is bound, not copied: the function keeps it.
    return partial(_run_bound, session, bound, outputs[0], given)


def _run_bound(session: Any, bound: Any, first: Any, given: Any) -> NDArray:
    session.run_with_iobinding(bound)
    found: NDArray = first.numpy()
    return found


def openvino_side(job: Job) -> Forward:
    """OpenVINO on the same file, in float32, set for latency. Sizes are made constant but for the
    tokens that were seen before, which grow by one a step."""
    import openvino

    core: Any = openvino.Core()
    model = core.read_model(job.onnx)
    given = job.arrays() | job.past()
    model.reshape(
        {
            name: [a.shape[0], -1, *a.shape[2:]] if name.startswith(PAST) else list(a.shape)
            for name, a in given.items()
        }
    )
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": job.threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
    }
    request: Any = core.compile_model(model, "CPU", settings).create_infer_request()
    for name, array in given.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return partial(_infer, request, given)


def _infer(request: Any, given: Any) -> NDArray:
    request.infer()
    first: NDArray = request.get_output_tensor(0).data
    return first


def torch_side(job: Job, inductor: bool = False) -> Forward:
    """PyTorch on the code of `torch_code.py`, as it stands or through its compiler."""
    import torch

    torch.set_num_threads(job.threads)
    code: dict[str, Any] = {}
    exec(job.inputs.with_suffix(TORCH).read_text(), code)
    with np.load(job.folder / WEIGHTS) as found:
        weights = {name: torch.from_numpy(found[name]) for name in found}
    constants = code["constants"](weights)
    del weights
    inputs = {n: torch.from_numpy(a) for n, a in (job.arrays() | job.past()).items()}
    run = torch.compile(code["forward"]) if inductor else code["forward"]

    def forward() -> NDArray:
        first: NDArray = run(constants, inputs).numpy()
        return first

    return forward


def _other(module: str, job: Job) -> Forward:
    """A side in a file of its own."""
    forward: Forward = importlib.import_module(module).side(job)
    return forward


def limit_side(job: Job) -> Forward:
    """What no program can beat: multiply-adds that never wait for memory, or of a step reading it.
    Gives how many of them, or how many bytes, a call takes."""
    from tfgraph.backends.tvm.cpu.probe import Probe
    from tfgraph.cache import default_cache, using

    with using(default_cache()):
        probe = Probe(job.threads)
    run, amount = probe.limit("read" if job.task == "decode" else "multiply_add")

    def forward() -> NDArray:
        run()
        return np.array([amount], np.float64)

    return forward


@dataclass(frozen=True)
class Side:
    """A program, the package that it needs, whether it is there for a model and a task, and whether
    it takes part where no sides are named."""

    make: Callable[[Job], Forward]
    package: str
    takes: Callable[[Path, str], bool]
    default: bool = True

    @property
    def installed(self) -> bool:
        """Whether its package is."""
        with suppress(ModuleNotFoundError):  # iree, of which iree.compiler is a part
            return importlib.util.find_spec(self.package) is not None
        return False


def _numpy(folder: Path, task: str) -> bool:
    """What is written for NumPy's programs serves."""
    return (folder / CONFIG).exists()


def _numpy_plain(folder: Path, task: str) -> bool:
    """There is no plain program that generates."""
    return task == "forward" and _numpy(folder, task)


def _any(folder: Path, task: str) -> bool:
    return True


SIDES = {
    "tfgraph": Side(tfgraph_side, "tfgraph", _any),
    "onnxruntime": Side(onnxruntime_side, "onnxruntime", _any),
    "onnxruntime-plain": Side(partial(onnxruntime_side, optimised=False), "onnxruntime", _any),
    "openvino": Side(openvino_side, "openvino", _any),
    "torch": Side(torch_side, "torch", _any),
    "torch-inductor": Side(partial(torch_side, inductor=True), "torch", _any),
    "jax": Side(partial(_other, "jax_side"), "jax", _any),
    "iree": Side(partial(_other, "iree_side"), "iree.compiler", _any),
    "ctranslate2": Side(partial(_other, "ctranslate2_side"), "ctranslate2", _numpy),
    "tvm": Side(partial(_other, "tvm_side"), "tvm", _any, default=False),
    "numpy": Side(numpy_side, "numpy", _numpy),
    "numpy-plain": Side(partial(numpy_side, plain=True), "numpy", _numpy_plain),
    "limit": Side(limit_side, "tfgraph", _any),
    "tfgraph-unverified": Side(
        partial(tfgraph_side, verify_weights=False), "tfgraph", _any, default=False
    ),
}
"""By the name that tables and `--sides` have; the last is for `--start` alone."""
