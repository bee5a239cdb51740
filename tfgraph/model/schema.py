"""What may stand in a model file: the high-level form and the free form, with their defaults.

The JSON Schema for editors, `model.schema.json`, is made from these classes. Sizes are limited
here, before anything is built from them. May import: ops, text, ir, errors; pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
)
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
Position = Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative"]
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


def _short(key: str, none: bool = False) -> Any:
    """Lets a plain name stand for a mapping with that `key`; `none` for nothing."""

    def widen(value: Any) -> Any:
        if none and value == "none":
            return None
        return {key: value} if isinstance(value, str) else value

    return widen


def _masks(value: Any) -> Any:
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


class Strict(BaseModel):
    """No unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Norm(Strict):
    """The norm of every layer, and where it stands.

    post: norm(x + f(x)); pre: x + f(norm(x)); sandwich: x + norm(f(norm(x))); parallel:
    x + attention(norm(x)) + ffn(norm(x)), with `shared` one norm for both.
    """

    kind: Literal["layer_norm", "rms_norm", "none"] = "layer_norm"
    placement: Literal["post", "pre", "sandwich", "parallel"] = "post"
    eps: Epsilon = exact(1e-5)
    scale: bool = True
    bias: bool | None = None
    unit_offset: bool = False
    shared: bool = True


class Scaling(Strict):
    """Frequencies of rotary positions, scaled for longer texts."""

    kind: Literal["linear", "llama3"]
    factor: Ratio
    original: Positive | None = None
    low: Ratio = exact(1)
    high: Ratio = exact(4)


class Positions(Strict):
    """How positions are told apart: a table of `max` rows that is added to the embeddings
    (sinusoidal, learned), heads that turn (rotary), or what is added to scores (alibi, relative).

    Row offset + p is for position p. With `padding_id`, positions count the tokens other than it,
    and start behind it, as in RoBERTa.
    """

    kind: Position = "none"
    max: Positive | None = None
    offset: Natural = 0
    padding_id: Natural | None = None
    layout: Literal["interleaved", "halves"] | None = None
    base: Ratio = exact(10000)
    size: Width | None = None
    scaling: Scaling | None = None
    buckets: Annotated[int, Field(ge=2, le=MAX_BUCKETS)] = 32
    max_distance: Positive = 128


class Embedding(Strict):
    """Vectors of the tokens. `size` differs from the width where a projection follows (ALBERT).

    Both stacks of an encoder-decoder have one table if it is `shared`.
    """

    size: Width | None = None
    scale: Scale | None = None
    token_types: Annotated[int, Field(ge=0, le=MAX_WIDTH)] = 0
    norm: bool = False
    shared: bool = True


class Attention(Strict):
    """What is unusual in attention: a scale other than rsqrt(head_size), a softcap, biases, heads
    of V of another size, a norm of each head of Q and K."""

    scale: Constant | None = None
    softcap: Ratio | None = None
    bias: bool | None = None
    out_bias: bool | None = None
    value_size: Width | None = None
    qk_norm: Literal["none", "layer_norm", "rms_norm"] = "none"


class Experts(Strict):
    """A mixture: `count` feed-forward networks, of which a router takes `active` for a token."""

    count: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    active: Annotated[int, Field(ge=1, le=MAX_EXPERTS)] = 2
    normalise: bool = True
    shared: Middle | None = None


class MaskPart(Strict):
    """What hides keys: padding (by the input attention_mask), causal, or a window."""

    kind: Literal["padding", "causal", "window"]
    left: Natural | None = None
    right: Natural | None = None


class Head(Strict):
    """What stands on top: `lm`, `mlm` (with a transform before it), a `classifier`, or a `pointer`
    to the input's positions.

    `tied` takes the table of the tokens as the weight.
    """

    kind: Literal["lm", "mlm", "classifier", "pointer"]
    tied: bool = True
    bias: bool | None = None
    scale: Constant | None = None
    softcap: Ratio | None = None
    probabilities: bool = False
    transform: bool = True
    activation: Activation | None = None
    labels: Rows | None = None


class Symbol(Strict):
    """The range of a symbolic size, and the size of examples."""

    min: Size = 1
    max: Size | None = None
    example: Size | None = None


class File(Strict):
    """A safetensors file, or an index of several; the path is relative to the model file.

    `names` says where parameters stand in it, `ignore` lists patterns of names that nothing uses.
    """

    file: str
    names: dict[str, str] = Field(default_factory=dict)
    ignore: list[str] = Field(default_factory=lambda: list[str]())


def _several(value: Any) -> Any:
    """One token may stand for a list of it."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


class Generation(Strict):
    """The token that the target of an encoder-decoder starts with, and those behind which
    generation ends."""

    start: Token | None = None
    stop: Annotated[
        list[Token], BeforeValidator(_several, json_schema_input_type=list[Token] | Token)
    ] = Field(default_factory=lambda: list[int]())


Symbols = Annotated[dict[str, Symbol], Field(default_factory=dict)]


class HighLevel(Strict):
    """A Transformer by its hyperparameters."""

    name: str | None = None
    kind: Literal["encoder", "decoder", "encoder-decoder"] = "encoder"
    layers: Layers
    width: Width
    heads: Width | None = None
    kv_heads: Width | None = None
    head_size: Width | None = None
    ffn: Middle | None = None
    activation: FfnActivation = "gelu"
    gated: bool = False
    experts: Experts | None = None
    bias: bool = True
    ffn_bias: bool | None = None
    norm: Annotated[
        Norm,
        BeforeValidator(
            _short("kind"), json_schema_input_type=Norm | Literal["layer_norm", "rms_norm", "none"]
        ),
    ] = Norm()
    residual: bool = True
    residual_scale: Constant | None = None
    positions: Annotated[
        Positions,
        BeforeValidator(
            _short("kind"),
            json_schema_input_type=Positions | Position,
        ),
    ] = Positions()
    embedding: Embedding = Embedding()
    attention: Attention = Attention()
    mask: Annotated[
        list[MaskPart] | None,
        BeforeValidator(
            _masks,
            json_schema_input_type=Literal["none", "padding", "causal"]
            | MaskPart
            | list[Literal["padding", "causal"] | MaskPart],
        ),
    ] = None
    vocabulary: Rows | None = None
    share_layers: bool = False
    final_norm: bool | None = None
    pooler: bool = False
    head: Annotated[
        Head | None,
        BeforeValidator(
            _short("kind", none=True),
            json_schema_input_type=Head | Literal["none", "lm", "mlm", "classifier", "pointer"],
        ),
    ] = None
    hidden_states: bool = False
    symbols: Symbols
    dtype: FloatType = "float32"
    target: str | None = None
    arch: Arch | None = None
    tokenizer: str | None = None
    generation: Generation | None = None
    seed: Seed = 0
    weights: Annotated[
        File | None, BeforeValidator(_short("file"), json_schema_input_type=File | str | None)
    ] = None


class FreeForm(Strict):
    """A graph by its nodes, in any order. Types and calls are as in the textual IR, without `%`:

    `x: f32[batch,seq,64]`, `ids: i64[batch,seq] = ids(1000)`, `y: softmax(x) {axis=-1}`.
    """

    name: str | None = None
    inputs: dict[str, str]
    weights: dict[str, str] = Field(default_factory=dict)
    nodes: dict[str, str]
    outputs: dict[str, str]
    symbols: Symbols
    constraints: list[str] = Field(default_factory=lambda: list[str]())
    target: str | None = None
    arch: Arch | None = None
    tokenizer: str | None = None
    seed: Seed = 0
    checkpoint: Annotated[
        File | None, BeforeValidator(_short("file"), json_schema_input_type=File | str | None)
    ] = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of model files (draft 2020-12), for editors."""
    schema = TypeAdapter(HighLevel | FreeForm).json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tfgraph model",
        "description": "A model file of tfgraph: a Transformer by its hyperparameters, or a graph.",
        **schema,
    }
