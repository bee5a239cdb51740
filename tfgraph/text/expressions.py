"""What stands inside a statement of the textual IR: types, generators, attributes, masks, calls.

In a graph's text values are written %name. In YAML plain names are values, as in
`layer_norm(s, scale, bias) {eps=1e-6}`; `parse_call` and its siblings read those. Either way a
value is first a `Ref`, and `Call.bind` finds what it stands for. May import: lexer, arithmetic,
ops, ir, errors.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.ir import Dim, Exact, Fill, Mask, TensorType, dtype
from tfgraph.ir.exact import FUNCTIONS
from tfgraph.ir.legal import check_dims, check_fill, check_fill_kind, check_shape
from tfgraph.ir.mask import KINDS, Segments
from tfgraph.ops.define import REGISTRY, OpDef, find_op
from tfgraph.ops.trace import map_traced
from tfgraph.text.arithmetic import constant, dim, integer
from tfgraph.text.lexer import Cursor, located, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from inspect import Parameter

    from tfgraph.ir import Attr
    from tfgraph.ir.mask import Tensor

T = TypeVar("T")
_MOST_ITEMS = 10_000  # of one list, or operands of one call


@dataclass(frozen=True, slots=True)
class Ref:
    """The name of a value, where it is read."""

    name: str
    location: Location

    def find(self, values: Mapping[str, T]) -> T:
        """The value of that name. Raises TfgraphError with the nearest one."""
        if self.name not in values:
            raise TfgraphError(
                f"value '{self.name[:40]}' is not defined before it is used",
                self.location,
                nearest(self.name, list(values)[-1000:]),
            )
        return values[self.name]


@dataclass(frozen=True, slots=True)
class Call:
    """`op(operands) {attrs}`: all attributes, and operands in which `Ref`s stand for tensors."""

    op: OpDef
    operands: tuple[Any, ...]
    attrs: Mapping[str, Attr]
    location: Location

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The values that the call reads, masks' tensors included, in order."""
        found: list[Ref] = []
        for operand in self.operands:
            given = operand.tensors() if isinstance(operand, Mask) else (operand,)
            found += [ref for ref in given if isinstance(ref, Ref)]
        return tuple(found)

    def bind(self, values: Mapping[str, T]) -> tuple[Any, ...]:
        """The operands with values in place of names: IR values for a node, or traced values for
        `builder.apply(call.op.name, *operands, **call.attrs)`. Raises TfgraphError at a name that
        is not among `values`."""

        def find(ref: Ref) -> T:
            return ref.find(values)

        return tuple(map_traced(operand, find) for operand in self.operands)


def parse_call(text: str, where: Location) -> Call:
    """Read `op(x, 2, causal() & padding(m)) {name=value}` where plain names are values.

    `where` is the place of the text's first character. Raises TfgraphError at the exact place.
    """
    return _whole(text, where, call)


def parse_mask(text: str, where: Location) -> Mask:
    """Read `causal(offset=past) & padding(m)`; its tensors are `Ref`s."""
    return _whole(text, where, mask)


def parse_dim(text: str, where: Location) -> Dim:
    """Read a size such as `past + seq` or `4*width//heads`."""
    return _whole(text, where, dim)


def parse_constant(text: str, where: Location) -> Exact:
    """Read an exact number such as `1e-6`, `1/3` or `rsqrt(64)`."""
    return _whole(text, where, constant)


def parse_type(text: str, where: Location) -> TensorType:
    """Read a type such as `f32[batch,seq,256]`."""
    return _whole(text, where, tensor_type)


def parse_fill(text: str, where: Location) -> Fill:
    """Read a generator such as `ids(1000)` or `normal(0.02)`."""
    return _whole(text, where, fill)


def _whole(text: str, where: Location, read: Callable[[Cursor], T]) -> T:
    c = Cursor(tokens(text, where), bare=True)
    with located(where):
        result = read(c)
    c.expect("end", "nothing more")
    return result


def tensor_type(c: Cursor) -> TensorType:
    """`f32[batch,seq,256]`; a scalar is `f32[]`."""
    token = c.expect("name", "a type such as f32[batch,seq]")
    with located(token.location):
        element = dtype(token.text)
    c.expect("[")
    shape: list[Dim] = []
    while not c.sees("]"):
        shape.append(dim(c))
        if not c.accept(","):
            break
    c.expect("]", "',' or ']'")
    with located(token.location):
        check_shape(shape)
    return TensorType(element, tuple(shape))


def fill(c: Cursor) -> Fill:
    """`ids(1000)`, `zeros()`, `lengths(past + seq)`."""
    token = c.expect("name", "a generator such as normal(0.02)")
    with located(token.location):
        check_fill_kind(token.text)
    c.expect("(")
    argument = None
    if not c.sees(")"):
        argument = dim(c) if token.text == "lengths" else constant(c)
    c.expect(")")
    made = Fill(token.text, argument, token.location)
    with located(token.location):
        check_fill(made)
    return made


def attribute(c: Cursor, annotation: str) -> Attr:
    """A value, read as the attribute's annotation says: `Sequence[DimLike]`, `ExactLike | None`."""
    several = re.search(r"(?:Sequence|tuple|list)\[(.*)\]", annotation)
    outer = annotation.replace(several[0], "") if several else annotation
    words = set(re.findall(r"\w+", outer))
    if "None" in words and c.sees_word("None"):
        c.next()
        return None
    if several and (c.sees("[") or not words - {"None"}):
        return _items(c, several[1])
    if "bool" in words and (c.sees_word("true") or c.sees_word("false")):
        return c.next().text == "true"
    if "str" in words and c.sees("string", "name"):
        return c.next().text
    if "DimLike" in words:
        return dim(c)
    if words & {"ExactLike", "float"}:
        return constant(c)
    if "DType" in words:
        token = c.expect("name", "a dtype such as f32")
        with located(token.location):
            return dtype(token.text)
    if "int" in words:
        return integer(c, "an integer")
    expected = {"bool": "true or false", "str": "a string"}
    raise c.wrong(" or ".join(expected[w] for w in sorted(words & set(expected))) or annotation)


def _items(c: Cursor, annotation: str) -> tuple[Attr, ...]:
    start = c.expect("[").location
    items: list[Attr] = []
    with c.nested():
        while not c.sees("]"):
            items.append(attribute(c, annotation))
            if len(items) > _MOST_ITEMS:
                raise TfgraphError(f"a list of more than {_MOST_ITEMS} items", start)
            if not c.accept(","):
                break
    c.expect("]", "',' or ']'")
    with located(start):
        check_dims([item for item in items if isinstance(item, Dim)])
    return tuple(items)


def mask(c: Cursor) -> Mask:
    """`causal(offset=past) & padding(%m)`; the tensors are `Ref`s."""
    start = c.token.location
    parts = [_mask_part(c)]
    while c.accept("&"):
        parts.append(_mask_part(c))
        if len(parts) > _MOST_ITEMS:
            raise TfgraphError(f"more than {_MOST_ITEMS} masks", start)
    result = parts[0]
    for part in parts[1:]:
        result = result & part
    return result


def _mask_part(c: Cursor) -> Mask:
    kind = c.expect("name", f"a mask ({', '.join(KINDS)})")
    if kind.text not in KINDS:
        hint = nearest(kind.text, KINDS) or f"one of {', '.join(KINDS)}"
        if kind.text in REGISTRY:
            hint = "an operand is a value: give the result of the op a name first"
        raise TfgraphError(f"unknown mask '{kind.text}'", kind.location, hint)
    cls = KINDS[kind.text]
    declared = {item.name: item for item in fields(cls)}
    c.expect("(")
    given: dict[str, Any] = {}
    while not c.sees(")"):
        where = c.token.location
        if c.sees("name") and c.peek().kind == "=":
            name = c.next().text
            c.next()
            if name not in declared:
                raise TfgraphError(
                    f"{kind.text} has no argument '{name}'", where, nearest(name, declared)
                )
        elif len(given) < len(declared):
            name = list(declared)[len(given)]
        else:
            raise TfgraphError(f"{kind.text} takes {len(declared)} arguments", where)
        if name in given:
            raise TfgraphError(f"{kind.text}: '{name}' is given twice", where)
        is_tensor = declared[name].metadata.get("tensor")
        given[name] = _ref(c) if is_tensor else attribute(c, _annotation(declared[name].type))
        if not c.accept(","):
            break
    c.expect(")", "',' or ')'")
    if cls is Segments and "query" in given:
        given.setdefault("key", given["query"])
    for item in declared.values():
        if item.name not in given and item.default is MISSING:
            raise TfgraphError(f"{kind.text}: '{item.name}' is missing", kind.location)
    return cls(**given)


def _annotation(declared: Any) -> str:
    return re.sub(r"\bDim\b", "DimLike", str(declared))


def _ref(c: Cursor) -> Tensor:
    if c.sees("value") or (c.bare and c.sees("name", "string")):
        token = c.next()
        return Ref(token.text, token.location)
    raise c.wrong("the name of a value" if c.bare else "a value such as %x")


def call(c: Cursor) -> Call:
    """`op(operands) {attrs}`. Raises TfgraphError at what doesn't fit the op's signature."""
    token = c.expect("name", "an op")
    where = token.location
    with located(where):
        definition = find_op(token.text)
    c.expect("(")
    operands: list[Any] = []
    while not c.sees(")"):
        with located(c.token.location):
            parameter = definition.operand(len(operands))
        operands.append(_operand(c, definition, parameter))
        if len(operands) > _MOST_ITEMS:
            raise TfgraphError(f"more than {_MOST_ITEMS} operands", where)
        if not c.accept(","):
            break
    c.expect(")", "',' or ')'")
    given = _attrs(c, definition) if c.sees("{") else {}
    with located(where, f"{definition.name}: "):
        bound = definition.bind_operands(operands)
        attrs = definition.bind_attrs(given)
    result = Call(definition, bound, attrs, where)
    if definition.operands and not result.refs:
        raise TfgraphError(f"{definition.name}: no operand is a value of the graph", where)
    return result


def _operand(c: Cursor, definition: OpDef, parameter: Parameter) -> Any:
    token, allowed = c.token, str(parameter.annotation)
    refused = f"{definition.name}: '{parameter.name}' must be a tensor, not a"
    if token.kind == "name" and token.text == "_":
        c.next()
        return None
    is_call = token.kind == "name" and c.peek().kind == "("
    if token.kind in ("number", "-", "(") or (
        is_call and "ExactLike" in allowed and token.text in FUNCTIONS
    ):
        if "ExactLike" not in allowed:
            raise TfgraphError(f"{refused} number", token.location)
        return constant(c)
    if is_call:
        value = mask(c)
        if "Mask" not in allowed:
            raise TfgraphError(f"{refused} mask", token.location)
        return value
    if "Mask" in allowed:
        raise c.wrong(f"a mask ({', '.join(KINDS)})")
    return _ref(c)


def _attrs(c: Cursor, definition: OpDef) -> dict[str, Attr]:
    c.expect("{")
    given: dict[str, Attr] = {}
    while not c.sees("}"):
        token = c.expect("name", "an attribute's name")
        name = token.text
        if name not in definition.attributes:
            raise TfgraphError(
                f"{definition.name} has no attribute '{name}'",
                token.location,
                nearest(name, definition.attributes),
            )
        if name in given:
            raise TfgraphError(f"{definition.name}: '{name}' is given twice", token.location)
        c.expect("=")
        given[name] = attribute(c, str(definition.attributes[name].annotation))
        if not c.accept(","):
            break
    c.expect("}", "',' or '}'")
    return given
