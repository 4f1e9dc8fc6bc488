"""A block: an actor program with its weights, packed. Blocks are broadcast, and run in place.

Numbers are little-endian. Sections follow one another, each at a multiple of 64 bytes; records.py
defines the records:

    header
    values      the observation, then the value of each step
    weights     kernels (rank 2 and 4) in their storage, vectors (rank 1) in float32
    steps
    indices     uint32: the inputs of each step, then the outputs
    names       UTF-8
    data        of the weights, each at a multiple of 64

A kernel is stored as [segments, length, m]: one segment of k values for a dense step, kh segments
of kw * c values for a convolution. It is split into panels of 64 output channels; the last panel
has 16, 32, 48 or 64, padded with zeros. A panel of w channels holds

    float32, float16    [segments, length, w]
    int8                [segments, ceil(length / 4), w, 4]
    int4                [segments, ceil(length / 8), w, 4]: value 8 g + i in the low half of byte i
                        of group g, value 8 g + 4 + i in its high half

and is followed by float32 scales and int32 sums of codes, one for each channel. Program and bits
fix all offsets, so a block with other tables is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pads
from qgraph.rl.actor.ends import first_layers, last_layers
from qgraph.rl.actor.ops import Shape
from qgraph.rl.actor.ops.arithmetic import LANES
from qgraph.rl.actor.program import ActorProgram, ActorStep
from qgraph.rl.actor.records import (
    ALIGNMENT,
    COLUMNS,
    FORMAT,
    HEADER,
    MAGIC,
    MAX_RANK,
    NO_WEIGHT,
    STEP,
    STORAGES,
    VALUE,
    WEIGHT,
)

PANEL = 64  # output channels of a panel
MAX_SUM = 1 << 16  # products in one sum: 2^16 * 255 * 128 fits into 31 bits
MAX_COUNT = 1 << 12
MAX_NUMBERS = 1 << 24  # of all values for one observation, and of one value with its padding
BITS = (2, 3, 4, 5, 6, 7, 8, 16, 32)


@dataclass(frozen=True)
class Kernel:
    """The place and the format of a kernel in a block."""

    name: str
    shape: Shape
    bits: int
    data: int
    scale: int  # 0 for float32 and float16, which have no scales
    sums: int

    @property
    def storage(self) -> str:
        return {32: "float32", 16: "float16"}.get(self.bits, "int8" if self.bits > 4 else "int4")

    @property
    def exact(self) -> bool:
        """Whether the codes are integers."""
        return self.bits <= 8

    @property
    def high(self) -> int:
        """The largest code; the lowest is -high."""
        return int((1 << (self.bits - 1)) - 1)

    @property
    def form(self) -> tuple[int, int, int]:
        """Segments, values in one, output channels."""
        return kernel_form(self.shape)

    @property
    def rows(self) -> int:
        """Values of a segment, with padding."""
        return ceil(self.form[1], {"int8": 4, "int4": 8}.get(self.storage, 1))

    @property
    def channels(self) -> int:
        return ceil(self.form[2], LANES)

    @property
    def size(self) -> int:
        """Bytes of the data."""
        values = self.form[0] * self.rows * self.channels
        return values * {"float32": 8, "float16": 4, "int8": 2, "int4": 1}[self.storage] // 2


def kernel_form(shape: Shape) -> tuple[int, int, int]:
    return (shape[0] if len(shape) == 4 else 1), math.prod(shape[-3:-1]), shape[-1]


class Layout:
    """The offsets in the blocks of a program, for given bits."""

    def __init__(self, program: ActorProgram, bits: Mapping[str, int], main: int) -> None:
        """bits: of each kernel; main: the bits in the header."""
        self.program = program
        self.bits = main
        self.kernels: dict[str, Kernel] = {}
        self.vectors: dict[str, int] = {}  # their offsets
        names = _Names()
        values = np.zeros(1 + len(program.steps), VALUE)
        weights = np.zeros(len(program.weight_shapes), WEIGHT)
        steps = np.zeros(len(program.steps), STEP)
        indices = self._indices()
        self.shapes = program.shapes()
        for row, (name, shape) in zip(values, self.shapes.items(), strict=True):
            _describe(row, name, shape, names)
        for row, (name, shape) in zip(weights, program.weight_shapes.items(), strict=True):
            _describe(row, name, shape, names)
        for row, step in zip(steps, program.steps, strict=True):
            self._write_step(row, step)
        header = np.zeros((), HEADER)
        parts = [header, values, weights, steps, indices, names.bytes()]
        at = sum(ceil(part.nbytes, ALIGNMENT) for part in parts)
        for row, (name, shape) in zip(weights, program.weight_shapes.items(), strict=True):
            at = self._place(row, name, shape, bits.get(name, 32), at)
        header["magic"], header["format"], header["bits"] = MAGIC, FORMAT, main
        header["size"] = self.size = at
        header["values"], header["weights"], header["steps"] = map(len, (values, weights, steps))
        header["indices"], header["outputs"] = len(indices), len(program.outputs)
        header["names"] = parts[-1].size
        self.tables = b"".join(_padded(part.tobytes()) for part in parts)

    def _indices(self) -> Array:
        place = {name: i for i, name in enumerate(self.program.shapes())}
        used = [name for step in self.program.steps for name in step.inputs]
        return np.array([place[name] for name in (*used, *self.program.outputs)], "<u4")

    def _write_step(self, row: np.void, step: ActorStep) -> None:
        places = {name: i for i, name in enumerate(self.program.weight_shapes)}
        row["op"] = step.definition.code
        row["output"] = list(self.shapes).index(step.output)
        row["inputs"] = len(step.inputs)
        row["weights"] = ([places[name] for name in step.weights] + [NO_WEIGHT] * 2)[:2]
        for name, value in step.attrs.items():
            column = COLUMNS[name]
            row[column.name] = np.array(column.write(value))

    def _place(self, row: np.void, name: str, shape: Shape, bits: int, at: int) -> int:
        row["data"] = at
        if len(shape) == 1:
            row["bits"] = 32
            self.vectors[name] = at
            return at + ceil(4 * shape[0], ALIGNMENT)
        plain = Kernel(name, shape, bits, at, 0, 0)
        at += ceil(plain.size, ALIGNMENT)
        if plain.exact:
            row["scale"], row["sums"] = at, at + 4 * plain.channels
            at += 8 * plain.channels
        self.kernels[name] = Kernel(
            name, shape, bits, *(int(row[key]) for key in ("data", "scale", "sums"))
        )
        row["storage"], row["bits"] = STORAGES.index(plain.storage), bits
        return ceil(at, ALIGNMENT)


def layout(
    program: ActorProgram,
    bits: int = 8,
    first_bits: int | None = None,
    last_bits: int | None = None,
) -> Layout:
    """The layout of blocks with kernels of `bits` bits.

    first_bits, last_bits: other bits of the first and of the last layers. Dueling heads and
    several outputs have several of these (`qgraph.rl.actor.ends`). Raises UsageError for bits that
    are not supported, UnsupportedError for a program that a block cannot hold.
    """
    for given in (bits, first_bits, last_bits):
        if given is not None and given not in BITS:
            raise UsageError(f"weights can have {_words(BITS)} bits, not {given}")
    check_sizes(program)
    kernels = [step.weights[0] for step in program.steps if step.definition.layer]
    chosen = dict.fromkeys(kernels, bits)
    if first_bits is not None:
        chosen |= {step.weights[0]: first_bits for step in first_layers(program)}
    if last_bits is not None:
        chosen |= {step.weights[0]: last_bits for step in last_layers(program)}
    return Layout(program, {**dict.fromkeys(program.weight_shapes, bits), **chosen}, bits)


def check_sizes(program: ActorProgram) -> None:
    """Raise UnsupportedError for a program that is too large for a block."""
    for name, shape in program.shapes().items():
        if not 1 <= len(shape) <= MAX_RANK or min(shape) < 1:
            raise UnsupportedError(f"actors do not support values of shape {shape}", node=name)
    for name, shape in program.weight_shapes.items():
        if len(shape) not in (1, 2, 4) or min(shape) < 1:
            raise UnsupportedError(f"actors do not support weights of shape {shape}", node=name)
        if len(shape) > 1 and math.prod(shape[:-1]) > MAX_SUM:
            terms = math.prod(shape[:-1])
            raise UnsupportedError(f"a sum of {terms} products may exceed 32 bits", node=name)
    if max(len(program.steps), len(program.weight_shapes), len(program.outputs)) >= MAX_COUNT:
        raise UnsupportedError(f"actors need fewer than {MAX_COUNT} steps, weights and outputs")
    shapes = program.shapes()
    if sum(map(math.prod, shapes.values())) > MAX_NUMBERS:
        raise UnsupportedError(f"the values of all steps have more than {MAX_NUMBERS} numbers")
    for step in program.steps:
        pads: Pads | None = getattr(step.attrs, "pads", None)
        if pads is not None:
            height, width, channels = shapes[step.inputs[0]]
            if (height + sum(pads[0])) * (width + sum(pads[1])) * channels > MAX_NUMBERS:
                raise UnsupportedError("the padding is too large", node=step.output)
    if not program.outputs:
        raise UnsupportedError("the program has no output")


class _Names:
    """The section of names."""

    def __init__(self) -> None:
        self._text = b""

    def add(self, name: str) -> tuple[int, int]:
        """The place and the length of a name that is added."""
        begin, text = len(self._text), name.encode()
        self._text += text
        return begin, len(text)

    def bytes(self) -> Array:
        return np.frombuffer(self._text, np.uint8)


def _describe(row: np.void, name: str, shape: Shape, names: _Names) -> None:
    row["name"], row["name_size"] = names.add(name)
    row["rank"] = len(shape)
    row["shape"][: len(shape)] = shape


def ceil(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _padded(section: bytes) -> bytes:
    return section.ljust(ceil(len(section), ALIGNMENT), b"\0")


def _words(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" or {numbers[-1]}"
