"""The engine's file, `.qgi`: a program in bytes that are mapped into memory and run.

docs/integer_program.md describes it, records.py has its records, fused_ops/engine/parse.cpp reads
it.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from qgraph.backends.engine.records import (
    ALIGNMENT,
    BATCH_FREE,
    HEADER,
    MAGIC,
    MAX_RANK,
    STEP,
    STORAGES,
    TENSOR,
    VERSION,
    Kind,
)
from qgraph.errors import UnsupportedError
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Program, Step, Tensor
from qgraph.program.ops import OPS, OpClass

# The number of each op, which is its value of `Op` in fused_ops/engine/ops.h.
LOWERINGS = Lowerings("backends/engine/file", OPS, {op.name: op.code for op in OPS.values()})

Numbers = list[int]
CHECKSUM_AT = 12


def engine_file(program: Program) -> bytes:
    """The bytes of a program's file. Raises UnsupportedError for steps that the engine lacks."""
    order = list(program.tensors)
    index = {name: i for i, name in enumerate(order)}
    entries = [index[e.tensor] for e in program.entries]
    exits = [index[name] for name in program.exits]
    names = [name.encode() for name in order]
    indices, numbers, steps = [*entries, *exits], Numbers(), list[bytes]()
    for step in program.steps:
        own = _numbers(program, step)
        operands = [index[name] for name in step.inputs]
        steps.append(
            STEP.struct.pack(
                LOWERINGS.of(step.op, step.output), index[step.output], len(operands), len(own)
            )
        )
        indices += operands
        numbers += own
    sections = [
        b"".join(steps),
        np.asarray(indices, "<u4").tobytes(),
        np.asarray(numbers, "<i8").tobytes(),
        b"".join(names),
    ]
    begin = _aligned(HEADER.struct.size) + _aligned(TENSOR.struct.size * len(order))
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
    flags = BATCH_FREE if program.batch_free else 0
    header = HEADER.struct.pack(MAGIC, VERSION, 0, at, flags, *counts)
    return sealed(b"".join(map(_padded, [header, b"".join(records), *sections, *constants])))


def sealed(file: bytes) -> bytes:
    """The file with its checksum: the CRC-32 of the file with 0 as the checksum."""
    before, after = file[:CHECKSUM_AT], file[CHECKSUM_AT + 4 :]
    return before + struct.pack("<I", zlib.crc32(before + bytes(4) + after)) + after


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
    is_constant = name in program.constants
    kind = Kind.CONSTANT if is_constant else Kind.ENTRY if is_entry else Kind.COMPUTED
    shape = (*tensor.shape, *(0,) * (MAX_RANK - len(tensor.shape)))
    storage, rank = STORAGES.index(tensor.storage), len(tensor.shape)
    limits = (tensor.low, tensor.high, tensor.magnitude)
    return TENSOR.struct.pack(*text, storage, kind, rank, *limits, data, *shape)


def _numbers(program: Program, step: Step) -> Numbers:
    if step.family is OpClass.PRODUCT and step.inputs[1] not in program.constants:
        raise UnsupportedError("the engine needs constant weights", node=step.output)
    shapes = [program.tensors[name].shape for name in step.inputs]
    return step.definition.file_numbers(step.attrs, shapes)
