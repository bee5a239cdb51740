"""Damaged ONNX files, seeded: bytes that are changed, and messages that say something else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import onnx

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (0, 1, 2, 3, 7, -1, -2, 127, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
NAMES = ("", "x", "input_ids", "\0", "9", "a b", "../x", "seq", "min", "é", "n" * 600)


def mutated(data: bytes, seed: int) -> bytes:
    """The file with a few changes, of bytes or of fields."""
    r = random.Random(seed)
    if r.random() < 0.4:
        return _bytes(data, r)
    model = onnx.ModelProto.FromString(data)
    for _ in range(r.choice((1, 1, 2, 4))):
        r.choice(_CHANGES)(model, r)
    return model.SerializeToString()


def _bytes(data: bytes, r: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(r.choice((1, 2, 8, 64))):
        # Structure stands at the front and around names, weights fill the rest.
        at = r.randrange(min(len(changed), r.choice((64, 4096, len(changed)))))
        match r.randrange(5):
            case 0:
                changed[at] ^= 1 << r.randrange(8)
            case 1:
                changed[at] = r.choice((0, 1, 127, 128, 255))
            case 2:
                del changed[at : at + r.choice((1, 2, 100))]
            case 3:
                changed[at:at] = bytes(r.randrange(256) for _ in range(r.choice((1, 8))))
            case _:
                if r.random() < 0.2:
                    del changed[at:]
        if not changed:
            break
    return bytes(changed)


def _node(model: onnx.ModelProto, r: random.Random) -> onnx.NodeProto:
    return r.choice(model.graph.node)


def _rewire(model: onnx.ModelProto, r: random.Random) -> None:
    """A node reads another value: wrong types, shapes and cycles."""
    node = _node(model, r)
    if node.input:
        names = [n for other in model.graph.node for n in other.output]
        names += [t.name for t in model.graph.initializer] + list(NAMES)
        node.input[r.randrange(len(node.input))] = r.choice(names)


def _drop_input(model: onnx.ModelProto, r: random.Random) -> None:
    node = _node(model, r)
    if node.input:
        del node.input[r.randrange(len(node.input))]


def _add_input(model: onnx.ModelProto, r: random.Random) -> None:
    node = _node(model, r)
    node.input.append(r.choice([*_node(model, r).output, "", "x"]))


def _rename_op(model: onnx.ModelProto, r: random.Random) -> None:
    _node(model, r).op_type = r.choice([_node(model, r).op_type, "Nonsense", "Loop", "If", ""])


def _rename_output(model: onnx.ModelProto, r: random.Random) -> None:
    node = _node(model, r)
    if node.output:
        node.output[r.randrange(len(node.output))] = r.choice([*NAMES, *_node(model, r).output])


def _attribute(model: onnx.ModelProto, r: random.Random) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return
    attribute = r.choice(r.choice(nodes).attribute)
    attribute.i = r.choice(SIZES)
    attribute.f = r.choice((0.0, float("nan"), float("inf"), -1.0, 1e38))
    if attribute.ints:
        attribute.ints[r.randrange(len(attribute.ints))] = r.choice(SIZES)
    if r.random() < 0.3:
        attribute.type = r.choice((0, 1, 2, 3, 4, 5, 6, 7, 8))  # type: ignore[assignment]
    if r.random() < 0.2:
        attribute.name = r.choice(NAMES)


def _constant(model: onnx.ModelProto, r: random.Random) -> None:
    tensors: list[Any] = list(model.graph.initializer)
    tensors += [a.t for n in model.graph.node for a in n.attribute if a.HasField("t")]
    if tensors:
        _tensor(r.choice(tensors), r)


def _tensor(tensor: onnx.TensorProto, r: random.Random) -> None:
    match r.randrange(6):
        case 0:
            tensor.data_type = r.choice((0, 1, 2, 6, 7, 8, 9, 10, 11, 16, 23, 99))
        case 1 if tensor.dims:
            tensor.dims[r.randrange(len(tensor.dims))] = r.choice(SIZES)
        case 2:
            tensor.dims.append(r.choice(SIZES))
        case 3 if tensor.raw_data and tensor.data_type == onnx.TensorProto.INT64:
            value = r.choice(SIZES).to_bytes(8, "little", signed=True)
            tensor.raw_data = value + tensor.raw_data[8:]
        case 4:
            tensor.raw_data = tensor.raw_data[: r.randrange(len(tensor.raw_data) + 1)]
        case _:
            tensor.data_location = onnx.TensorProto.EXTERNAL
            entry = tensor.external_data.add()
            entry.key, entry.value = "location", r.choice(("/etc/passwd", "../x", "", ".", "x\0"))


def _input_shape(model: onnx.ModelProto, r: random.Random) -> None:
    given = r.choice(list(model.graph.input) + list(model.graph.output))
    dims = given.type.tensor_type.shape.dim
    if not dims or r.random() < 0.2:
        given.type.tensor_type.elem_type = r.choice((0, 1, 7, 8, 9, 99))
    elif r.random() < 0.5:
        r.choice(dims).dim_value = r.choice(SIZES)
    else:
        formulas = ("seq", "batch", "a//0", "2*seq", "seq - 5", "9**9**9", "min(seq, 4)")
        r.choice(dims).dim_param = r.choice((*NAMES, *formulas))


def _drop_node(model: onnx.ModelProto, r: random.Random) -> None:
    del model.graph.node[r.randrange(len(model.graph.node))]


def _double_node(model: onnx.ModelProto, r: random.Random) -> None:
    model.graph.node.append(_node(model, r))


def _opset(model: onnx.ModelProto, r: random.Random) -> None:
    if model.opset_import:
        model.opset_import[0].version = r.choice((7, 11, 13, 18, 23, 28, *SIZES))


_CHANGES: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    *(_rewire, _rewire, _drop_input, _add_input, _rename_op, _rename_output, _attribute),
    *(_attribute, _constant, _constant, _input_shape, _drop_node, _double_node, _opset),
)
