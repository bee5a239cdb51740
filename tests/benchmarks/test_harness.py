"""`make bench` on models of a few numbers: that its sides compute the same, that it counts what
they do, and that it prints what it measured. Times are not looked at."""

from __future__ import annotations

import json
import math
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import GELU, assert_close, assert_within

import tfgraph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("onnxruntime")

FOLDER = Path(__file__).parents[2] / "benchmarks"
SYMBOLS = "symbols: {batch: {min: 1, max: 4, example: 1}, seq: {min: 1, max: 12, example: 5}}\n"
ENCODER = """
kind: encoder
layers: 1
width: 16
heads: 2
ffn: 24
activation: gelu
norm: {kind: layer_norm, placement: post, eps: 1e-12}
positions: {kind: learned, max: 12}
embedding: {token_types: 2, norm: true}
mask: padding
vocabulary: 40
"""
DECODER = """
kind: decoder
layers: 1
width: 16
heads: 2
kv_heads: 1
ffn: 24
activation: relu
norm: {kind: rms_norm, placement: pre, eps: 1e-5}
positions: {kind: rotary, max: 12}
vocabulary: 40
head: {kind: lm, tied: true}
"""
TIMED = (
    "tfgraph",
    "onnxruntime",
    "onnxruntime-plain",
    "openvino",
    "torch",
    "jax",
    "iree",
    "ctranslate2",
    "tvm",
    "numpy",
    "numpy-plain",
)
ROUNDINGS = 4 * 16 + 24 + 16
"""In a row: the products of a layer, and what they are summed with."""


@pytest.fixture(scope="module")
def bench() -> Iterator[Callable[[str], Any]]:
    """Imports a module of benchmarks/ by its plain name, as the scripts there do."""
    sys.path.insert(0, str(FOLDER))
    yield import_module
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def base(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for artifacts, and small models under the names of large ones, so that NumPy's
    programs take part."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "minilm.yaml").write_text(ENCODER + SYMBOLS)
    (folder / "llama-small.yaml").write_text(DECODER + SYMBOLS)
    bench("prepare").EXAMPLES = folder
    return folder


@pytest.mark.filterwarnings("ignore:Renaming name")  # TVM's importer has no points in names
@pytest.mark.parametrize(
    ("model", "task", "batch"),
    [("minilm", "forward", 2), ("llama-small", "prefill", 2), ("llama-small", "decode", 1)],
)
def test_all_sides_compute_the_model(
    bench: Any, base: Path, model: str, task: str, batch: int
) -> None:
    sides = bench("sides")
    workload = bench("workloads").Workload(f"w-{task}", model, {"batch": batch, "seq": 6}, task)
    ready = bench("prepare").make_ready(workload, base)
    places = ready.sides(TIMED)
    assert {"tfgraph", "onnxruntime", "onnxruntime-plain", "tvm"} <= set(places)
    assert ("numpy" in places) == ("numpy-plain" in places) == (model == "minilm")
    job = sides.Job(ready.folder, task, ready.inputs, 1)
    given = job.arrays()
    assert all(array.ctypes.data % 64 == 0 for array in given.values())
    if task != "forward":
        given["input_ids"] = np.concatenate([job.prompt(), given["input_ids"]], axis=1)
    with tfgraph.compile(base / f"{model}.yaml", "numpy") as reference:
        expected = next(iter(reference(**given).values()))
    if task != "forward":
        expected = expected[:, -1]
    for side in places:
        forward = sides.SIDES[side].make(job)
        for _ in range(2):  # the second time over what the first left
            if side.startswith("numpy"):
                assert_within(forward(), expected, 4 * GELU, side)  # behind a product and a norm
            else:
                assert_close(forward(), expected, length=ROUNDINGS, dtype="float32", name=side)


def test_what_is_printed_is_what_was_measured(
    bench: Any,
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "found.json"
    monkeypatch.setattr(bench("measure"), "BURST_SECONDS", 0.001)
    options = ["minilm-1x128", "--sides", "tfgraph,onnxruntime", "--rounds", "2", "--threads", "1"]
    monkeypatch.setitem(
        bench("run").WORKLOADS, "minilm-1x128", bench("workloads").encoder("minilm", 1, 7)
    )
    monkeypatch.setattr(
        sys, "argv", ["run.py", *options, "--folder", str(base), "--json", str(file)]
    )
    bench("run").main()
    (found,) = json.loads(file.read_text())["results"]
    assert found["sizes"] == {"batch": 1, "seq": 7}
    assert found["best"] == "onnxruntime"
    assert 0 < found["max_abs_difference"] < 1e-4
    ours, theirs = (found["sides"][side] for side in ("tfgraph", "onnxruntime"))
    assert ours["rate"] == pytest.approx(found["flops"] / ours["ms"][1] / 1e6)
    low, _, high = found["tfgraph_to_best"]
    assert low * theirs["ms"][0] <= ours["ms"][2]
    assert high * theirs["ms"][2] >= ours["ms"][0]
    printed = capsys.readouterr().out
    assert f"| minilm-1x7 | tfgraph | {ours['ms'][1]:.2f} (" in printed
    assert f"{found['tfgraph_to_best'][1]:.2f} times the best other's time" in printed


def test_plain_tvm_is_timed_where_it_is_named(bench: Any) -> None:
    run = bench("run")
    assert "tvm" not in run.arguments([]).sides
    assert run.arguments(["--sides", "tfgraph,tvm"]).sides == ["tfgraph", "tvm"]


def test_a_slow_call_is_timed_alone(bench: Any) -> None:
    count = 0

    def forward() -> Any:
        nonlocal count
        count += 1
        return np.zeros(1)

    for calls, made in ((1, 1), (3, 4)):  # with one before several
        count = 0
        found = bench("worker").burst(forward, calls)
        assert (count, len(found["wall"])) == (made, calls)


def test_a_side_whose_package_is_missing(bench: Any) -> None:
    """A part of a package that is missing as a whole, too."""
    sides = bench("sides")
    for package in ("no_such_package", "no_such_package.part"):
        assert not sides.Side(print, package, print).installed
    assert sides.Side(print, "onnx.helper", print).installed


def test_outputs_that_differ_end_it(bench: Any) -> None:
    one = np.zeros((2, 3), np.float32)
    difference = bench("measure").difference
    assert difference("w", {"a": one, "b": one + np.float32(5e-4)}) == pytest.approx(5e-4)
    for other in (one + 1, one[:1], one + np.float32(np.nan)):
        with pytest.raises(SystemExit, match=r"outputs (differ|have other shapes)"):
            difference("w", {"a": one, "b": other})


def test_exact_sizes(bench: Any, base: Path) -> None:
    graph = bench("prepare").open_model("minilm").graph
    exact = bench("graphs").at_sizes(graph, {"batch": 1, "seq": 7})
    assert not exact.symbols
    assert all(node.is_static for node in exact.nodes)
    with tfgraph.compile(graph, "numpy") as one, tfgraph.compile(exact, "numpy") as other:
        given = one.example({"batch": 1, "seq": 7})
        expected, found = (model(**given)["last_hidden_state"] for model in (one, other))
    assert np.array_equal(found, expected)


def test_a_step_gives_what_the_next_takes(bench: Any, base: Path) -> None:
    graph = bench("prepare").graph_of(bench("prepare").open_model("llama-small"), "decode")
    with tfgraph.compile(graph, "numpy") as model:
        given = model.example({"batch": 2, "past": 3})
        found = model(**given)
    states = [name for name in found if name != "logits"]
    assert sorted(f"past.{name}" for name in states) == sorted(given.keys() - {"input_ids"})
    for name in states:
        assert found[name].shape[1] == 4
        assert np.array_equal(found[name][:, :3], given[f"past.{name}"])


def test_work_is_that_of_the_formulas(bench: Any, base: Path) -> None:
    prepare, count = bench("prepare"), bench("work").count_work
    width, ffn, n, vocabulary = 16, 24, 7, 40
    encoder = count(prepare.open_model("minilm").graph, {"batch": 3, "seq": n})
    matrices = 4 * width**2 + 2 * width * ffn
    assert encoder.flops == 2 * 3 * n * (matrices + 2 * n * width)

    decoder = prepare.open_model("llama-small")
    matrices = 3 * width**2 + 2 * width * ffn  # one head of keys and values for two of queries
    prompt = count(prepare.graph_of(decoder, "prefill"), {"batch": 1, "seq": n})
    seen = n * (n + 1) // 2
    assert prompt.flops == 2 * n * matrices + 4 * seen * width + 2 * vocabulary * width
    step = count(prepare.graph_of(decoder, "decode"), {"batch": 1, "past": n})
    assert step.flops == 2 * matrices + 4 * (n + 1) * width + 2 * vocabulary * width
    # The head's table is read whole, that of the tokens, which it is, by a row; three norms, a row
    # of cosines and one of sines for each half of a head; keys and values are half as wide.
    read = matrices + vocabulary * width + width + 3 * width
    assert step.bytes >= 4 * (read + 2 * n * width // 2)
    assert step.bytes <= 4 * (read + 2 * n * width // 2 + 12 * width)


def test_workloads_fit_the_models(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every workload, and with the reach of `--scaling`, the sizes are the model's."""
    prepare, workloads = bench("prepare"), bench("workloads")
    monkeypatch.setattr(prepare, "EXAMPLES", workloads.EXAMPLES)
    listed = workloads.WORKLOADS.values()
    graphs = {name: prepare.open_model(name).graph for name in {w.model for w in listed}}
    for workload in listed:
        for name, size in workload.sizes.items():
            symbol = graphs[workload.model].symbol(name)
            assert symbol.low <= size <= symbol.high
    reach = {"batch": 64, "seq": 4096}
    graph = prepare.open_model("minilm", reach).graph
    assert {name: graph.symbol(name).high for name in reach} == reach


def test_geometric_mean(bench: Any) -> None:
    assert bench("report").geometric_mean([0.5, 2, 8]) == pytest.approx(2)
    assert math.isclose(bench("report").geometric_mean([0.7]), 0.7)


def test_starts_are_measured_of_each_side(bench: Any, base: Path) -> None:
    workload = bench("workloads").encoder("minilm", 1, 7)
    sides = ("tfgraph-unverified", "onnxruntime")
    (found,) = bench("start").measure_starts([workload], sides, base, 1, 1)
    assert set(found["sides"]) == set(sides)
    for side in found["sides"].values():
        assert 0 < side["seconds"][1] < 60
        assert 20 < side["peak_mb"] < 1000  # a process with NumPy in it
    assert "| minilm-1x7 | onnxruntime | " in bench("start").start_table([found])


def test_points_of_scaling(bench: Any) -> None:
    made = bench("scaling").points("gpt2", (16, 128), (1, 8))
    assert [(w.name, w.sizes["batch"], w.sizes["seq"], w.task) for w in made] == [
        ("gpt2-prefill-16", 1, 16, "prefill"),
        ("gpt2-prefill-128", 1, 128, "prefill"),
        ("gpt2-prefill-8x128", 8, 128, "prefill"),
    ]


def result(bench: Any, name: str, sizes: dict[str, int], **seconds: list[float]) -> dict[str, Any]:
    """What is printed of bursts that took so long; the limit is 2 GFLOP/s."""
    measure = bench("measure")
    bursts = {
        s.replace("_", "-"): [measure.Burst(t, t, t, 1.0) for t in x] for s, x in seconds.items()
    }
    return bench("report").to_json(
        measure.Result(
            bench("workloads").Workload(name, name, sizes),
            bench("work").Work(10**9, 0),
            bursts,
            3,
            3,
            0.0,
            dict.fromkeys(bursts, 2**20),
            2**20,
            2e9,
        )
    )


def test_the_summary(bench: Any) -> None:
    """Ratios are of rounds, so that what slows a whole round down does not count."""
    made = result(
        bench, "m", {"batch": 1}, tfgraph=[1, 2, 8], openvino=[2, 4, 16], numpy_plain=[4, 6, 24]
    )
    assert made["best"] == "openvino"
    assert made["tfgraph_to_best"] == [0.5, 0.5, 0.5]
    assert made["sides"]["numpy-plain"]["times_tfgraph"] == [3, 3, 3.5]
    assert bench("report").summary([made]).splitlines()[2:] == [
        "| m | 2000.00 (1500.00-5000.00) | 0 GFLOP/s | 25% | openvino | 0.50 (0.50-0.50) "
        "| 2.00 | 3.00 |",
        "",
        "tfgraph takes 0.50 times the best other's time (geometric mean).",
    ]


def test_code_for_pytorch_is_python(bench: Any, base: Path) -> None:
    """Of every op of the workloads; whether it computes the model is tested where PyTorch is."""
    prepare, graphs = bench("prepare"), bench("graphs")
    for model, task, sizes in (
        ("minilm", "forward", {"batch": 1, "seq": 5}),
        ("llama-small", "decode", {"batch": 1, "past": 5}),
    ):
        graph = prepare.graph_of(prepare.open_model(model), task)
        code = bench("torch_code").to_torch(graphs.at_sizes(graph, sizes))
        compile(code, "torch.py", "exec")
        assert code.count("F.scaled_dot_product_attention(") == 1
        assert all(f"x['{i.value.name}']" in code for i in graph.inputs)


def test_plots_show_every_side(bench: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="in the group bench, which is not in the lock")
    seconds = {"tfgraph": [1.0], "openvino": [2.0], "numpy_plain": [40.0]}
    found = [
        result(bench, f"m-{b}x{s}", {"batch": b, "seq": s}, **seconds)
        for b, s in ((1, 16), (1, 128), (2, 128))
    ]
    plot, file = bench("plot"), tmp_path / "p.svg"
    for draw in (plot.plot_table, plot.plot_scaling):
        draw(found, "title", file)
        first = file.read_bytes()
        draw(found, "title", file)
        assert file.read_bytes() == first  # no date, no random names
        assert first.startswith(b"<?xml")
