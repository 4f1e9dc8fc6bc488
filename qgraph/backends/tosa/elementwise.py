"""Elementwise ops, tables and rows: arithmetic of int32 codes, and tables of 256 entries."""

from __future__ import annotations

import math

import numpy as np

from qgraph.backends.tosa.emission import MOST, TosaEmission
from qgraph.backends.tosa.graph_builder import WIDE
from qgraph.backends.tosa.products import layer
from qgraph.backends.tosa.requantize import NAN_MODE, limited
from qgraph.backends.tosa.tosa_file import TosaOp, TosaType
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Codes
from qgraph.program import Step
from qgraph.program.ops import LookupAttrs, SoftmaxProgramAttrs
from qgraph.program.ops.elementwise import ClipAttrs

BINARY = {
    "add": TosaOp.ADD,
    "sub": TosaOp.SUB,
    "mul": TosaOp.MUL,
    "maximum": TosaOp.MAXIMUM,
    "minimum": TosaOp.MINIMUM,
}
INDICES = np.arange(-128, 128)  # of TABLE


def add(emission: TosaEmission, step: Step) -> None:
    """A sum; a constant that is added to a layer is its bias."""
    before = emission.fusions.joined(step)
    if before is None:
        return binary(emission, step)
    bias = np.asarray(emission.program.constants[step.inputs[1]])
    return emission.put(step.output, layer(emission, before, bias, step.output), WIDE)


def binary(emission: TosaEmission, step: Step) -> None:
    op = BINARY[step.op]
    a, b = emission.wide_pair(step)
    compares = op in (TosaOp.MAXIMUM, TosaOp.MINIMUM)
    attributes = {"nan_mode": NAN_MODE} if compares else {}
    emission.put(step.output, emission.model.binary(op, a, b, step.output, **attributes), WIDE)


def absolute(emission: TosaEmission, step: Step) -> None:
    value = emission.get(step.inputs[0], WIDE)
    shape = emission.shape(step.output)
    made = emission.model.add(TosaOp.ABS, [value], step.output, TosaType.INT32, shape)
    emission.put(step.output, made, WIDE)


def clip(emission: TosaEmission, step: Step) -> None:
    (name,), attrs = step.inputs, step.attrs_as(ClipAttrs)
    stored = emission.held_as(name)
    low = np.asarray(stored.low if attrs.low is None else attrs.low, np.int64)
    high = np.asarray(stored.high if attrs.high is None else attrs.high, np.int64)
    value = emission.get(name, stored)
    made = limited(emission, value, stored, np.minimum(low, high), high, step.output)
    emission.put(step.output, made, stored)


def lookup(emission: TosaEmission, step: Step) -> None:
    """TABLE for codes of 8 bits; otherwise GATHER."""
    name, table = step.inputs
    offset = step.attrs_as(LookupAttrs).offset
    entries = np.asarray(emission.program.constants[table], np.int64)
    have, made = emission.in_bytes(name), emission.natural(step.output)
    if WIDE in (have, made):
        index = emission.get(name, WIDE)
        if offset:
            index = emission.model.with_number(TosaOp.SUB, index, offset, f"{step.output}/index")
        return emission.put(step.output, gathered(emission, entries, index, step.output), WIDE)
    places = np.clip(INDICES - have.zero - offset, 0, len(entries) - 1)
    held = emission.constant(entries[places], made, table)
    value = emission.model.add(
        TosaOp.TABLE,
        [emission.get(name, have), held],
        step.output,
        made.dtype,
        emission.shape(name),
    )
    return emission.put(step.output, value, made)


def gathered(emission: TosaEmission, entries: Codes, index: str, stem: str) -> str:
    """The int32 entries of a table at the indices of an int32 value."""
    model, shape = emission.model, emission.model.shape(index)
    count = math.prod(shape)
    values = model.constant(entries.reshape(1, -1, 1), TosaType.INT32, f"{stem}/table")
    flat = model.reshaped(index, (1, count), f"{stem}/index")
    found = model.add(TosaOp.GATHER, [values, flat], stem, TosaType.INT32, (1, count, 1))
    return model.reshaped(found, shape, stem)


def softmax(emission: TosaEmission, step: Step) -> None:
    (x, table), attrs, stem = step.inputs, step.attrs_as(SoftmaxProgramAttrs), step.output
    entries = np.asarray(emission.program.constants[table], np.int64)
    shape = emission.shape(x)
    axis = len(shape) - 1
    largest = int(entries.max())
    if (largest << attrs.bits) + largest * shape[axis] // 2 > MOST:
        raise UnsupportedError(
            f"a softmax over {shape[axis]} codes with {attrs.bits} bits needs more than the 32 "
            "bits of INTDIV",
            node=stem,
            hint="use fewer bits for its results, or another format",
        )
    model = emission.model
    codes = emission.get(x, WIDE)
    row = (*shape[:-1], 1)
    most = model.add(
        TosaOp.REDUCE_MAX, [codes], f"{stem}/most", TosaType.INT32, row,
        axis=axis, nan_mode=NAN_MODE,
    )  # fmt: skip
    distance = model.binary(TosaOp.SUB, most, codes, f"{stem}/distance")
    if emission.tensors[x].high - emission.tensors[x].low >= len(entries):
        distance = model.with_number(
            TosaOp.MINIMUM, distance, len(entries) - 1, f"{stem}/distance", nan_mode=NAN_MODE
        )
    found = gathered(emission, entries, distance, f"{stem}/entries")
    total = model.add(TosaOp.REDUCE_SUM, [found], f"{stem}/total", TosaType.INT32, row, axis=axis)
    half = model.with_number(TosaOp.ARITHMETIC_RIGHT_SHIFT, total, 1, f"{stem}/half", round=False)
    raised = model.with_number(TosaOp.MUL, found, 1 << attrs.bits, f"{stem}/raised")
    raised = model.binary(TosaOp.ADD, raised, half, f"{stem}/raised")
    shares = model.binary(TosaOp.INTDIV, raised, total, f"{stem}/shares")
    highest = np.asarray(attrs.high, np.int64)
    held = limited(emission, shares, WIDE, np.asarray(-MOST - 1), highest, stem)
    emission.put(stem, held, WIDE)
