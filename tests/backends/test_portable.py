"""Artifacts of OpenCL, Metal and WebGPU: what they hold, what runs, what is refused and where."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.checkpoints import CASES, import_model, reference
from helpers.portable_run import RUNS, run_of, weights_of
from helpers.small_model import small_model
from helpers.tolerance import TRANSFORMERS, assert_within

import tfgraph
from tfgraph import ops
from tfgraph.backends.base import Target
from tfgraph.backends.tvm.portable.languages import LANGUAGES
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.ir import as_dim

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ops import Builder

TARGETS = tuple(LANGUAGES)


def build(
    graph: Any, target: str, folder: Path, weights: Any = None, passes: str | None = None
) -> Path:
    """The artifact, not verified."""
    place = folder / f"{target}.tfgraph"
    made = tfgraph.build(graph, Target(target), place, weights=weights, passes=passes, check=False)
    assert made.artifact is not None
    return made.artifact


@pytest.mark.parametrize("target", sorted(RUNS))
@pytest.mark.parametrize(
    "case",
    [
        *("bert", "llama", "gpt_neox", "mistral"),
        *(
            pytest.param(case, marks=pytest.mark.long)
            for case in ("gptj", "modernbert", "phi", "qwen2", "qwen3")
        ),
    ],
)
def test_models_against_what_transformers_computes(case: str, target: str, tmp_path: Path) -> None:
    """An encoder; decoders with a causal mask, a window, grouped heads, rotary positions."""
    model = import_model(CASES / case, tmp_path / "model.yaml", hidden_states=True)
    artifact = build(model.graph, target, tmp_path, model.weights)
    inputs = reference(case, "in")
    if case == "bert":
        inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    real = inputs["attention_mask"].astype(bool)
    batch, seq = real.shape
    got = run_of(artifact, target)(inputs | weights_of(artifact), {"batch": batch, "seq": seq})
    want = reference(case, "out") | reference(case, "hidden")
    assert got.keys() == want.keys()
    for name, expected in want.items():
        rows = real if expected.shape[:2] == real.shape else slice(None)
        assert_within(got[name][rows], expected[rows], TRANSFORMERS, name)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The small model for each target; a symbol has a name that all three languages use."""
    folder = tmp_path_factory.mktemp("portable")
    return {target: build(small_model(), target, folder) for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS)
def test_an_artifact_holds_source_and_a_plan(target: str, artifacts: dict[str, Path]) -> None:
    language, kernels = LANGUAGES[target], artifacts[target] / "kernels"
    assert {p.name for p in kernels.iterdir()} == {language.file, "launch.json"}
    text = (kernels / language.file).read_text()
    code = re.sub(r"//.*", "", text)
    for pair in ("()", "{}", "[]"):
        assert code.count(pair[0]) == code.count(pair[1])
    plan = json.loads((kernels / "launch.json").read_text())
    names = Counter(re.findall(r"(?:\bvoid|\bfn) (\w+_kernel(?:_\d+)?)\(", code))
    assert names == Counter(entry["name"] for entry in plan["kernels"])
    assert {launch["kernel"] for launch in plan["launches"]} == set(names)
    # Whatever is read was given or made by a launch before.
    known = {name for name, array in plan["arrays"].items() if array["from"] != "made"}
    assert {n for n, a in plan["arrays"].items() if a["from"] == "weight"} == set(
        weights_of(artifacts[target])
    )
    entries = {entry["name"]: entry for entry in plan["kernels"]}
    for launch in plan["launches"]:
        pairs = list(zip(entries[launch["kernel"]]["parameters"], launch["arguments"], strict=True))
        arrays = [(p, a) for p, a in pairs if p["type"].endswith("*")]
        assert all(a in plan["sizes"] for p, a in pairs if (p, a) not in arrays)
        assert all(a in known for p, a in arrays if re.search(r"(^|_)x\d+$", p["name"]))
        known |= {a for _, a in arrays}
    assert {output["array"] for output in plan["outputs"].values()} <= known
    assert "%" not in code.replace(" % ", "")  # values of the graph stand in comments alone
    assert re.search(r"// softmax: .*\n// Computes.*\n//   %\S+ = softmax\(", text)


def test_wgsl_has_neither_wide_integers_nor_infinities(artifacts: dict[str, Path]) -> None:
    text = (artifacts["webgpu"] / "kernels" / "kernels.wgsl").read_text()
    code = re.sub(r"//.*", "", text)
    assert not re.search(r"\b(i64|u64|long|int64|inf|INFINITY|nan|f64)\b", code)
    plan = json.loads((artifacts["webgpu"] / "kernels" / "launch.json").read_text())
    assert {a["dtype"] for a in plan["arrays"].values()} <= {"float32", "int32", "uint32"}


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_bytes_again(target: str, artifacts: dict[str, Path], tmp_path: Path) -> None:
    again = build(small_model(), target, tmp_path)
    for path in sorted(artifacts[target].rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (again / path.relative_to(artifacts[target])).read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_runs_here(target: str, artifacts: dict[str, Path]) -> None:
    with pytest.raises(
        MissingTool, match=f"compiled for {target}, which this version does not run"
    ) as error:
        tfgraph.load(artifacts[target])
    assert error.value.hint is not None
    with pytest.raises(MissingTool, match="does not run it") as error:
        tfgraph.compile(small_model(), target)
    assert f"--target {target}" in str(error.value.hint)


@pytest.mark.parametrize("name", ["kernel", "global", "fn", "thread", "x0", "element", "half", "é"])
@pytest.mark.parametrize("target", sorted(RUNS))
def test_a_size_may_have_any_name(name: str, target: str, tmp_path: Path) -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", name, 300)
        g.output("y", ops.sum_(ops.exp(x), axis=0))
    x = np.random.default_rng(3).standard_normal((5, 300)).astype(np.float32)
    got = run_of(build(g.build(), target, tmp_path), target)({"x": x}, {name: 5})["y"]
    assert_within(got, np.exp(x.astype(np.float64)).sum(0), 1e-5)


@pytest.mark.parametrize("target", sorted(RUNS))
def test_views_constants_and_results_of_all_types(target: str, tmp_path: Path) -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", "n", 4)
        twice = ops.reshape(ops.reshape(x, shape=("n", 2, 2)), shape=(4 * as_dim("n"),))
        g.output("given", twice)
        g.output("same", x)
        g.output("made", ops.reshape(ops.exp(twice), shape=("n", 4)))
        picked = ops.iota(length=2)  # int64, known when the artifact is made
        g.output("rows", ops.take(x, ops.add(picked, 1), axis=1))
        g.output("constant", picked)
        g.output("large", ops.less(0, x))
        g.output("places", ops.topk(x, k=2)[1])
    x = np.random.default_rng(5).standard_normal((3, 4)).astype(np.float32)
    artifact = build(g.build(), target, tmp_path, passes="dce")  # which merges no reshapes
    got = run_of(artifact, target)({"x": x} | weights_of(artifact), {"n": 3})
    want = {"given": x.reshape(-1), "same": x, "rows": x[:, 1:3], "constant": np.arange(2)}
    want |= {"large": x > 0, "places": np.argsort(-x, kind="stable")[:, :2]}
    for name, expected in want.items():
        np.testing.assert_array_equal(got[name], expected, name)
    assert_within(got["made"], np.exp(x.astype(np.float64)), 1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_integers_are_computed_where_they_are_read(target: str, tmp_path: Path) -> None:
    """By the kernel that takes rows, within the arrays that the language gives it."""
    rng = np.random.default_rng(6)
    for count, launches in ((2, 1), (9, 4 if target == "webgpu" else 1)):
        with tfgraph.graph("g") as g:
            terms = [g.input(f"i{n}", "i32", "n") for n in range(count)]
            g.output("y", ops.take(g.input("x", "f32", 20, 4), reduce(ops.add, terms)))
        artifact = build(g.build(), target, tmp_path / str(count))
        plan = json.loads((artifact / "kernels" / "launch.json").read_text())
        assert len(plan["launches"]) == launches
        most = LANGUAGES[target].most_arrays
        for kernel in plan["kernels"]:
            assert sum(p["type"].endswith("*") for p in kernel["parameters"]) <= most
        given = {f"i{n}": rng.integers(0, 3, 5).astype(np.int32) for n in range(count)}
        x = rng.standard_normal((20, 4)).astype(np.float32)
        if target in RUNS:
            got = run_of(artifact, target)({"x": x} | given, {"n": 5})["y"]
            np.testing.assert_array_equal(got, x[sum(given.values())])


def _halves(g: Builder) -> Any:
    return ops.exp(g.input("x", "f16", "n"))


def _bytes(g: Builder) -> Any:
    return ops.add(g.input("x", "i8", "n"), 1)


def _wide(g: Builder) -> Any:
    return ops.mul(g.input("x", "i64", "n"), g.input("y", "i64", "n"))


def _from_floats(g: Builder) -> Any:
    return ops.cast(g.input("x", "f32", "n"), dtype="i64")


def _constant(g: Builder) -> Any:
    return ops.less(g.input("x", "i64", "n"), 2**40)


def _nine(g: Builder) -> Any:
    part = tfgraph.dense(g.input("m0", "bool", "n", "n"))
    for i in range(1, 8):
        part = part & tfgraph.dense(g.input(f"m{i}", "bool", "n", "n"))
    return ops.mask(g.input("x", "f32", "n", "n"), part)


REFUSED: dict[str, tuple[Callable[[Builder], Any], tuple[str, ...], str]] = {
    "float16": (_halves, TARGETS, "%x is float16, for which the TARGET backend has no kernels"),
    "int8": (_bytes, ("webgpu",), "%x is int8, for which the webgpu backend has no kernels"),
    "products": (_wide, ("webgpu",), r"may be from -\d+ to \d+, and WGSL has integers of 32 bits"),
    "casts": (_from_floats, ("webgpu",), "nothing is known of how large %.* may be, and WGSL"),
    "literals": (_constant, ("webgpu",), "WGSL cannot compute less: 1099511627776 has more than"),
    "arrays": (_nine, ("webgpu",), "mask: a kernel would read and write more than 8 arrays"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_language_cannot_say_is_refused_at_its_place(name: str, tmp_path: Path) -> None:
    make, targets, message = REFUSED[name]
    for target in TARGETS:
        with tfgraph.graph("g") as g:
            g.output("y", make(g))
        if target not in targets:
            build(g.build(), target, tmp_path)
            continue
        with pytest.raises(TfgraphError, match=message.replace("TARGET", target)) as error:
            build(g.build(), target, tmp_path)
        assert error.value.exit_code == 2
        where = error.value.location
        assert where is not None
        assert Path(where.file).name == Path(__file__).name


def test_sums_of_flags_fit_where_the_length_is_bounded(tmp_path: Path) -> None:
    """Positions that count real tokens, as RoBERTa's do."""
    for high, fits in ((4096, True), (2**32, False)):
        with tfgraph.graph("g") as g:
            g.symbol("n", 1, high)
            kept = ops.cast(g.input("keep", "bool", "n"), dtype="i64")
            g.output("y", ops.cumsum(kept, axis=0))
        if fits:
            build(g.build(), "webgpu", tmp_path)
            continue
        with pytest.raises(TfgraphError, match="may be from 0 to 4294967296"):
            build(g.build(), "webgpu", tmp_path)
