"""`load`: an artifact as a callable. Checks what it is given, then runs the compiled program.

    model = tfgraph.load("encoder.cpu.tfgraph")
    outputs = model(input_ids=ids, attention_mask=mask)

May import: numpy, the other files of runtime, errors.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, NoReturn

import numpy as np

from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.runtime import format as layout
from tfgraph.runtime.cores import cpu_flags
from tfgraph.runtime.ending import Mapped
from tfgraph.runtime.inputs import check_inputs, refuse_positional
from tfgraph.runtime.jit import Program, as_tensor
from tfgraph.runtime.memory import refuse_absurd
from tfgraph.runtime.outputs import check_out, deliver
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
                f"{self.path}: compiled for {made_for}; this version runs CPU artifacts only",
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
            else:
                hashed = name != layout.WEIGHTS or verify_weights
                layout.check_file(self.path, name, sha256 if hashed else None)
        program = Program(objects, threads, f"model '{self.name}'")
        tensors = map_tensors(self.path / layout.WEIGHTS)
        weights = Mapped([as_tensor(tensors[w["name"]]) for w in self.manifest["weights"]])
        # One attribute, so that a call sees both or, once closed by another thread, neither.
        self._loaded: tuple[Program, Mapped] | None = (program, weights)

    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, Array]:
        """Run the model on arrays by input name; the outputs by name.

        See `Runnable.__call__`. Raises TfgraphError besides where memory does not suffice, where
        the model is closed, and in a process that was forked after it was loaded.
        """
        refuse_positional(unnamed, self.inputs)
        if self._loaded is None:
            raise TfgraphError(f"model '{self.name}' is closed")
        program, weights = self._loaded
        arrays, sizes = check_inputs(
            self.inputs, self.symbols, self.manifest["constraints"], inputs, dims
        )
        places = check_out(self.outputs, sizes, arrays, out)
        refuse_absurd(evaluate(self.manifest.get("memory", 0), sizes), self.name, sizes)
        scalars = [sizes[name] for name in self.manifest["scalars"]]
        results = program.call("main", [*arrays.values(), *scalars, *weights.tensors])
        names = (port.name for port in self.outputs)
        return deliver(zip(names, results, strict=True), places, out)

    def close(self) -> None:
        """Free the code and the mapping of the weights, when the calls under way are done."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded[0].close()

    def __reduce__(self) -> NoReturn:
        raise TfgraphError(
            f"model '{self.name}' cannot be copied or sent to another process",
            hint=f"load {self.path} there",
        )

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

    `threads`: the kernels of a call use as many, from 1 to the CPUs that this process may use; by
    default the physical cores among those, no more than the CPU quota of its control groups pays
    for. As many calls at once as the CPUs are enough for; further ones wait their turn. Every
    file is hashed before it is used, the weights unless `verify_weights` is False. Raises
    TfgraphError for a damaged artifact, naming the file, and MissingTool where the machine lacks
    what the code needs.
    """
    place = _artifact_path(path)
    while True:
        with layout.held(place) as unchanged:
            try:
                model = Model(place, threads, verify_weights)
            except TfgraphError:
                if unchanged():
                    raise
            else:
                if unchanged():
                    return model
                model.close()  # another artifact took its place meanwhile: no files of both


def _artifact_path(given: Any) -> Path:
    """What names an artifact, as a path. Raises TfgraphError for anything else."""
    try:
        path = Path(given)
    except TypeError:
        hint = "os.fsdecode makes one of bytes" if isinstance(given, bytes) else None
        raise TfgraphError(f"load: expected a path, got {given!r:.60}", hint=hint) from None
    if "\0" in str(path):
        raise TfgraphError(f"load: {str(path)!r:.60} is no path: it has a null character")
    return path


def _port(entry: Mapping[str, Any]) -> Port:
    return Port(
        entry["name"],
        entry["dtype"],
        tuple(entry["shape"]),
        entry.get("generator", ""),
        entry.get("limit"),
    )
