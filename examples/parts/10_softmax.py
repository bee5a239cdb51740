"""Softmax: any numbers become weights that sum to 1."""

import numpy as np
from running import Both
from showing import claim, show, table

import tfgraph
from tfgraph.ops import softmax

INF, NAN = np.inf, np.nan
ROWS = {
    "plain": [1, 2, 4, 3],
    "huge": [1e4, 9999, -1e4, 0],
    "-inf": [1, -INF, 2, -INF],
    "+inf": [1, INF, 2, 3],
    "NaN": [1, NAN, 2, 3],
    "all -inf": [-INF, -INF, -INF, -INF],
}
TEMPERATURES = (4, 2, 1, 0.5, 0.125, 0.03125)

with tfgraph.graph("softmax") as g:
    x = g.input("x", "f32", "rows", 4)
    g.output("y", softmax(x))
    show(g)
    for t in TEMPERATURES:
        g.output(f"at {t}", softmax(x * (1 / t)))

found = Both(g)(x=np.array(list(ROWS.values()), np.float32))
y = found["y"]
table("softmax", range(4), ROWS, y)
claim("rows sum to 1, also those of 1e4", abs(y[:, :3].sum(-1) - 1) < 1e-6)
claim("-inf weighs exactly 0", y[:, 2, [1, 3]] == 0)
claim("+inf and NaN make the whole row NaN, as in ONNX", np.isnan(y[:, 3:5]))
claim("a row that may attend to nothing gives zeros, where ONNX has NaN", y[:, 5] == 0)
cold = np.stack([found[f"at {t}"][:, 0] for t in TEMPERATURES], 1)
table(f"softmax({ROWS['plain']} / temperature)", range(4), TEMPERATURES, cold)
claim(
    "as the temperature goes to 0 it is the one-hot argmax", abs(cold[:, -1] - [0, 0, 1, 0]) < 1e-9
)
