"""Compare two models on the same inputs: how their outputs differ, and the tokens they expect next.

Unlike `compare`, which judges two backends of one model by bounds, this reports a change and judges
nothing. May import: tokens, compile, source, backends.base, runtime,
errors.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.compile import compile
from tfgraph.api.tokens import RANKED, TopTokens, top_tokens
from tfgraph.errors import TfgraphError
from tfgraph.runtime.columns import columns
from tfgraph.runtime.examples import complete
from tfgraph.runtime.format import MANIFEST
from tfgraph.runtime.inputs import check_dims, known_names
from tfgraph.runtime.model import load
from tfgraph.runtime.runnable import Runnable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.api.source import Source
    from tfgraph.backends.base import Target

    NDArray = np.ndarray[Any, Any]

_ROWS = 4  # of which the tokens are printed


@dataclass(frozen=True)
class OutputChange:
    """How an output of one model differs from that of the other.

    `max_abs` and `mean_abs` are of the differences, `relative` the root mean square of these over
    that of the first model's output, `cosine` that of the angle between both. None where shapes
    differ, or where it would divide by 0. NaN equals NaN. `top` is of logits and probabilities.
    """

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    max_abs: float | None = None
    mean_abs: float | None = None
    relative: float | None = None
    cosine: float | None = None
    top: tuple[TopTokens, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object in `compare --json`; what is not finite is null."""
        numbers = ("max_abs", "mean_abs", "relative", "cosine")
        given = {name: getattr(self, name) for name in numbers}
        finite = {n: v if v is not None and np.isfinite(v) else None for n, v in given.items()}
        top = [row.to_json() for row in self.top]
        return {"name": self.name, "shapes": list(map(list, self.shapes)), **finite, "top": top}


@dataclass(frozen=True)
class Change:
    """The report of `compare_models`; prints as tables. `only_a` and `only_b` are outputs that the
    other has not, `made` the inputs that were made up."""

    a: str
    b: str
    dims: Mapping[str, int]
    outputs: tuple[OutputChange, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `compare --json` prints."""
        return {
            "a": self.a,
            "b": self.b,
            "dims": dict(self.dims),
            "made": list(self.made),
            "outputs": [output.to_json() for output in self.outputs],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
        }

    def __str__(self) -> str:
        sizes = ", ".join(f"{n}={s}" for n, s in self.dims.items())
        lines = [f"a: {self.a}", f"b: {self.b}"]
        if sizes or self.made:
            made = f"made up: {', '.join(self.made)}" if self.made else ""
            lines.append("; ".join(filter(None, (f"at {sizes}" if sizes else "", made))))
        head = ("output", "shape", "max abs", "mean abs", "relative", "cosine")
        lines += columns([head, *map(_line, self.outputs)], right=(2, 3, 4, 5))
        for output in self.outputs:
            if output.top:
                lines += _top_lines(output)
        for side, names in (("a", self.only_a), ("b", self.only_b)):
            if names:
                lines.append(f"outputs of {side} alone: {', '.join(names)}")
        return "\n".join(lines)


def compare_models(
    a: Source | Runnable,
    b: Source | Runnable,
    inputs: Mapping[str, NDArray] | None = None,
    *,
    target: str | Target = "numpy",
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    threads: int | None = None,
    top: int = 5,
    names: tuple[str, str] | None = None,
) -> Change:
    """Run two models on the same inputs and report how their outputs change from `a` to `b`.

    Each is what `compile` takes, and is compiled for `target`; or an artifact's path, or what
    `compile` or `load` gave, which run as they are. Inputs left out are made by the generators of
    `a`, at sizes that agree with those given and with `dims`, else at its examples. Of outputs
    `logits`, or else `probabilities`, [batch, seq, vocabulary] or [batch, classes], the `top`
    likeliest are given with their probabilities, in a sequence at each row's last position, or the
    last one that an input `attention_mask` says is real. `names` are those in the report. Raises
    TfgraphError where one has an input that the other has not, or of another type.
    """
    with ExitStack() as stack:
        first, second = (_ready(source, target, threads, stack) for source in (a, b))
        _check_ports(first, second)
        given = dict(inputs or {})
        for name in given:
            ports = [port.name for port in first.inputs]
            if name not in ports:
                raise TfgraphError(
                    f"the models have no input '{name}'", hint=known_names(name, ports)
                )
        symbols = {**second.symbols, **first.symbols}
        told = check_dims(dims, symbols)
        feeds, sizes = complete(first.inputs, symbols, (), given, told, seed)
        x, y = (_run(model, feeds, sizes) for model in (first, second))
        shared = [name for name in x if name in y]
        ranked = next((name for name in RANKED if name in shared), None)
        changes: list[OutputChange] = []
        for name in shared:
            change = _change(name, x[name], y[name])
            if name == ranked:
                tokens = top_tokens(name, (x[name], y[name]), (first, second), feeds, top)
                change = replace(change, top=tokens)
            changes.append(change)
        return Change(
            *(names or (first.name, second.name)),
            sizes,
            tuple(changes),
            only_a=tuple(name for name in x if name not in shared),
            only_b=tuple(name for name in y if name not in shared),
            made=tuple(name for name in feeds if name not in given),
        )


def _ready(
    source: Source | Runnable,
    target: str | Target,
    threads: int | None,
    stack: ExitStack,
) -> Runnable:
    """A model that runs; what was opened here is closed with the stack."""
    if isinstance(source, Runnable):
        return source
    if isinstance(source, str | Path) and (Path(source) / MANIFEST).is_file():
        return stack.enter_context(load(source, threads=threads))
    return stack.enter_context(compile(source, target, threads=threads))


def _check_ports(a: Runnable, b: Runnable) -> None:
    """Raise TfgraphError unless both take the same inputs."""
    ours, theirs = ({port.name: port for port in model.inputs} for model in (a, b))
    alone = [
        f"{', '.join(names)} of {side} ({model.name})"
        for side, model, names in (
            ("a", a, [n for n in ours if n not in theirs]),
            ("b", b, [n for n in theirs if n not in ours]),
        )
        if names
    ]
    if alone:
        raise TfgraphError(
            f"the models take different inputs: only one has {' and '.join(alone)}",
            hint="both must take the same inputs to be compared on them",
        )
    for name, port in ours.items():
        other = theirs[name]
        if port.dtype != other.dtype or len(port.shape) != len(other.shape):
            raise TfgraphError(f"the models take different inputs: {port} of a, {other} of b")


def _run(
    model: Runnable, feeds: Mapping[str, NDArray], sizes: Mapping[str, int]
) -> dict[str, NDArray]:
    """The outputs; on copies, since a state is written in place."""
    own = {name: size for name, size in sizes.items() if name in model.symbols}
    return model(dims=own, **{name: np.array(array) for name, array in feeds.items()})


def _change(name: str, x: NDArray, y: NDArray) -> OutputChange:
    shapes = x.shape, y.shape
    if x.shape != y.shape:
        return OutputChange(name, shapes)
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))
        size = float(np.sqrt(np.mean(a * a)))
        norms = float(np.linalg.norm(a) * np.linalg.norm(b))
        relative = float(np.sqrt(np.mean(apart * apart))) / size if size else None
        cosine = float(np.vdot(a, b)) / norms if norms else None
    return OutputChange(name, shapes, float(apart.max()), float(apart.mean()), relative, cosine)


def _line(output: OutputChange) -> tuple[str, ...]:
    """The row of an output in the table."""
    a, b = ("x".join(map(str, shape)) or "scalar" for shape in output.shapes)
    if a != b:
        return output.name, f"{a} and {b}", "", "", "", ""
    numbers = (output.max_abs, output.mean_abs, output.relative)
    shown = ["-" if n is None else f"{n:.2e}" for n in numbers]
    cosine = "-" if output.cosine is None else f"{output.cosine:.6f}"
    return output.name, a, *shown, cosine


def _top_lines(output: OutputChange) -> list[str]:
    """The tokens of the first rows side by side."""
    rows = [("row", "position", "a", "b")]
    for ends in output.top[:_ROWS]:
        for i, (a, b) in enumerate(zip_longest(ends.a, ends.b, fillvalue="")):
            at = "" if ends.position is None else str(ends.position)
            rows.append((str(ends.row), at, str(a), str(b)) if i == 0 else ("", "", str(a), str(b)))
    more = len(output.top) - _ROWS
    rest = [f"  and {more} rows more"] if more > 0 else []
    return [f"likeliest by {output.name}", *columns(rows, (0, 1)), *rest]
