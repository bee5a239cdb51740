"""`load`: an artifact as a callable. Checks what it is given, then runs the compiled program.

    model = tfgraph.load("encoder.cpu.tfgraph")
    outputs = model(input_ids=ids, attention_mask=mask)

May import: numpy, the other files of runtime, errors.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.runtime import format as layout
from tfgraph.runtime.cores import cpu_flags
from tfgraph.runtime.inputs import check_inputs
from tfgraph.runtime.jit import Program, as_tensor
from tfgraph.runtime.memory import refuse_absurd
from tfgraph.runtime.runnable import Runnable
from tfgraph.runtime.sizes import Port, SymbolRange, evaluate
from tfgraph.runtime.tensors import map_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    Array = np.ndarray[Any, np.dtype[Any]]


log = logging.getLogger("tfgraph")


class Model(Runnable):
    """A loaded artifact. Any number of threads may call it; outputs belong to the caller."""

    def __init__(
        self, path: str | Path, threads: int | None = None, verify_weights: bool = True
    ) -> None:
        """Load the artifact at `path`; see `load`."""
        self.path = Path(path)
        self.manifest = layout.read_manifest(self.path)
        self.name: str = self.manifest["name"]
        self.target: str = self.manifest["target"]
        self.inputs = tuple(_port(p) for p in self.manifest["inputs"])
        self.outputs = tuple(_port(p) for p in self.manifest["outputs"])
        self.symbols = {
            name: SymbolRange(s["min"], s["max"], s["example"])
            for name, s in self.manifest["symbols"].items()
        }
        if self.target != "cpu":
            made_for = " ".join(filter(None, (self.target, self.manifest.get("arch"))))
            raise MissingTool(
                f"{self.path}: compiled for {made_for}, which cannot run here: no CUDA device",
                hint="compile with --target cpu, or see `tfgraph doctor`",
            )
        self._check_cpu()
        verification = self.manifest.get("verification")  # absent while it is verified
        if verification is not None and verification["ok"] is False:
            log.warning("%s failed its verification: %s", self.path, verification["reason"])
        files: dict[str, str] = self.manifest["files"]
        objects: list[bytes] = []
        for name, sha256 in files.items():
            if name.endswith(".o"):
                objects.append(layout.read_checked(self.path, name, sha256))
            elif name != layout.WEIGHTS or verify_weights:
                layout.check_file(self.path, name, sha256)
        self._program: Program | None = Program(objects, threads)
        tensors = map_tensors(self.path / layout.WEIGHTS)
        self._weights = [as_tensor(tensors[w["name"]]) for w in self.manifest["weights"]]

    def __call__(self, *, dims: Mapping[str, int] | None = None, **inputs: Any) -> dict[str, Array]:
        """Run the model on arrays by input name; the outputs by name.

        `dims` gives the sizes of symbols that no input's shape tells. Raises TfgraphError for a
        wrong or missing name, dtype, shape, size or id, and where memory does not suffice.
        """
        if self._program is None:
            raise TfgraphError(f"model {self.name} is closed")
        arrays, sizes = check_inputs(
            self.inputs, self.symbols, self.manifest["constraints"], inputs, dims
        )
        refuse_absurd(evaluate(self.manifest.get("memory", 0), sizes), self.name, sizes)
        scalars = [sizes[name] for name in self.manifest["scalars"]]
        results = self._program.call("main", [*arrays.values(), *scalars, *self._weights])
        return {port.name: r for port, r in zip(self.outputs, results, strict=True)}

    def close(self) -> None:
        """Free the code and the mapping of the weights."""
        if self._program is not None:
            self._program.close()
        self._program = None
        self._weights = []

    def _check_cpu(self) -> None:
        missing = set(self.manifest["cpu"]["features"]) - cpu_flags()
        if missing:
            raise MissingTool(
                f"{self.path}: compiled for {self.manifest['cpu']['mcpu']}; this CPU has no "
                f"{', '.join(sorted(missing))}",
                hint="compile it here, or with --mcpu",
            )


def load(path: str | Path, threads: int | None = None, verify_weights: bool = True) -> Model:
    """Load an artifact.

    `threads`: kernels use as many; by default the physical cores that this process may use. Every
    file is hashed before it is used, the weights unless `verify_weights` is False. Raises
    TfgraphError for a damaged artifact, naming the file, and MissingTool where the machine lacks
    what the code needs.
    """
    return Model(path, threads, verify_weights)


def _port(entry: Mapping[str, Any]) -> Port:
    return Port(
        entry["name"],
        entry["dtype"],
        tuple(entry["shape"]),
        entry.get("generator", ""),
        entry.get("limit"),
    )
