"""Error bounds of backends: of a kernel alone, and of a whole graph.

May import: backends, ops, ir.
"""

from tfgraph.rounding.apart import apart
from tfgraph.rounding.isolated import isolated_bounds

__all__ = ["apart", "isolated_bounds"]
