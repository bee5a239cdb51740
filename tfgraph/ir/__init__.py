"""What a graph is: dimensions, exact constants, types, masks, nodes. Imports only errors."""

from tfgraph.ir.dim import Dim, DimLike, as_dim, dim_max, dim_min, product
from tfgraph.ir.exact import Exact, ExactLike, exact, rsqrt, sqrt
from tfgraph.ir.graph import (
    Attr,
    Constraint,
    Fill,
    Graph,
    Input,
    Node,
    Operand,
    Output,
    Param,
    Symbol,
    Value,
    dims_of,
    map_operand,
)
from tfgraph.ir.mask import Mask
from tfgraph.ir.types import DType, TensorType, dtype, tensor
from tfgraph.ir.verify import verify_structure

__all__ = [
    "Attr",
    "Constraint",
    "DType",
    "Dim",
    "DimLike",
    "Exact",
    "ExactLike",
    "Fill",
    "Graph",
    "Input",
    "Mask",
    "Node",
    "Operand",
    "Output",
    "Param",
    "Symbol",
    "TensorType",
    "Value",
    "as_dim",
    "dim_max",
    "dim_min",
    "dims_of",
    "dtype",
    "exact",
    "map_operand",
    "product",
    "rsqrt",
    "sqrt",
    "tensor",
    "verify_structure",
]
