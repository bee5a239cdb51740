"""The session of one verb: its output, and the plugins that it was given.

May import: output; the plugins where a verb reads a model.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from tfgraph.cli.output import Output

if TYPE_CHECKING:
    from pathlib import Path


class Session(Output):
    """The output of one verb, and the plugins that it was given."""

    plugins: tuple[Path, ...] = ()

    def load_plugins(self) -> None:
        """Load what is installed and what `--plugin` names; verbs that read a model call this.
        What they print goes to stderr: stdout is for results."""
        from tfgraph.plugins import load_plugins

        with redirect_stdout(sys.stderr):
            load_plugins(self.plugins)
