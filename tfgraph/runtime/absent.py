"""PyTorch, kept out of imports that would bring it along: a second and 600 MB, for conversions that
nothing here uses. `tvm` and `tvm_ffi` import it wherever it is installed. May import: the standard
library.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_PYTORCH = ("torch", "torch_c_dlpack_ext")


class _Absent:
    """A finder that finds no PyTorch for the thread that made it; other threads go on to those that
    do."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for what is absent."""
        if name in _PYTORCH and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


@contextmanager
def without_pytorch() -> Generator[None]:
    """Imports of PyTorch by this thread fail meanwhile, unless it is imported already."""
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)
