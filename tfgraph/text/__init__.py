"""The textual IR: what every dump, golden test and bug report uses; printed and parsed.

`parse_graph(print_graph(g)) == g`, places in the file aside, and printing what was parsed gives the
same text. The small parsers (a call, a mask, a size, ...) also read the expressions inside YAML
model files. Imports ops, ir and errors.
"""

from tfgraph.text.expressions import (
    Call,
    Ref,
    parse_call,
    parse_constant,
    parse_dim,
    parse_fill,
    parse_mask,
    parse_type,
)
from tfgraph.text.parser import parse_graph
from tfgraph.text.printer import bare_name, print_call, print_graph, print_node

__all__ = [
    "Call",
    "Ref",
    "bare_name",
    "parse_call",
    "parse_constant",
    "parse_dim",
    "parse_fill",
    "parse_graph",
    "parse_mask",
    "parse_type",
    "print_call",
    "print_graph",
    "print_node",
]
