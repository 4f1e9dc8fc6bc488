"""A reader of `.qgi` files, written only from docs/integer_program.md: it does not import
qgraph.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

MAGIC = b"\x89QGI\r\n\x1a\n"
HEADER = struct.Struct("<8sIIQ8I8s")
TENSOR = struct.Struct("<IIBBB5sqqqQ8I")
STEP = struct.Struct("<IIII")
STORAGES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
COMPUTED, CONSTANT, ENTRY = range(3)
LARGEST = 1 << 53

OPS = (
    *("conv2d", "depthwise_conv2d", "matmul", "add", "sub", "mul", "maximum", "minimum", "clip"),
    *("requantize", "lookup", "max_pool", "reduce_max", "reshape", "transpose", "slice", "concat"),
    *("pad", "take", "standardize", "abs", "batch_matmul", "softmax", "embedding"),
)
ROUNDINGS = ("half_even", "half_up", "half_away", "floor", "double")
OVERFLOWS = ("saturate", "wrap")

Attrs = dict[str, Any]


class Refused(Exception):
    """The file does not match the specification."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Refused(what)


@dataclass(frozen=True)
class Tensor:
    name: str
    storage: str
    kind: int
    low: int
    high: int
    magnitude: int
    shape: tuple[int, ...]
    codes: Any = None


@dataclass(frozen=True)
class Step:
    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: Attrs


@dataclass(frozen=True)
class File:
    batch_free: bool
    tensors: dict[str, Tensor]
    entries: tuple[str, ...]
    exits: tuple[str, ...]
    steps: tuple[Step, ...]


class Numbers:
    """The attributes of one step, one after the other."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.left = list(numbers)

    def one(self) -> int:
        require(bool(self.left), "a step has too few numbers")
        return self.left.pop(0)

    def pair(self) -> tuple[int, int]:
        return self.one(), self.one()

    def pads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.pair(), self.pair()

    def counted(self) -> tuple[int, ...]:
        return tuple(self.one() for _ in range(self.one()))

    def by_channel(self) -> int | tuple[int, ...] | None:
        found = self.counted()
        return None if not found else found[0] if len(found) == 1 else found

    def choice(self, choices: tuple[Any, ...]) -> Any:
        place = self.one()
        require(0 <= place < len(choices), "a number is not one of the choices")
        return choices[place]


def _window(n: Numbers) -> Attrs:
    return {"strides": n.pair(), "dilations": n.pair(), "pads": n.pads()}


def _requantize(n: Numbers) -> Attrs:
    rounding, overflow = n.choice(ROUNDINGS), n.choice(OVERFLOWS)
    low, high = n.pair()
    return {
        "rounding": rounding,
        "overflow": overflow,
        "low": low,
        "high": high,
        "shift": n.by_channel(),
    }


# By op: its attributes, read from its numbers. `slice` and `reshape` need shapes and are below.
NUMBERS = {
    "conv2d": lambda n: {**_window(n), "groups": n.one()},
    "depthwise_conv2d": _window,
    **dict.fromkeys(
        ("matmul", "batch_matmul", "add", "sub", "mul", "maximum", "minimum", "abs", "embedding"),
        lambda n: {},
    ),
    "clip": lambda n: {"low": n.by_channel(), "high": n.by_channel()},
    "requantize": _requantize,
    "lookup": lambda n: {"offset": n.one()},
    "max_pool": lambda n: {"ksize": n.pair(), "strides": n.pair(), "pads": n.pads()},
    "reduce_max": lambda n: {"keepdims": n.choice((False, True)), "axes": n.counted()},
    "transpose": lambda n: {"perm": n.counted()},
    "concat": lambda n: {"axis": n.one()},
    "take": lambda n: {"axis": n.one(), "indices": n.counted()},
    "softmax": lambda n: {"bits": n.one(), "high": n.one()},
    "standardize": lambda n: {"guard": n.one(), "epsilon": n.one(), "shift": n.one()},
}
NEED_SHAPES = ("reshape", "slice", "pad")


def _attributes(op: str, n: Numbers, x: Tensor, y: Tensor, batch_free: bool) -> Attrs:
    if op == "reshape":
        return {"shape": y.shape}
    if op == "pad":
        return {"paddings": tuple(n.pair() for _ in x.shape)}
    if op == "slice":
        parts = [n.pair() for _ in x.shape]
        ends = [_end(*part, size) for part, size in zip(parts, y.shape, strict=True)]
        if batch_free:
            ends[0] = None
        begin, strides = zip(*parts, strict=True) if parts else ((), ())
        return {"begin": begin, "end": tuple(ends), "strides": strides}
    return NUMBERS[op](n)


def _end(begin: int, stride: int, size: int) -> int | None:
    end = begin + size * stride
    return None if end < 0 else end


def parse(data: bytes) -> File:
    """The program that a file holds. Raises Refused."""
    require(len(data) >= HEADER.size, "too short")
    magic, version, checksum, size, flags, *counts, reserved = HEADER.unpack_from(data)
    require(magic == MAGIC, "another magic")
    require(version == 1, f"version {version}")
    require(size == len(data), "another size")
    require(zlib.crc32(data[:12] + bytes(4) + data[16:]) == checksum, "another checksum")
    require(flags in (0, 1) and reserved == bytes(8), "reserved bits are set")
    tensors, steps, entries, exits, indices, numbers, names = counts
    require(tensors <= 32768, "too many tensors")
    at = HEADER.size

    def section(bytes_each: int, count: int) -> bytes:
        nonlocal at
        begin, end = at, at + bytes_each * count
        require(end <= size, "a section goes past the end")
        at = -(-end // 64) * 64
        return data[begin:end]

    records = list(TENSOR.iter_unpack(section(TENSOR.size, tensors)))
    rows = list(STEP.iter_unpack(section(STEP.size, steps)))
    places = struct.unpack(f"<{indices}I", section(4, indices))
    values = struct.unpack(f"<{numbers}q", section(8, numbers))
    text = section(1, names)

    made = [_tensor(record, text, data) for record in records]
    by_name = {tensor.name: tensor for tensor in made}
    require(len(by_name) == len(made), "two tensors have the same name")
    require(all(place < tensors for place in places), "an index is of no tensor")
    named = [made[place].name for place in places]
    free = flags == 1
    take_name, take_number = _ItemReader(named), _ItemReader(values)
    found = File(free, by_name, take_name(entries), take_name(exits), ())
    ordered = []
    for op, output, inputs, own in rows:
        require(op < len(OPS) and output < tensors, "an unknown op or output")
        operands, n = take_name(inputs), Numbers(take_number(own))
        x = by_name[operands[0]] if operands else made[output]
        attrs = _attributes(OPS[op], n, x, made[output], free)
        require(not n.left, "a step has too many numbers")
        ordered.append(Step(OPS[op], operands, made[output].name, attrs))
    require(take_name.done and take_number.done, "numbers are left over")
    return File(free, by_name, found.entries, found.exits, tuple(ordered))


class _ItemReader:
    """Items of a section, some at a time."""

    def __init__(self, items: Any) -> None:
        self.items, self.at = tuple(items), 0

    def __call__(self, count: int) -> Any:
        require(self.at + count <= len(self.items), "a section has too few items")
        self.at += count
        return self.items[self.at - count : self.at]

    @property
    def done(self) -> bool:
        return self.at == len(self.items)


def _tensor(record: tuple[Any, ...], text: bytes, data: bytes) -> Tensor:
    begin, count, storage, kind, rank, reserved, low, high, magnitude, at, *shape = record
    require(begin + count <= len(text), "a name lies outside of the names")
    name = text[begin : begin + count].decode()
    require(storage < len(STORAGES) and kind <= ENTRY and rank <= 8, f"{name}: unknown numbers")
    require(reserved == bytes(5) and not any(shape[rank:]), f"{name}: reserved bits are set")
    sizes, dtype = tuple(shape[:rank]), np.dtype(STORAGES[storage]).newbyteorder("<")
    require(all(sizes), f"{name}: an axis of size 0")
    limits = np.iinfo(dtype)
    require(-LARGEST <= low <= high <= LARGEST, f"{name}: a range past 2^53")
    require(limits.min <= low and high <= limits.max, f"{name}: a range that its type cannot hold")
    require(0 <= magnitude <= LARGEST, f"{name}: a magnitude past 2^53")
    if kind != CONSTANT:
        require(at == 0, f"{name}: it has codes and is not a constant")
        return Tensor(name, STORAGES[storage], kind, low, high, magnitude, sizes)
    count = int(np.prod(sizes, dtype=object))
    require(at % 64 == 0 and at + count * dtype.itemsize <= len(data), f"{name}: codes outside")
    codes = np.frombuffer(data, dtype, count, at).reshape(sizes).astype(np.int64)
    require(low <= codes.min() and codes.max() <= high, f"{name}: codes outside of the range")
    return Tensor(name, STORAGES[storage], kind, low, high, magnitude, sizes, codes)
