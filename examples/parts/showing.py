"""How the parts print: a graph before and after the passes, numbers, what they show."""

import sys
import textwrap

import numpy as np

from tfgraph import print_graph
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline


def show(builder):
    """The graph before and after the passes."""
    graph = builder.build()
    fused, _ = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))
    before, after = print_graph(graph), print_graph(fused)
    same = "nothing to fuse: the same"
    shown = same if before == after else after.partition("weights {")[0]
    for when, text in (("before", before), ("after", shown)):
        print(f"-- the graph {when} the passes")
        for line in text.splitlines():
            print(textwrap.fill(line, 98, subsequent_indent=" " * 6, break_on_hyphens=False))


def table(title, columns, rows, numbers, digits=3):
    """Numbers [rows, columns]; or [2, rows, columns] of both backends: those of NumPy, and how far
    from them those of the CPU are."""
    numbers = np.asarray(numbers)
    print(f"-- {title}" + (f" (NumPy; CPU {within(*numbers)})" if numbers.ndim == 3 else ""))
    print(" " * 14 + "".join(f"{column:>10}" for column in columns))
    one = numbers[0] if numbers.ndim == 3 else numbers
    for name, row in zip(rows, np.round(one, digits) + 0.0, strict=True):
        print(f"{name:>14}" + "".join(f"{number:10.{digits}f}" for number in row))


def far(a, b):
    """The largest difference of a and b."""
    with np.errstate(invalid="ignore"):
        return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, abs(np.subtract(a, b))).max()


def within(a, b):
    """A power of ten, 1e-05 or more, that the difference of a and b does not exceed."""
    return f"<= {10.0 ** max(-5, np.ceil(np.log10(far(a, b) + 1e-30))):.0e}"


def claim(text, holds, number=""):
    """What the numbers show; the program ends unless it holds, on both backends."""
    print(f"{'=>' if np.all(holds) else 'NOT SO:'} {text:<83}{number:>12}".rstrip())
    if not np.all(holds):
        sys.exit(1)


def alike(text, a, b):
    """Claim that a and b are equal but for rounding."""
    claim(text, far(a, b) <= 1e-5, within(a, b))
