"""PyTorch, kept out of imports that would bring it along: a second and 600 MB, for conversions that
nothing here uses. `tvm` and `tvm_ffi` import it wherever it is installed. May import: the standard
library.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_PYTORCH = ("torch", "torch_c_dlpack_ext")


@contextmanager
def without_pytorch() -> Generator[None]:
    """Imports of PyTorch fail meanwhile, unless it is imported already."""
    hidden = [name for name in _PYTORCH if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
