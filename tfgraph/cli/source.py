"""The MODEL argument: a model to read, or an artifact.

May import: api, model, backends.base, runtime, errors.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.backends.base import Target
    from tfgraph.cli.session import Session
    from tfgraph.model import Model

_SUFFIX = ".tfgraph"


def is_artifact(spec: str) -> bool:
    """Whether the argument names a compiled artifact, a damaged one included. Imports nothing."""
    path = Path(spec)
    return path.is_dir() and ((path / "manifest.json").exists() or path.suffix == _SUFFIX)


def read_source(session: Session, spec: str) -> Model:
    """The model, read with the plugins loaded. Raises TfgraphError for an artifact."""
    if is_artifact(spec):
        raise TfgraphError(
            f"{spec} is an artifact, expected a model", hint="name what it was compiled from"
        )
    session.load_plugins()
    from tfgraph.api.source import load_source

    with redirect_stdout(sys.stderr):  # what a Python file prints is no result
        model = load_source(spec)
    _check_settings(model)
    return model


def choose_passes(model: Model, passes: str | None, strict_masks: bool = False) -> str:
    """The pipeline asked for, else the model's, else the default; with `strict_masks` rows with no
    allowed key keep what arithmetic gives them."""
    from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline

    pipeline = (model.passes or DEFAULT_PIPELINE) if passes is None else passes
    if not strict_masks:
        return pipeline
    parsed = parse_pipeline(pipeline)
    lenient, strict = "recover-masks", "recover-masks{strict=true}"
    return ",".join(strict if p.name == lenient else str(p) for p in parsed)


def _check_settings(model: Model) -> None:
    """The target and architecture that the file names exist, also where none is compiled for."""
    from tfgraph.backends.base import check_backend_name
    from tfgraph.backends.tvm.cuda.arch import parse_archs

    if model.target is not None:
        with _Place(model, "target", from_file=True):
            check_backend_name(model.target)
    if model.arch is not None:
        with _Place(model, "arch", from_file=True):
            parse_archs(model.arch)


def check_dtype(model: Model, target: str, dtype: str | None = None) -> None:
    """Raise TfgraphError for an unknown `dtype`, the option, and where the target has no kernels
    for it or, without, for that of the file, at its place; a graph by its nodes has no such key,
    and an error at the first node."""
    from tfgraph.api.dtype import check_dtype as check_name
    from tfgraph.backends.base import FLOATS

    where = None if dtype is not None else model.locations.get("dtype")
    if dtype is not None:
        kind = check_name(dtype).value
    elif where is not None:
        kind = model.dtype.value
    else:
        return
    floats = [floats.value for floats in FLOATS.get(target, ())]
    if floats and kind not in floats:
        raise TfgraphError(
            f"dtype: {kind} does not run on {target}",
            where,
            f"dtype: {' or '.join(floats)} does; `tfgraph run --target numpy` takes {kind}",
        )


def in_dtype(model: Model, dtype: str | None, passes: str | None = None) -> Model:
    """The model in that type, of None as it is; `passes` are those asked for, see
    `api.dtype.in_dtype`."""
    from tfgraph.api.dtype import model_in_dtype

    return model_in_dtype(model, dtype, passes)


def choose_target(
    model: Model,
    name: str | None,
    *,
    arch: str | None = None,
    mcpu: str | None = None,
    threads: int | None = None,
    dtype: str | None = None,
    tf32: bool | None = None,
) -> Target:
    """The target asked for, else the model file's, else the CPU; for CUDA with an architecture and
    where that came from. Raises TfgraphError for what does not exist or go together."""
    from tfgraph.backends import find_backend
    from tfgraph.backends.base import Target

    chosen = name or model.target or "cpu"
    with _Place(model, "target", from_file=name is None and model.target is not None):
        find_backend(chosen)
    check_dtype(model, chosen, dtype)
    if arch is not None and chosen != "cuda":
        raise TfgraphError(
            f"--arch is for --target cuda, not {chosen}",
            hint="--mcpu names a CPU" if chosen == "cpu" else None,
        )
    if mcpu is not None and chosen != "cpu":
        raise TfgraphError(f"--mcpu is for --target cpu, not {chosen}")
    if chosen != "cuda":
        if tf32:
            raise TfgraphError(f"--tf32 is for --target cuda, not {chosen}")
        return Target(chosen, mcpu=mcpu, threads=threads)
    from tfgraph.backends.tvm.cuda.arch import arch_names, check_float, check_tf32, default_archs
    from tfgraph.ir import DType
    from tfgraph.ir import dtype as dtype_of

    with _Place(model, "arch", from_file=arch is None and model.arch is not None):
        found, origin = default_archs(arch, model.arch)
    with _Place(model, "dtype", from_file=dtype is None):
        check_float(dtype_of(dtype or model.dtype).value, found[0])
    kind = dtype_of(dtype or model.dtype)
    in_tf32 = model.tf32 and (dtype is None or kind is DType.float32) if tf32 is None else tf32
    if in_tf32:
        with _Place(model, "tf32", from_file=tf32 is None):
            check_tf32([kind.value], found[0])
    archs = arch_names(found)
    return Target(chosen, arch=archs, arch_origin=origin, threads=threads, tf32=in_tf32)


class _Place:
    """Gives errors inside the block the place of a key of the model file."""

    def __init__(self, model: Model, key: str, *, from_file: bool) -> None:
        self._location = model.locations.get(key) if from_file else None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TfgraphError) and error.location is None:
            error.location = self._location


def short_path(path: Path | str) -> str:
    """The path as a person would write it here: relative where that is shorter."""
    text = str(path)
    if not os.path.isabs(text):
        return text
    relative = os.path.relpath(text)
    return relative if len(relative) < len(text) else text
