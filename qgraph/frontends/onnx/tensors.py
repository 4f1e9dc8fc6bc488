"""Constants of a model, from the file itself or from external data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from qgraph.errors import LoadError, UnsupportedError
from qgraph.foreign import OnnxObject, Proto
from qgraph.ir.narrow_floats import widened_array, widened_dtype
from qgraph.ir.types import Array

NUMPY = frozenset(
    (
        "float32", "float64", "int8", "int16", "int32", "int64",
        "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128",
    )
)  # fmt: skip
HINT = "the file is damaged or truncated"


def dtype_name(kind: OnnxObject, node: str) -> str:
    """The IR's name of an element type: ONNX's number for it, or a numpy dtype.

    Float types narrower than float32 are float32.
    """
    return widened_dtype(_stored_dtype(kind, node))


def _stored_dtype(kind: OnnxObject, node: str) -> str:
    import onnx

    if isinstance(kind, int):
        if kind == onnx.TensorProto.STRING:
            return "string"
        if kind not in onnx.TensorProto.DataType.values() or kind == 0:
            raise LoadError(f"element type {kind} does not exist", node=node, hint=HINT)
        kind = onnx.helper.tensor_dtype_to_np_dtype(kind)
    dtype = np.dtype(kind)
    if dtype.kind in "OSU":
        return "string"
    if widened_dtype(dtype.name) not in NUMPY:
        raise UnsupportedError(f"tensors of {dtype.name} are not supported", node=node)
    return str(dtype.name)


def narrow_types(proto: Proto) -> frozenset[str]:
    """The float types narrower than float32 of a model's inputs, outputs, constants and casts."""
    import onnx

    names: dict[int, str] = {
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.BFLOAT16: "bfloat16",
    }
    return frozenset(names[kind] for kind in _element_types(proto.graph) if kind in names)


def _element_types(graph: Proto) -> Iterator[int]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.type.tensor_type.elem_type
    yield from (tensor.data_type for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t.data_type
            if (node.op_type, attribute.name) == ("Cast", "to"):
                yield attribute.i


def decode(proto: Proto, folder: Path | None, node: str) -> Array:
    """The array of a TensorProto; a view of the bytes of the file where possible.

    Values of float types narrower than float32 are given in float32.
    `folder` is the place of external data, None if there is none. Raises LoadError
    where the data does not fit the shape, UnsupportedError for element types that numpy lacks.
    """
    array: Array = widened_array(_as_stored(proto, folder, node))
    return array


def _as_stored(proto: Proto, folder: Path | None, node: str) -> Array:
    import onnx

    kind, shape = _stored_dtype(proto.data_type, node), tuple(int(d) for d in proto.dims)
    if any(d < 0 for d in shape):
        raise LoadError(f"a constant of shape {shape}", node=node, hint=HINT)
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        return _external(proto, folder, shape, kind, node)
    if kind != "string" and proto.HasField("raw_data"):
        size = math.prod(shape) * np.dtype(kind).itemsize
        if len(proto.raw_data) != size:
            raise _misfit(len(proto.raw_data), size, node)
        return np.frombuffer(proto.raw_data, np.dtype(kind).newbyteorder("<")).reshape(shape)
    try:
        array = np.asarray(onnx.numpy_helper.to_array(proto))
    except Exception as error:  # the decoder may raise anything on a damaged tensor
        raise LoadError(f"the constant cannot be decoded: {error}", node=node) from None
    if array.shape != shape:
        raise LoadError(f"the constant holds {array.shape}, not {shape}", node=node, hint=HINT)
    return array


def _misfit(found: int, wanted: int, node: str) -> LoadError:
    return LoadError(f"the constant has {found} bytes, its shape {wanted}", node=node, hint=HINT)


def _external(
    proto: Proto, folder: Path | None, shape: tuple[int, ...], kind: str, node: str
) -> Array:
    entries = {entry.key: entry.value for entry in proto.external_data}
    path = _inside(folder, entries.get("location", ""), node)
    if kind == "string":
        raise UnsupportedError("external data of text is not supported", node=node)
    dtype = np.dtype(kind).newbyteorder("<")
    size = math.prod(shape) * dtype.itemsize
    offset, length = _number(entries, "offset", 0, node), _number(entries, "length", size, node)
    if length != size:
        raise _misfit(length, size, node)
    try:
        there = path.stat().st_size
        if offset + size > there:
            raise LoadError(
                f"its data ends at byte {offset + size} of `{path.name}`, which has {there}",
                node=node,
                hint=HINT,
            )
        if size == 0:
            return np.zeros(shape, kind)
        # A plain array over the mapping, like any other for callers.
        return np.asarray(np.memmap(path, dtype, "r", offset, shape if shape else (1,))).reshape(
            shape
        )
    except OSError as error:
        raise LoadError(
            f"`{path.name}`, which holds its data, cannot be read: {error.strerror or error}",
            node=node,
            hint="keep it next to the model",
        ) from None


def _inside(folder: Path | None, location: str, node: str) -> Path:
    """The file `location` in `folder`, links resolved; no file outside `folder` is opened."""
    if folder is None:
        raise LoadError("its data is in another file", node=node, hint="load the model by its path")
    root = folder.resolve()
    path = _resolved(root, location)
    if path is None or path == root or root not in path.parents:
        raise LoadError(
            f"its data is in `{location}`, which is not in the model's folder",
            node=node,
            hint="keep it next to the model",
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise LoadError(f"`{location}`, which holds its data, is not a file", node=node)
    return path


def _resolved(root: Path, location: str) -> Path | None:
    try:
        return (root / location).resolve() if location else None
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a zero byte
        return None


def _number(entries: dict[str, str], key: str, default: int, node: str) -> int:
    try:
        value = int(entries.get(key, default))
    except ValueError:
        value = -1
    if value < 0:
        raise LoadError(f"external data with {key} `{entries[key]}`", node=node, hint=HINT)
    return value
