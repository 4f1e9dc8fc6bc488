"""Elementwise ops, tables and rows: arithmetic of int32 codes, and tables of 256 entries."""

from __future__ import annotations

import math

import numpy as np

from qgraph.backends.tosa.emission import TosaEmission
from qgraph.backends.tosa.graph_builder import WIDE, TosaGraphBuilder
from qgraph.backends.tosa.products import layer
from qgraph.backends.tosa.requantize import NAN_MODE, limited
from qgraph.backends.tosa.tosa_file import TosaOp, TosaType
from qgraph.ir.types import Codes
from qgraph.program import Step
from qgraph.program.ops import LookupAttrs
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
        return emission.put(
            step.output, gathered(emission.model, entries, index, step.output), WIDE
        )
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


def gathered(model: TosaGraphBuilder, entries: Codes, index: str, stem: str) -> str:
    """The int32 entries of a table at the indices of an int32 value."""
    shape = model.shape(index)
    count = math.prod(shape)
    values = model.constant(entries.reshape(1, -1, 1), TosaType.INT32, f"{stem}/table")
    flat = model.reshaped(index, (1, count), f"{stem}/index")
    found = model.add(TosaOp.GATHER, [values, flat], stem, TosaType.INT32, (1, count, 1))
    return model.reshaped(found, shape, stem)
