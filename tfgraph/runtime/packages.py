"""Packages that are not installed: to run artifacts takes few, to compile takes all.

May import: the standard library, errors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfgraph.errors import MissingTool

if TYPE_CHECKING:
    from collections.abc import Generator

# What is installed under another name than it is imported by.
_DISTRIBUTIONS = {
    "ruamel": "ruamel.yaml",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "tvm_ffi_orcjit": "apache-tvm-ffi-orcjit",
}
_TO_RUN = ("numpy", "tvm_ffi", "tvm_ffi_orcjit")


def missing_package(error: ModuleNotFoundError) -> MissingTool | None:
    """The error that names what to install; None where a module of tfgraph itself is missing."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "tfgraph"):
        return None
    name = _DISTRIBUTIONS.get(package, package)
    rest = "" if package in _TO_RUN else ", or tfgraph without --no-deps; artifacts run without it"
    return MissingTool(f"{name} is not installed", hint=f"pip install {name}{rest}")


@contextmanager
def packages_named() -> Generator[None]:
    """Raises MissingTool where an import inside the block lacks a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from error
