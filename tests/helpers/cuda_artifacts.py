"""Small models for the emulated GPU, and Python run in a process that has one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cuda_emulator.driver.build import environment
from helpers.processes import python

_BASE = (
    "layers: 1\nwidth: 16\nheads: 2\nvocabulary: 30\n"
    "symbols: {batch: {max: 3, example: 2}, seq: {max: 40, example: 7}}\n"
)
_DECODER = _BASE + "kind: decoder\nhead: lm\n"
MODELS = {
    "encoder": _BASE + "kind: encoder\nmask: padding\nembedding: {token_types: 2}\n",
    "decoder": _DECODER + "positions: {kind: learned, max: 40}\nmask: [causal, padding]\n",
    "llama": _DECODER.replace("width: 16\nheads: 2", "width: 32\nheads: 4")
    + "kv_heads: 2\npositions: {kind: rotary, base: 100}\n"
    "norm: {kind: rms_norm, placement: pre}\ngated: true\nactivation: silu\nbias: false\n",
    "encoder-decoder": _BASE.replace("seq: {", "target: {max: 40, example: 5}, seq: {")
    + "kind: encoder-decoder\nhead: lm\nmask: padding\npositions: sinusoidal\n",
}
ROUNDINGS = 7 * 32 + 40
"""Of these models in a row: seven sums along the width, at most, and one over the keys."""
BUILD = """
import sys
from pathlib import Path
import tfgraph
folder = Path(sys.argv[1])
for file in sorted(folder.glob("*.yaml")):
    report = tfgraph.build(file, "cuda", folder / f"{file.stem}.tfgraph", prove=False)
    print(file.stem, report.verification.ok, report.verification.reason)
"""


def on_gpu(cuda: Path, code: str, *args: object, **env: str) -> str:
    """What `code` prints in a process with the emulated GPU. Fails where it fails."""
    return python(code, *map(str, args), timeout=600, **environment(cuda, **env))


def done(log: Path, kind: str) -> Counter[str]:
    """What the driver's log tells of that kind: how often each thing was done."""
    lines = [line.partition(" ") for line in log.read_text().splitlines()]
    return Counter(rest for first, _, rest in lines if first == kind)
