"""The engine's file, `.qgi`: a program in bytes that are mapped into memory and run.

fused_ops/engine/format.h has the layout, and parse.cpp beside it reads it. Writing is here alone:
a header, tables, then constants, each at a multiple of 64, all little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.ir.types import ROUNDINGS, Overflow
from qgraph.program import Program, Step, Tensor

MAGIC = b"\x89QGI\r\n\x1a\n"
VERSION = 1
ALIGNMENT = 64
HEADER = struct.Struct("<8sIIQ8I8x")  # magic, version, checksum, size, flags, counts
CHECKSUM_AT = 12
TENSOR = struct.Struct("<IIBBB5xqqqQ8I")
STEP = struct.Struct("<IIII")
MAX_RANK = 8

# The order is that of the enumerations in fused_ops/engine/.
STORAGES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
COMPUTED, CONSTANT, ENTRY = range(3)
OPS = (
    *("conv2d", "depthwise_conv2d", "matmul", "add", "sub", "mul", "maximum", "minimum"),
    *("clip", "requantize", "lookup", "max_pool", "reduce_max", "reshape", "transpose"),
    *("slice", "concat", "pad", "take", "standardize"),
)

Attrs = Mapping[str, Any]
Shape = tuple[int, ...]
Numbers = list[int]


def engine_file(program: Program) -> bytes:
    """The bytes of a program's file. Raises UnsupportedError for what the engine does not run."""
    order = list(program.tensors)
    index = {name: i for i, name in enumerate(order)}
    entries = [index[e.tensor] for e in program.entries]
    exits = [index[name] for name in program.exits]
    names = [name.encode() for name in order]
    indices, numbers, steps = [*entries, *exits], Numbers(), list[bytes]()
    for step in program.steps:
        own = _numbers(program, step)
        operands = [index[name] for name in step.inputs]
        steps.append(STEP.pack(OPS.index(step.op), index[step.output], len(operands), len(own)))
        indices += operands
        numbers += own
    sections = [
        b"".join(steps),
        np.asarray(indices, "<u4").tobytes(),
        np.asarray(numbers, "<i8").tobytes(),
        b"".join(names),
    ]
    begin = _aligned(HEADER.size) + _aligned(TENSOR.size * len(order))
    at = begin + sum(_aligned(len(section)) for section in sections)
    records, constants, name_at = list[bytes](), list[bytes](), 0
    for name, text in zip(order, names, strict=True):
        data = b""
        if name in program.constants:
            tensor = program.tensors[name]
            data = np.ascontiguousarray(program.constants[name], _type(tensor)).tobytes()
        records.append(_record(program, name, (name_at, len(text)), at if data else 0))
        name_at += len(text)
        constants.append(data)
        at += _aligned(len(data))
    counts = (len(order), len(steps), len(entries), len(exits), len(indices), len(numbers), name_at)
    header = HEADER.pack(MAGIC, VERSION, 0, at, int(program.batch_free), *counts)
    return sealed(b"".join(map(_padded, [header, b"".join(records), *sections, *constants])))


def sealed(file: bytes) -> bytes:
    """The same with the right checksum: CRC-32 of the file with 0 in its place."""
    blank = file[:CHECKSUM_AT] + bytes(4) + file[CHECKSUM_AT + 4 :]
    checksum = struct.pack("<I", zlib.crc32(blank))
    return file[:CHECKSUM_AT] + checksum + file[CHECKSUM_AT + 4 :]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(section: bytes) -> bytes:
    return section.ljust(_aligned(len(section)), b"\0")


def _type(tensor: Tensor) -> str:
    return np.dtype(tensor.storage).newbyteorder("<").str


def _record(program: Program, name: str, text: tuple[int, int], data: int) -> bytes:
    tensor = program.tensors[name]
    if len(tensor.shape) > MAX_RANK or 0 in tensor.shape:
        raise UnsupportedError(f"the engine has no tensors of shape {tensor.shape}", node=name)
    is_entry = any(entry.tensor == name for entry in program.entries)
    kind = CONSTANT if name in program.constants else ENTRY if is_entry else COMPUTED
    shape = (*tensor.shape, *(0,) * (MAX_RANK - len(tensor.shape)))
    storage, rank = STORAGES.index(tensor.storage), len(tensor.shape)
    limits = (tensor.low, tensor.high, tensor.magnitude)
    return TENSOR.pack(*text, storage, kind, rank, *limits, data, *shape)


# -- what each op says of itself --------------------------------------------------------------


def _numbers(program: Program, step: Step) -> Numbers:
    shapes = [program.tensors[name].shape for name in step.inputs]
    if step.op in ("conv2d", "depthwise_conv2d", "matmul") and (
        step.inputs[1] not in program.constants
    ):
        raise UnsupportedError("the engine needs constant weights", node=step.output)
    write = NUMBERS.get(step.op)
    return [int(n) for n in write(step.attrs, shapes)] if write else []


def _many(numbers: Any) -> Numbers:
    """Their count, then numbers: none, one, or one for each channel."""
    found = [] if numbers is None else [int(n) for n in np.atleast_1d(numbers)]
    return [len(found), *found]


def _window(attrs: Attrs, dilated: bool = True) -> Numbers:
    (top, bottom), (left, right) = attrs["pads"]
    dilations = attrs["dilations"] if dilated else ()
    return [*attrs["strides"], *dilations, top, bottom, left, right]


def _requantize(attrs: Attrs, shapes: Sequence[Shape]) -> Numbers:
    modes = [ROUNDINGS.index(attrs["rounding"]), int(attrs["overflow"] == Overflow.WRAP)]
    return [*modes, attrs["low"], attrs["high"], *_many(attrs["shift"])]


def _slice(attrs: Attrs, shapes: Sequence[Shape]) -> Numbers:
    """Where each dimension begins, and its step; the output's shape says where it ends."""
    parts = zip(attrs["begin"], attrs["end"], attrs["strides"], shapes[0], strict=True)
    found = [slice(*part).indices(size) for *part, size in parts]
    return [number for begin, _, stride in found for number in (begin, stride)]


def _reduce_max(attrs: Attrs, shapes: Sequence[Shape]) -> Numbers:
    axes = sorted({axis % len(shapes[0]) for axis in attrs["axes"]})
    return [int(attrs["keepdims"]), *_many(axes)]


def _take(attrs: Attrs, shapes: Sequence[Shape]) -> Numbers:
    axis = attrs["axis"] % len(shapes[0])
    return [axis, *_many(np.asarray(attrs["indices"]) % shapes[0][axis])]


NUMBERS: Mapping[str, Callable[[Attrs, Sequence[Shape]], Sequence[int]]] = {
    "conv2d": lambda attrs, shapes: [*_window(attrs), attrs["groups"]],
    "depthwise_conv2d": lambda attrs, shapes: _window(attrs),
    "clip": lambda attrs, shapes: [*_many(attrs["low"]), *_many(attrs["high"])],
    "requantize": _requantize,
    "lookup": lambda attrs, shapes: [attrs["offset"]],
    "standardize": lambda a, shapes: [a["guard"], a["epsilon"], a["shift"]],
    "max_pool": lambda attrs, shapes: [*attrs["ksize"], *_window(attrs, dilated=False)],
    "reduce_max": _reduce_max,
    "transpose": lambda attrs, shapes: _many([axis % len(shapes[0]) for axis in attrs["perm"]]),
    "slice": _slice,
    "concat": lambda attrs, shapes: [attrs["axis"] % len(shapes[0])],
    "pad": lambda attrs, shapes: [n for pair in attrs["paddings"] for n in pair],
    "take": _take,
}
