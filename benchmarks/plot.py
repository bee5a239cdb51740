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
    "numpy": "#009E73",
    "numpy-plain": "#CC79A7",
}
MARKERS = dict(zip(COLOURS, "os^vDP", strict=True))
MOST_RATIO = 5.0
"""Longer bars are cut off, and their number is printed."""


def plot_table(results: Sequence[dict[str, Any]], title: str, file: Path) -> None:
    """Bars: each other side's time as a ratio to tfgraph's, with quartiles, by workload."""
    pyplot = _pyplot()
    names = [n for n in COLOURS if n != OURS and any(n in r["sides"] for r in results)]
    step = len(names) + 1.0
    figure, axes = pyplot.subplots(figsize=(8, 0.8 + 0.19 * step * len(results)))
    for i, name in enumerate(names):
        label = name
        for j, result in enumerate(results):
            if name not in result["sides"]:
                continue
            low, middle, high = result["sides"][name]["times_tfgraph"]
            at = j * step + i
            spread = None if middle > MOST_RATIO else [[middle - low], [high - middle]]
            shown = min(middle, MOST_RATIO)
            axes.barh(at, shown, 0.85, color=COLOURS[name], xerr=spread, label=label, capsize=1.5)
            label = "_"
            end = shown if spread is None else min(high, MOST_RATIO)
            axes.text(end + 0.04, at, f"{middle:.2f}", va="center", fontsize=7)
    axes.axvline(1, color=COLOURS[OURS], linewidth=1.2)
    axes.set_xlim(0, MOST_RATIO + 0.4)
    axes.set_yticks([j * step + (len(names) - 1) / 2 for j in range(len(results))])
    axes.set_yticklabels([r["workload"] for r in results])
    axes.invert_yaxis()
    axes.set_xlabel("time / tfgraph's time (the line is tfgraph; longer is slower than it)")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=5, frameon=False, fontsize=8)
    _save(figure, file)


def plot_scaling(results: Sequence[dict[str, Any]], title: str, file: Path) -> None:
    """Two panels of lines, both axes logarithmic: time over length of one sequence, and over how
    many sequences of `LENGTH`. The dotted line is what the operations take at the peak."""
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.6), sharey=True)
    for axes, symbol, label, chosen in (
        (panels[0], "seq", "length (batch 1)", [r for r in results if r["sizes"]["batch"] == 1]),
        (panels[1], "batch", f"batch (length {LENGTH})",
         [r for r in results if r["sizes"]["seq"] == LENGTH]),
    ):  # fmt: skip
        chosen.sort(key=lambda r: r["sizes"][symbol])
        for name, colour in COLOURS.items():
            there = [r for r in chosen if name in r["sides"]]
            if not there:
                continue
            x = [r["sizes"][symbol] for r in there]
            y = [r["sides"][name]["ms"][1] for r in there]
            axes.plot(x, y, color=colour, marker=MARKERS[name], markersize=4, label=name)
        there = [r for r in chosen if r["limit"]]
        least = [r["flops"] / r["limit"] / 1e6 for r in there]
        axes.plot(
            [r["sizes"][symbol] for r in there], least, ":", color="#777777", label="FLOPs at peak"
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([r["sizes"][symbol] for r in chosen])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(label)
        axes.grid(color="#dddddd", linewidth=0.6)
    panels[0].set_ylabel("ms (median)")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    _save(figure, file)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = OURS  # the same numbers give the same file
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, file: Path) -> None:
    figure.savefig(
        file,
        bbox_inches="tight",
        dpi=120,
        metadata={"Date": None} if file.suffix == ".svg" else None,
    )
