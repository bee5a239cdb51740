"""A graph as PyTorch: straight code, as one writes it, for PyTorch and its compiler to run.

    def constants(w): ...   what depends on no input, by name: computed once
    def forward(c, x): ...  the first output

`w` holds the weights by name, `c` what `constants` gives, `x` the inputs by name. All sizes are
numbers. May import: tfgraph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgraph.api.export import FUSED
from tfgraph.ir import Exact, Graph, Mask, Node, Value
from tfgraph.ir.mask import Causal, Padding
from tfgraph.passes import parse_pipeline, run_pipeline

Write = Callable[..., str]

HEAD = """import torch
import torch.nn.functional as F


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def rotary(x, cos, sin, count):  # halves, Su et al. 2021
    a, b = x.unflatten(-1, (count, -1)).chunk(2, -1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

"""


def to_torch(graph: Graph) -> str:
    """The code. Raises ValueError for what no workload has."""
    graph, _ = run_pipeline(graph, parse_pipeline(FUSED))
    fixed = {param.value: f"w[{param.value.name!r}]" for param in graph.params}
    running = {item.value: f"x[{item.value.name!r}]" for item in graph.inputs}
    before, lines = list[str](), list[str]()
    kept: dict[str, str] = {}  # constants that `forward` reads, as `constants` has them

    def read(value: Value, is_weight: bool = False) -> str:
        """A value as `forward` reads it; weights as torch.nn.Linear has them, [out, in]."""
        if value in running:
            return running[value]
        name = f"{value.name}.t" if is_weight else value.name
        kept[name] = f"{fixed[value]}.t().contiguous()" if is_weight else fixed[value]
        return f"c[{name!r}]"

    for node in graph.nodes:
        name = f"v{len(before) + len(lines)}"
        if fixed.keys() >= set(node.inputs):
            before.append(f"{name} = {_written(node, [fixed[v] for v in node.inputs])}")
            fixed[node.output] = name
        else:
            linear = node.op == "linear"
            given = [read(v, linear and i == 1) for i, v in enumerate(node.inputs)]
            lines.append(f"{name} = {_written(node, given)}")
            running[node.output] = name
    result = running[graph.outputs[0].value]
    made = ", ".join(f"{name!r}: {code}" for name, code in kept.items())
    return (
        HEAD
        + _function("constants(w)", [*before, f"return {{{made}}}"])
        + _function("forward(c, x)", [*lines, f"return {result}"])
    )


def _function(head: str, lines: list[str]) -> str:
    return f"\n@torch.no_grad()\ndef {head}:\n" + "".join(f"    {line}\n" for line in lines)


def _written(node: Node, values: Sequence[str]) -> str:
    """One node as an expression; `values` are those it reads, of masks and otherwise, in order."""
    if node.op not in _WRITE:
        raise ValueError(f"{node.op} is not written in PyTorch")
    names = dict(zip(node.inputs, values, strict=True))
    operands: list[str] = []
    for operand in node.operands:
        if isinstance(operand, Exact):
            number = float(operand)
            operands.append(repr(number if node.output.type.dtype.is_float else round(number)))
        elif isinstance(operand, Mask):
            operands.append(_mask(operand, names))
        elif operand is not None:
            operands.append(names[operand])
    return _WRITE[node.op](node, *operands)


def _mask(mask: Mask, names: dict[Value, str]) -> str:
    if isinstance(mask, Causal) and (mask.offset is None or not mask.offset.terms):
        return "is_causal=True"
    if isinstance(mask, Padding) and mask.keep.type.rank == 2:
        return f"attn_mask=({names[mask.keep]} != 0)[:, None, None]"
    raise ValueError(f"{mask} is not written in PyTorch")


def _attention(node: Node, q: str, k: str, v: str, mask: str = "") -> str:
    count, kv_count = node.attrs["heads"], node.attrs["kv_heads"]
    options = [f"scale={_number(node, 'scale')}", *([mask] if mask else [])]
    options += ["enable_gqa=True"] if count != kv_count else []
    split = f"heads({q}, {count}), heads({k}, {kv_count}), heads({v}, {kv_count})"
    done = f"F.scaled_dot_product_attention({split}, {', '.join(options)})"
    return f"{done}.transpose(1, 2).flatten(-2)"


def _rotary(node: Node, x: str, cos: str, sin: str) -> str:
    if node.attrs["interleaved"]:
        raise ValueError("rotary of interleaved pairs is not written in PyTorch")
    return f"rotary({x}, {cos}, {sin}, {node.attrs['heads']})"


def _norm(name: str) -> Write:
    def write(node: Node, x: str, *params: str) -> str:
        width = node.output.type.shape[-1]
        return f"F.{name}({', '.join((x, f'({width},)', *params))}, eps={_number(node, 'eps')})"

    return write


def _slice(node: Node, x: str) -> str:
    axis, start = node.attrs["axis"], node.attrs["start"]
    assert isinstance(axis, int)
    return f"{x}.narrow({axis}, {start}, {node.output.type.shape[axis]})"


def _number(node: Node, attr: str) -> float:
    value = node.attrs[attr]
    assert isinstance(value, Exact)
    return float(value)


def _shape(node: Node) -> str:
    return str([int(dim) for dim in node.output.type.shape])


def _operator(sign: str) -> Write:
    return lambda node, a, b: f"{a} {sign} {b}"


def _method(name: str) -> Write:
    return lambda node, x: f"{x}.{name}()"


def _function_of(name: str) -> Write:
    return lambda node, *x: f"F.{name}({', '.join(x)})"


_WRITE: dict[str, Write] = {
    "add": _operator("+"),
    "attention": _attention,
    "cast": lambda node, x: f"{x}.to(torch.{node.output.type.dtype.value})",
    "concat": lambda node, *x: f"torch.cat([{', '.join(x)}], {node.attrs['axis']})",
    "cos": _method("cos"),
    "embedding": _function_of("embedding"),
    "full": lambda node: f"torch.full({_shape(node)}, {round(_number(node, 'value'))})",
    "gelu": _function_of("gelu"),
    "gelu_tanh": lambda node, x: f"F.gelu({x}, approximate='tanh')",
    "iota": lambda node: f"torch.arange({node.attrs['length']})",
    "layer_norm": _norm("layer_norm"),
    "linear": _function_of("linear"),
    "maximum": lambda node, a, b: f"{a}.clamp(min={b})",
    "mul": _operator("*"),
    "pow": _operator("**"),
    "relu": _function_of("relu"),
    "reshape": lambda node, x: f"{x}.reshape({_shape(node)})",
    "rms_norm": _norm("rms_norm"),
    "rotary": _rotary,
    "silu": _function_of("silu"),
    "sin": _method("sin"),
    "slice": _slice,
    "sub": _operator("-"),
    "tanh": _method("tanh"),
    "transpose": lambda node, x: f"{x}.permute({[int(i) for i in node.attrs['perm']]})",
}
