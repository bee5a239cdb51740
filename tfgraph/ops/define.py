"""`@op`: makes a function the one place of an operation.

Positional-only parameters are operands, keyword-only ones attributes; the annotations say what an
operand may be (`Array`, `Array | ExactLike`, `Mask`, `Array | None`) and how an attribute is read
(`float`, `int`, `bool`, `str`, `DType`, `DimLike`, `ExactLike`). The body is the meaning. May
import: annotations, operands, xp, ir, array, errors.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.ir import DType, Exact, Mask, TensorType, as_dim, exact, product
from tfgraph.ir.legal import check_constant, check_fits, check_shape, rounds_to_zero
from tfgraph.ops import xp
from tfgraph.ops.annotations import (
    ATTRIBUTES,
    NUMBERS,
    OPERANDS,
    is_known,
    normal,
    spelled,
    with_floats,
)
from tfgraph.ops.array import Array
from tfgraph.ops.operands import Refused, require_mask, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.ir import Attr, Dim

P = ParamSpec("P")
R = TypeVar("R")

REGISTRY: dict[str, OpDef] = {}
_AS_TENSOR = "tfgraph.ops.full(shape=(), value=..., dtype='f32') makes one of a number"
_SENTINEL = -1000  # and below: what stands for minus infinity where scores are hidden
_LIKE_MASKS = "tfgraph.ops.mask(scores, tfgraph.dense(allowed)) hides scores; " + _AS_TENSOR


@dataclass(frozen=True, eq=False)
class OpDef:
    """All that is known about an op, apart from its emitters in compiled backends.

    kind "core": the body is over `xp`. kind "composite": the body calls other ops, which is both
    its reference and its expansion.
    """

    name: str
    body: Callable[..., Any]
    infer: Callable[..., TensorType | tuple[TensorType, ...]]
    kind: str
    onnx: str | None
    commutative: bool
    cost: Callable[..., Dim] | None
    location: Location
    operands: tuple[inspect.Parameter, ...] = field(init=False)
    attributes: Mapping[str, inspect.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        parameters = [
            p.replace(annotation=spelled(p.annotation))
            for p in inspect.signature(self.body).parameters.values()
        ]
        operands = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
        attributes = {p.name: p for p in parameters if p.kind == p.KEYWORD_ONLY}
        if len(operands) + len(attributes) != len(parameters):
            raise TypeError(
                f"op {self.name}: operands are positional-only, attributes keyword-only"
            )
        object.__setattr__(self, "operands", tuple(operands))
        object.__setattr__(self, "attributes", attributes)
        self._check_annotations()
        kinds = {name: p.annotation for name, p in attributes.items()}
        for name in ("body", "infer", "cost"):
            if (function := getattr(self, name)) is not None:
                object.__setattr__(self, name, with_floats(function, kinds))

    def _check_annotations(self) -> None:
        """Raise TfgraphError, at the op's place, for one that says nothing, or for a default that
        is none."""
        for p in (*self.operands, *self.attributes.values()):
            is_operand = p.name not in self.attributes
            names = OPERANDS if is_operand else ATTRIBUTES
            what = f"op {self.name}: {'operand' if is_operand else 'attribute'} '{p.name}'"
            if not (is_known(p.annotation, names) or (is_operand and p.annotation in ("", "Any"))):
                rest = "" if is_operand else "; Sequence[...] of one"
                raise TfgraphError(
                    f"{what} is annotated {p.annotation}" * bool(p.annotation)
                    or f"{what} has no annotation",
                    self.location,
                    f"annotate it {', '.join(names[:-1])} or {names[-1]}{rest}; and | None",
                )
        defaults = {n: p.default for n, p in self.attributes.items() if p.default is not p.empty}
        for name, default in defaults.items():
            try:
                self.attribute(name, default)
            except TfgraphError as error:
                message = f"op {error.message}, its default"
                raise TfgraphError(message, self.location, error.hint) from error

    @property
    def doc(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.body) or "").partition("\n")[0]

    def operand(self, i: int) -> inspect.Parameter:
        """The declaration of operand i; the last one repeats if it is variadic."""
        if i < len(self.operands):
            return self.operands[i]
        if self.operands and self.operands[-1].kind == inspect.Parameter.VAR_POSITIONAL:
            return self.operands[-1]
        raise TfgraphError(f"{self.name} takes {len(self.operands)} operands")

    def bind_operands(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """The operands with numbers made exact and trailing Nones left out; checks their kinds."""
        required = [
            p for p in self.operands if p.default is p.empty and p.kind == p.POSITIONAL_ONLY
        ]
        if len(given) < len(required):
            raise TfgraphError(f"{self.name}: operand '{required[len(given)].name}' is missing")
        bound = [self._operand(self.operand(i), value) for i, value in enumerate(given)]
        while bound and bound[-1] is None:
            bound.pop()
        return tuple(bound)

    def _operand(self, parameter: inspect.Parameter, value: Any) -> Any:
        allowed = parameter.annotation
        if not isinstance(value, Array) and getattr(value, "ndim", None) == 0:
            value = value.item() if hasattr(value, "item") else value  # NumPy's numbers
        if isinstance(value, NUMBERS) and not isinstance(value, bool):
            if "ExactLike" not in allowed:
                raise Refused(
                    f"{self.name}: '{parameter.name}' must be a tensor, not a number",
                    hint=_LIKE_MASKS if float(value) < _SENTINEL else _AS_TENSOR,
                )
            try:
                return exact(value)
            except ValueError as cause:  # NaN and infinities
                raise Refused(f"{self.name}: {parameter.name}: {cause}") from cause
        if value is None:
            if parameter.default is not None:
                raise Refused(f"{self.name}: '{parameter.name}' must be given")
            return None
        if "Mask" in allowed:
            require_mask(f"{self.name}: '{parameter.name}'", value)
        elif isinstance(value, Mask):
            got = shown(value)
            raise Refused(f"{self.name}: '{parameter.name}' is {got}, expected a tensor")
        return value

    def bind_attrs(self, given: Mapping[str, Any]) -> dict[str, Attr]:
        """All attributes, given or default, in the signature's order and normal form."""
        for name in given:
            self._declared(name)
        bound: dict[str, Attr] = {}
        for name, parameter in self.attributes.items():
            value = given.get(name, parameter.default)
            if value is inspect.Parameter.empty:
                raise TfgraphError(f"{self.name}: attribute '{name}' is missing")
            bound[name] = self.attribute(name, value)
        return bound

    def attribute(self, name: str, value: Any) -> Attr:
        """The value of one attribute in normal form. Raises TfgraphError."""
        declared = self._declared(name)
        try:
            return normal(value, declared.annotation)
        except (ValueError, TypeError) as cause:
            raise TfgraphError(f"{self.name}: {name}: {cause}") from cause
        except TfgraphError as error:
            message = f"{self.name}: {name}: {error.message}"
            raise TfgraphError(message, hint=error.hint) from error

    def _declared(self, name: str) -> inspect.Parameter:
        if name not in self.attributes:
            hint = nearest(name, self.attributes)
            raise TfgraphError(f"{self.name} has no attribute '{name}'", hint=hint)
        return self.attributes[name]

    def result_types(
        self, operands: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[TensorType, ...]:
        """The types of the results for operands' types (scalars take the first tensor's dtype, and
        must fit it, as must constants among the attributes)."""
        first = next((t for t in operands if isinstance(t, TensorType)), None)
        types: list[Any] = []
        for given in operands:
            if isinstance(given, Exact) and first is not None:
                self._check_fits(given, first.dtype)
                given = TensorType(first.dtype, ())
            types.append(given)
        for name, given in attrs.items():
            if isinstance(given, Exact) and first is not None and first.dtype.is_float:
                self._check_fits(given, first.dtype)
                if rounds_to_zero(given, first.dtype):
                    raise TfgraphError(
                        f"{self.name}: {name} is {given}, which is 0 in {first.dtype}"
                    )
        result = self.infer(*types, **attrs)
        return result if isinstance(result, tuple) else (result,)

    def node_types(
        self, operands: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[TensorType, ...]:
        """`result_types` in a graph, where no tensor is empty."""
        results = self.result_types(operands, attrs)
        for made in results:
            try:
                check_shape(made.shape)
            except TfgraphError as error:
                raise TfgraphError(f"{self.name}: the result has {error.message}") from error
        return results

    def _check_fits(self, constant: Exact, dtype: DType) -> None:
        try:
            check_constant(constant)
            check_fits(constant, dtype)
        except TfgraphError as error:
            raise TfgraphError(f"{self.name}: {error.message}", hint=error.hint) from error

    def flops(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Dim:
        """Floating point operations for operands' types; one an element of results by default."""
        if self.cost is not None:
            return self.cost(*operands, **attrs)
        results = self.result_types(operands, attrs)
        return sum((product(t.shape) for t in results if t.dtype.is_float), start=as_dim(0))


def op(
    *,
    infer: Callable[..., TensorType | tuple[TensorType, ...]],
    onnx: str | None = None,
    commutative: bool = False,
    flops: Callable[..., Dim] | None = None,
    kind: str = "core",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register the function as an op under its own name.

    `onnx` names the ONNX operator that means the same. `infer` and `flops` are called like the op,
    with types in place of arrays. Raises TfgraphError if the name is taken.
    """

    def register(body: Callable[P, R]) -> Callable[P, R]:
        name = body.__name__.rstrip("_")
        where = Location(body.__code__.co_filename, body.__code__.co_firstlineno)
        if name in REGISTRY:
            raise TfgraphError(
                f"op '{name}' is registered twice", where, f"first at {REGISTRY[name].location}"
            )
        definition = OpDef(name, body, infer, kind, onnx, commutative, flops, where)
        REGISTRY[name] = definition

        @functools.wraps(body)
        def apply(*args: Any, **kwargs: Any) -> Any:
            return apply_op(definition, args, kwargs)

        return cast("Callable[P, R]", apply)

    return register


def apply_op(definition: OpDef, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Apply an op in the domain of its arguments."""
    from tfgraph.ops.builder import Blame, current

    with Blame():
        operands, attrs = definition.bind_operands(args), definition.bind_attrs(kwargs)
        if not definition.operands:
            if xp.domain.get(None) is not None:  # in the body of an op that is being evaluated
                return definition.body(**attrs)
            return current().apply(definition.name, **attrs)
        domain = next((a for a in _tensors(operands) if isinstance(a, Array)), None)
        if domain is None:
            raise TfgraphError(f"{definition.name}: no operand is a tensor of a graph or an Array")
    return domain.apply(definition, operands, attrs)


def find_op(name: str) -> OpDef:
    """The op called `name`. Raises TfgraphError with the nearest name if there is none."""
    if name not in REGISTRY:
        extension = "if it is an extension's, --plugin FILE loads that"
        raise TfgraphError(f"unknown op '{name}'", hint=nearest(name, REGISTRY) or extension)
    return REGISTRY[name]


def _tensors(operands: Sequence[Any]) -> list[Any]:
    return [t for o in operands for t in (o.tensors() if isinstance(o, Mask) else (o,))]
