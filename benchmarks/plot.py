"""The plots, with matplotlib: the table's ratios, and time over length and batch. May import:
report, scaling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import OURS
from scaling import LENGTH

# Okabe and Ito 2008: told apart with any colour vision. A side keeps its colour in every plot.
COLOURS = {
    OURS: "#000000",
    "openvino": "#0072B2",
    "onnxruntime": "#D55E00",
    "onnxruntime-plain": "#E69F00",
    "torch": "#56B4E9",
    "torch-inductor": "#F0E442",
    "numpy": "#009E73",
    "numpy-plain": "#CC79A7",
}
MARKERS = dict(zip(COLOURS, "os^vXdDP", strict=True))
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
"""A number, where it stands on a line."""
MOST_RATIO = 5.0
"""Longer bars are cut off, and their number is printed."""


def plot_table(results: Sequence[dict[str, Any]], title: str, file: Path) -> None:
    """Bars: each other side's time as a ratio to tfgraph's, with quartiles, by workload."""
    pyplot = _pyplot()
    bars = [
        (at, name, result["sides"][name]["times_tfgraph"]) for at, name, result in _places(results)
    ]
    height = max(at for at, _, _ in bars) + 1
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.17 * height), layout="constrained")
    for at, name, (low, middle, high) in bars:
        axes.barh(at, min(middle, MOST_RATIO), 0.85, color=COLOURS[name], label=name)
        if high <= MOST_RATIO:
            axes.plot([low, high], [at, at], color="#000000", linewidth=1)
        end = min(high, MOST_RATIO)
        axes.text(end + 0.04, at, f"{middle:.2f}", va="center", fontsize=7, bbox=BEHIND)
    axes.axvline(1, color=COLOURS[OURS], linewidth=1.2)
    axes.set_xlim(0, MOST_RATIO + 0.4)
    axes.set_ylim(height, -1)
    of = {r["workload"]: [at for at, _, found in _places(results) if found is r] for r in results}
    axes.set_yticks([sum(at) / len(at) for at in of.values() if at])
    axes.set_yticklabels([name for name, at in of.items() if at])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time / tfgraph's time; the line is tfgraph, what is longer is slower than it")
    axes.spines[["top", "right"]].set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    ordered = [name for name in COLOURS if name in once]
    figure.legend(
        [once[n] for n in ordered], ordered, loc="outside upper center", ncols=5, frameon=False,
        fontsize=8, title=title, title_fontsize=9,
    )  # fmt: skip
    _save(figure, file)


def _places(results: Sequence[dict[str, Any]]) -> list[tuple[float, str, dict[str, Any]]]:
    """Where each bar stands: a workload's side by side, and a gap behind."""
    found: list[tuple[float, str, dict[str, Any]]] = []
    at = 0.0
    for result in results:
        for name in COLOURS:
            if name != OURS and name in result["sides"]:
                found.append((at, name, result))
                at += 1
        at += 1
    return found


def plot_scaling(results: Sequence[dict[str, Any]], title: str, file: Path) -> None:
    """Time over length of one sequence, and over how many sequences of `LENGTH`; below it the share
    of the machine's peak at which the operations were done. The dotted line is what they take at
    the peak."""
    figure, panels = _pyplot().subplots(
        2, 2, figsize=(9, 6.4), sharex="col", sharey="row", layout="constrained"
    )
    lengths = [r for r in results if r["sizes"]["batch"] == 1]
    batches = [r for r in results if r["sizes"]["seq"] == LENGTH]
    _draw_scaling(panels[:, 0], lengths, "seq", "length (batch 1)")
    _draw_scaling(panels[:, 1], batches, "batch", f"batch (length {LENGTH})")
    panels[0, 0].set_ylabel("ms (median)")
    panels[1, 0].set_ylabel("% of the peak of multiply-adds")
    panels[1, 0].set_ylim(0, 100)
    panels[0, 0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    _save(figure, file)


def _draw_scaling(panels: Any, results: Sequence[dict[str, Any]], symbol: str, label: str) -> None:
    """A column of panels: time, and share of the peak."""
    times, shares = panels
    results = sorted(results, key=lambda r: int(r["sizes"][symbol]))
    for name, colour in COLOURS.items():
        there = [r for r in results if name in r["sides"]]
        x = [r["sizes"][symbol] for r in there]
        y = [r["sides"][name]["ms"][1] for r in there]
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[name], "markersize": 4}
        if there:
            times.plot(x, y, label=name, **style)
        if there and all(r["limit"] for r in there):
            rate = [r["flops"] / ms / 1e6 for r, ms in zip(there, y, strict=True)]
            shares.plot(
                x, [100 * g / r["limit"] for g, r in zip(rate, there, strict=True)], **style
            )
    known = [r for r in results if r["limit"]]
    least = [r["flops"] / r["limit"] / 1e6 for r in known]
    if known:
        times.plot(
            [r["sizes"][symbol] for r in known], least, ":", color="#666666", label="at the peak"
        )
    times.set_xscale("log", base=2)
    times.set_yscale("log")
    times.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    shares.set_xticks([r["sizes"][symbol] for r in results])
    shares.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    shares.tick_params(axis="x", labelsize=8)
    shares.set_xlabel(label)
    for axes in panels:
        axes.grid(color="#dddddd", linewidth=0.6)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = OURS  # the same numbers give the same file
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, file: Path) -> None:
    dated = {"metadata": {"Date": None}} if file.suffix == ".svg" else {}
    figure.savefig(file, dpi=120, **dated)
