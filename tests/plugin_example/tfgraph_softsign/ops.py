"""An op. No backend has a kernel for it: they run what its body does."""

from tfgraph.ops import Array, op, xp
from tfgraph.ops.infer import like_first


@op(infer=like_first, onnx="Softsign")
def softsign(x: Array, /) -> Array:
    """x / (1 + |x|)."""
    return xp.div(x, xp.add(1, xp.unary("abs", x)))
