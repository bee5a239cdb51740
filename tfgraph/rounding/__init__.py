"""Error bounds of backends: of a kernel alone, and of a whole graph.

May import: backends, ops, ir.
"""

from tfgraph.rounding.isolated import isolated_bounds
from tfgraph.rounding.statistical import Spread, end_to_end, spreads

__all__ = ["Spread", "end_to_end", "isolated_bounds", "spreads"]
