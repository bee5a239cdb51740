"""What may stand in a model file: the high-level form and the free form, with their defaults.

The JSON Schema for editors, `model.schema.json`, is made from these classes. Sizes are limited
here, before anything is built from them. May import: schema_types, ir; pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from tfgraph.ir import exact
from tfgraph.model.schema_types import (
    MAX_BUCKETS,
    MAX_EXPERTS,
    MAX_LAYERS,
    MAX_WIDTH,
    Activation,
    Arch,
    Constant,
    Epsilon,
    FfnActivation,
    FloatType,
    HeadKind,
    Layers,
    MaskKind,
    Middle,
    Natural,
    PlainMask,
    Position,
    Positive,
    Ratio,
    Rows,
    Scale,
    Seed,
    Size,
    Term,
    Token,
    Width,
    masks_of,
    pooler_of,
    short,
)


class Strict(BaseModel):
    """No unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Norm(Strict):
    """The norm of every layer, and where it stands.

    post: norm(x + f(x)); pre: x + f(norm(x)); sandwich: x + norm(f(norm(x))); inner:
    x + norm(f(x)); parallel: x + attention(norm(x)) + ffn(norm(x)), with `shared` one norm for
    both. Without `first` the very first of these is left out.
    """

    kind: Literal["layer_norm", "rms_norm", "none"] = "layer_norm"
    placement: Literal["post", "pre", "sandwich", "inner", "parallel"] = "post"
    eps: Epsilon = exact(1e-5)
    scale: bool = True
    bias: bool | None = None
    unit_offset: bool = False
    shared: bool = True
    first: bool = True


class Scaling(Strict):
    """Frequencies of rotary positions, scaled for longer texts."""

    kind: Literal["linear", "llama3", "yarn", "longrope"]
    factor: Ratio | None = None
    original: Positive | None = None
    low: Ratio = exact(1)
    high: Ratio | None = None
    truncate: bool = True
    short: list[Ratio] | None = None
    long: list[Ratio] | None = None
    magnitude: Constant | None = None


class Positions(Strict):
    """How positions are told apart: a table of `max` rows that is added to the embeddings
    (sinusoidal, learned), heads that turn (rotary), or what is added to scores (alibi, relative,
    disentangled).

    Row offset + p is for position p. With `padding_id`, positions count the tokens other than it,
    and start behind it, as in RoBERTa; `masked`, those that the mask keeps, as in OPT.
    """

    kind: Position = "none"
    max: Positive | None = None
    offset: Natural = 0
    padding_id: Natural | None = None
    masked: bool = False
    layout: Literal["interleaved", "halves"] | None = None
    base: Ratio = exact(10000)
    size: Width | None = None
    scaling: Scaling | None = None
    scale: Constant | None = None
    buckets: Annotated[int, Field(ge=2, le=MAX_BUCKETS)] | None = None
    max_distance: Positive | None = None
    terms: list[Term] = Field(default_factory=lambda: list[Term](("c2p", "p2c")))
    shared: bool = True
    norm: bool = False


class Embedding(Strict):
    """Vectors of the tokens. Where `size` is given a projection to the width follows: behind
    positions and norm (ALBERT), or `projection_first` (OPT).

    Both stacks of an encoder-decoder have one table if it is `shared`.
    """

    size: Width | None = None
    scale: Scale | None = None
    token_types: Annotated[int, Field(ge=0, le=MAX_WIDTH)] = 0
    norm: bool = False
    shared: bool = True
    projection_first: bool = False
    projection_bias: bool = True
    project_back: bool = False


class Attention(Strict):
    """What is unusual in attention: a scale other than rsqrt(head_size), a softcap, biases, heads
    of V of another size, a norm of Q and K over each head (its scale is one for all, or each head's
    own) or over the width."""

    scale: Constant | None = None
    scale_by_layer: bool = False
    softcap: Ratio | None = None
    bias: bool | None = None
    key_bias: bool | None = None
    out_bias: bool | None = None
    value_size: Width | None = None
    qk_norm: Literal["none", "layer_norm", "rms_norm"] = "none"
    qk_norm_over: Literal["head", "own", "width"] = "head"


class Experts(Strict):
    """A mixture: `count` feed-forward networks, of which a router takes `active` for a token."""

    count: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    active: Annotated[int, Field(ge=1, le=MAX_EXPERTS)] = 2
    normalise: bool = True
    shared: Middle | None = None


class MaskPart(Strict):
    """What hides keys: causal, a window, or by an input padding, prefix, segments, dense; or a bias
    that an input adds to the scores."""

    kind: MaskKind
    left: Natural | None = None
    right: Natural | None = None


PositionsKey = Annotated[
    Positions, BeforeValidator(short("kind"), json_schema_input_type=Positions | Position)
]


class Local(Strict):
    """Layers that differ from the others in what they see, by a pattern that repeats."""

    pattern: Annotated[list[Literal["local", "full"]], Field(min_length=1, max_length=MAX_LAYERS)]
    left: Natural | None = None
    right: Natural | None = None
    positions: PositionsKey | None = None


class Encoder(Strict):
    """What the encoder of an encoder-decoder has otherwise than the decoder."""

    layers: Layers | None = None
    heads: Width | None = None
    ffn: Middle | None = None
    positions: PositionsKey | None = None


class Stem(Strict):
    """What makes vectors of an input that is no text: sound through two convolutions, or an image
    by its patches, with a vector before them for the whole."""

    kind: Literal["audio", "image"]
    channels: Width
    height: Width | None = None
    width: Width | None = None
    patch: Width | None = None
    class_token: bool = True


class Pooler(Strict):
    """One vector of a sequence: of its first token, through a linear layer and an activation; of
    the token that ends it, of the last one, or the mean of all, as they are.

    `last` is the last of the ids that are `token`, or are not `padding_id`; without either of them
    the last one that the mask keeps.
    """

    kind: Literal["first", "end", "last", "mean"] = "first"
    activation: Activation = "tanh"
    token: Natural | None = None
    padding_id: Natural | None = None
    projection: Width | None = None


class Head(Strict):
    """What stands on top: `lm`, `mlm` (with a transform before it), a `classifier` of the sequence,
    a `token_classifier`, the ends of a `span`, a `detector` of tokens, or a `pointer` to the
    input's positions.

    `tied` takes the table of the tokens as the weight.
    """

    kind: HeadKind
    tied: bool = True
    bias: bool | None = None
    scale: Constant | None = None
    softcap: Ratio | None = None
    probabilities: bool = False
    transform: bool | None = None
    transform_bias: bool = True
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


Tokens = Annotated[
    list[Token],
    BeforeValidator(_several, json_schema_input_type=list[Token] | Token),
    Field(default_factory=lambda: list[int]()),
]


class Generation(Strict):
    """The tokens that the target of an encoder-decoder starts with, those behind which generation
    ends, and those that it never takes, or not as the first."""

    start: Tokens
    stop: Tokens
    suppress: Tokens
    suppress_first: Tokens


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
            short("kind"), json_schema_input_type=Norm | Literal["layer_norm", "rms_norm", "none"]
        ),
    ] = Norm()
    residual: bool = True
    residual_scale: Constant | None = None
    positions: PositionsKey = Positions()
    embedding: Embedding = Embedding()
    attention: Attention = Attention()
    local: Local | None = None
    encoder: Encoder | None = None
    decoder_start: Token | None = None
    mask: Annotated[
        list[MaskPart] | None,
        BeforeValidator(
            masks_of,
            json_schema_input_type=Literal["none"]
            | PlainMask
            | MaskPart
            | list[PlainMask | MaskPart],
        ),
    ] = None
    vocabulary: Rows | None = None
    stem: Stem | None = None
    convolution: Activation | None = None
    share_layers: bool = False
    final_norm: bool | Literal["above"] | None = None
    pooler: Annotated[
        Pooler | None, BeforeValidator(pooler_of, json_schema_input_type=Pooler | bool)
    ] = None
    head: Annotated[
        Head | None,
        BeforeValidator(
            short("kind", none=True),
            json_schema_input_type=Head | Literal["none"] | HeadKind,
        ),
    ] = None
    hidden_states: bool = False
    symbols: Symbols
    dtype: FloatType = "float32"
    target: str | None = None
    arch: Arch | None = None
    tf32: bool = False
    tokenizer: str | None = None
    generation: Generation | None = None
    seed: Seed = 0
    weights: Annotated[
        File | None, BeforeValidator(short("file"), json_schema_input_type=File | str | None)
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
    tf32: bool = False
    tokenizer: str | None = None
    seed: Seed = 0
    checkpoint: Annotated[
        File | None, BeforeValidator(short("file"), json_schema_input_type=File | str | None)
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
