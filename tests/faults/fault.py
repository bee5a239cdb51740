"""What a planted fault is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tfgraph.api.comparison import Divergence


@dataclass(frozen=True)
class Fault:
    """`find` plants it and looks for the first culprit; `right` says whether that is it."""

    kind: str
    what: str
    find: Callable[[pytest.MonkeyPatch], Divergence | None]
    right: Callable[[Divergence], bool]

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"
