"""What a value in a model file may be: sizes within limits, exact numbers, names, short forms.

May import: text, ir, errors; pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Exact, exact
from tfgraph.ir.legal import LARGEST_SIZE
from tfgraph.text import parse_constant

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 17
MAX_FFN = 1 << 20
MAX_VOCABULARY = 1 << 24
MAX_POSITIONS = 1 << 24
MAX_BUCKETS = 4096
MAX_EXPERTS = 1024
MAX_EXPERTS_IN_ALL = 1 << 13  # in all layers: each is a part of the graph, and takes a millisecond
SQRT_WIDTH = "sqrt(width)"

Layers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
Middle = Annotated[int, Field(ge=1, le=MAX_FFN)]
Rows = Annotated[int, Field(ge=1, le=MAX_VOCABULARY)]
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Positive = Annotated[int, Field(ge=1, le=MAX_POSITIONS)]
Natural = Annotated[int, Field(ge=0, le=MAX_POSITIONS)]
Token = Annotated[int, Field(ge=0, le=MAX_VOCABULARY - 1)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Activation = Literal["relu", "relu2", "sigmoid", "silu", "gelu", "gelu_tanh", "quick_gelu", "tanh"]
FfnActivation = Literal[
    "none", "relu", "relu2", "sigmoid", "silu", "gelu", "gelu_tanh", "quick_gelu", "tanh"
]
Position = Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative", "disentangled"]
Term = Literal["c2p", "p2c"]
MaskKind = Literal["padding", "causal", "window", "prefix", "segments", "dense", "bias"]
PlainMask = Literal["padding", "causal", "prefix", "segments", "dense", "bias"]
HeadKind = Literal["lm", "mlm", "classifier", "token_classifier", "span", "detector", "pointer"]
Arch = Annotated[str, Field(pattern=r"^sm_[1-9][0-9]*$")]
FloatType = Literal["float32", "float16", "bfloat16", "float64", "f32", "f16", "bf16", "f64"]


def _constant(value: Any) -> Exact:
    """A number, or an exact expression such as `rsqrt(64)`."""
    try:
        if isinstance(value, str):
            return parse_constant(value, Location(""))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return exact(value)
    except (TfgraphError, ValueError, ArithmeticError):
        pass
    raise PydanticCustomError("constant", "expected a finite number, or one such as rsqrt(64)")


def _epsilon(value: Any) -> Exact:
    number = _constant(value)
    if float(number) < 0:
        raise PydanticCustomError("epsilon", "expected a number of at least 0")
    return number


def _ratio(value: Any) -> Exact:
    number = _constant(value)
    if number.calls or number.factor <= 0:
        raise PydanticCustomError("ratio", "expected a positive rational")
    return number


def _scale(value: Any) -> Exact | str:
    return SQRT_WIDTH if value == SQRT_WIDTH else _constant(value)


def short(key: str, none: bool = False) -> Any:
    """Lets a plain name stand for a mapping with that `key`; `none` for nothing."""

    def widen(value: Any) -> Any:
        if none and value == "none":
            return None
        return {key: value} if isinstance(value, str) else value

    return widen


def pooler_of(value: Any) -> Any:
    """`true` is a pooler as usual, `false` none."""
    return {} if value is True else None if value is False else value


def masks_of(value: Any) -> Any:
    """One mask or several; a plain name stands for its kind."""
    if value == "none":
        return []
    several: Any = value if isinstance(value, list) else [value]  # pyright: ignore
    return [{"kind": item} if isinstance(item, str) else item for item in several]


# As text in the JSON Schema: a default that is an Exact is not JSON.
_text = PlainSerializer(str, return_type=str)
Constant = Annotated[Exact, PlainValidator(_constant, json_schema_input_type=float | str), _text]
Epsilon = Annotated[Exact, PlainValidator(_epsilon, json_schema_input_type=float | str), _text]
Ratio = Annotated[Exact, PlainValidator(_ratio, json_schema_input_type=float | str), _text]
Scale = Annotated[
    Exact | Literal["sqrt(width)"],
    PlainValidator(_scale, json_schema_input_type=float | str),
    _text,
]
