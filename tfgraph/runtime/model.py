"""`load`: an artifact as a callable. Checks what it is given, then runs the compiled program.

    model = tfgraph.load("encoder.cpu.tfgraph")
    outputs = model(input_ids=ids, attention_mask=mask)

May import: the other files of runtime, errors.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.runtime import format as layout
from tfgraph.runtime.cores import cpu_flags
from tfgraph.runtime.function import Code, Function, Loaded
from tfgraph.runtime.jit import CodePlace, Program
from tfgraph.runtime.tensors import map_tensors
from tfgraph.runtime.text import TokenRules

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from tfgraph.runtime.jit import Observer

    Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger("tfgraph")


@dataclass(frozen=True)
class StoredWeight:
    """A weight of an artifact in its layout, and the names of the model's that it is made of."""

    name: str
    layout: str
    sources: tuple[str, ...]
    array: Array


class Model(Function):
    """A loaded artifact: its `main`, and in `functions` the others that the model has. Any number
    of threads may call it; outputs belong to the caller."""

    def __init__(
        self, path: str | Path, threads: int | None = None, verify_weights: bool = True
    ) -> None:
        """Load the artifact at `path`; see `load`."""
        self.path = Path(path)
        self.manifest = layout.read_manifest(self.path)
        name, target = self.manifest["name"], self.manifest["target"]
        loaded, place = Loaded(), self._find_place(target)
        super().__init__(name, target, "main", self.manifest, loaded, place)
        self.functions = {
            function: Function(name, target, function, entry, loaded, place)
            for function, entry in self.manifest.get("functions", {}).items()
        }
        verification = self.manifest.get("verification")  # absent while it is verified
        if verification is not None and verification["ok"] is False:
            log.warning("%s failed its verification: %s", self.path, verification["reason"])
        self.generation = TokenRules.of(self.manifest.get("generation"))
        self.no_generation = self.manifest.get("no_generation")
        files: dict[str, str] = self.manifest["files"]
        objects: list[bytes] = []
        for file, sha256 in files.items():
            if file.endswith(".o"):
                objects.append(layout.read_checked(self.path, file, sha256))
            elif file == layout.TOKENIZER:  # kept, for another artifact may take this one's place
                self.tokenizer_json = layout.read_checked(self.path, file, sha256)
            else:
                hashed = file != layout.WEIGHTS or verify_weights
                layout.check_file(self.path, file, sha256 if hashed else None)
        tensors = map_tensors(self.path / layout.WEIGHTS)
        self._check_weights(tensors)
        program = Program(objects, threads, f"model '{self.name}'", place)
        loaded.code = Code(program, tensors)

    def close(self) -> None:
        """Free the code and the mapping of the weights, when the calls under way are done."""
        code, self._loaded.code = self._loaded.code, None
        if code is not None:
            code.program.close()

    @contextmanager
    def observed(self, observer: Observer) -> Generator[None]:
        """Calls meanwhile tell `observer` of each kernel, before and after it runs. That costs
        some microseconds a kernel."""
        code = self._loaded.code
        if code is None:
            raise TfgraphError(f"model '{self.name}' is closed")
        code.program.observer = observer
        try:
            yield
        finally:
            code.program.observer = None

    def stored_weights(self) -> Iterator[StoredWeight]:
        """The weights of `main` as its kernels read them, in order."""
        code = self._loaded.code
        if code is None:
            raise TfgraphError(f"model '{self.name}' is closed")
        for entry in self.manifest["weights"]:
            array = self._place.returned({})(code.weight(entry["name"]))
            yield StoredWeight(entry["name"], entry["layout"], tuple(entry["sources"]), array)

    def __reduce__(self) -> NoReturn:
        raise TfgraphError(
            f"model '{self.name}' cannot be copied or sent to another process",
            hint=f"load {self.path} there",
        )

    def _check_weights(self, tensors: Mapping[str, Array]) -> None:
        """What code reads is as large as it was compiled for, hashed or not."""
        for entry in (self.manifest, *self.manifest.get("functions", {}).values()):
            for weight in entry["weights"]:
                name, expected = weight["name"], (weight["dtype"], tuple(weight["shape"]))
                found = tensors.get(name)
                if found is None or (str(found.dtype), found.shape) != expected:
                    raise TfgraphError(
                        f"{self.path / layout.WEIGHTS}: '{name}' is missing, or not "
                        f"{expected[0]}{list(expected[1])}",
                        hint="compile the model again",
                    )

    def _find_place(self, target: str) -> CodePlace:
        """Where it runs. Raises MissingTool where this machine cannot run it."""
        if target == "cpu":
            self._check_cpu()
            return CodePlace()
        if target == "cuda":
            # Not without need: it is nothing that the CPU takes.
            from tfgraph.runtime.cuda.open import cuda_place

            return cuda_place(self.path, self.manifest)
        raise MissingTool(
            f"{self.path}: compiled for {target}, which this version does not run",
            hint="compile with --target cpu or cuda",
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
    for. With more than one, as many calls run at once as these CPUs and that quota are enough for,
    and further ones wait their turn; with one, each on the thread that calls. Every
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
