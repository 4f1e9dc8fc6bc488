"""Recurrent layers over whole sequences, written out as the ops of every step.

The operators keep their states from run to run in variable tensors. Here states begin at zero, as
after `reset_all_variables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.limits import MAX_STEPS
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator
from qgraph.frontends.tflite.translation import Translation
from qgraph.ir.types import Array

INPUT, FORGET, CELL, OUTPUT = range(4)  # gates, in the order of the inputs of an LSTM
WEIGHTS, RECURRENT, PEEPHOLES, BIASES = 1, 5, 9, 12  # first of each kind among these inputs
PROJECTION, PROJECTION_BIAS, NORMS = 16, 17, range(20, 24)
NOTE = "states of recurrent layers begin at zero in each run, as after `reset_all_variables`"
PEEPHOLE_OF: Mapping[int, int] = MappingProxyType({INPUT: 9, FORGET: 10, OUTPUT: 11})


def _fixed(t: Translation, i: int) -> Array:
    """Input `i`, which has to be a constant."""
    known = t.constant(i)
    if known is None:
        raise UnsupportedError(f"`{t.operator.op}` with computed weights", node=t.name)
    return known


def _steps(t: Translation, weights: Array, bias: Array | None) -> tuple[list[Ref], int]:
    """The products of every step of the sequence with weights [in, units], and the axis of time."""
    axis = 0 if t.optional("TimeMajor", False) else 1
    sequence = t.tensor(0)
    if len(sequence.shape) != 3:
        raise GraphError(f"a sequence of rank {len(sequence.shape)}", node=t.name)
    count = sequence.dims[axis]
    if count is None or not 0 < count <= MAX_STEPS:
        raise UnsupportedError(
            f"a recurrent layer of {count or 'an open number of'} steps; {MAX_STEPS} at most",
            node=t.name,
            hint="convert the model with a fixed number of steps",
        )
    t.remarks.append(NOTE)
    made = t.emit("BatchMatMulV2", t.input(0), t.const(weights, "weights"))
    if bias is not None:
        made = t.emit("AddV2", made, t.const(bias, "bias"))
    (name, _) = t.emit("Unpack", made, axis=axis, num=count)
    return [(name, i) for i in range(count)], axis


def _clipped(t: Translation, value: Ref, limit: float) -> Ref:
    """Numbers within a limit; 0 stands for none."""
    if not limit > 0:
        return value
    below = t.emit("Minimum", value, t.scalar(limit, "limit"))
    return t.emit("Maximum", below, t.scalar(-limit, "limit"))


def _joined(t: Translation, first: int, gates: Sequence[int]) -> Array:
    return np.concatenate([_fixed(t, first + gate).T for gate in gates], axis=-1)


def _lstm(t: Translation) -> Ref:
    """Gates i, f, g, o from x and h; c = f * c + i * g; h = o * activation(c), projected."""
    if any(t.has(i) for i in NORMS):
        raise UnsupportedError("an LSTM with layer norms of its gates", node=t.name)
    if t.optional("DiagonalRecurrentTensors", False):
        raise UnsupportedError("an LSTM with diagonal weights of its state", node=t.name)
    gates = [g for g in range(4) if g != INPUT or t.has(WEIGHTS + INPUT)]
    weights, recurrent = (_joined(t, first, gates) for first in (WEIGHTS, RECURRENT))
    has_bias = t.has(BIASES + FORGET)
    steps, axis = _steps(t, weights, _joined(t, BIASES, gates) if has_bias else None)
    limit = float(t.optional("CellClip", 0.0))
    state: Ref | None = None
    cell: Ref | None = None
    held, results = t.const(recurrent, "recurrent_weights"), []
    for step in steps:
        sums = step if state is None else t.emit("AddV2", step, t.emit("MatMul", state, held))
        (name, _) = t.emit("Split", t.integers(1, "axis"), sums, num_split=len(gates))
        parts = {gate: (name, i) for i, gate in enumerate(gates)}
        forget = _gate(t, parts, FORGET, cell)
        if INPUT in parts:
            keep = _gate(t, parts, INPUT, cell)
        else:
            keep = t.emit("Sub", t.scalar(1.0, "one"), forget)
        new = t.emit("Mul", keep, t.activated(parts[CELL]))
        if cell is not None:
            new = t.emit("AddV2", t.emit("Mul", forget, cell), new)
        cell = _clipped(t, new, limit)
        state = t.emit("Mul", _gate(t, parts, OUTPUT, cell), t.activated(cell))
        state = _projected(t, state)
        results.append(state)
    return t.emit("Pack", *results, axis=axis)


def _gate(t: Translation, parts: Mapping[int, Ref], gate: int, cell: Ref | None) -> Ref:
    """A gate, with its product with the cell if it has a peephole."""
    value, place = parts[gate], PEEPHOLE_OF[gate]
    if t.has(place) and cell is not None:
        peephole = t.emit("Mul", cell, t.const(_fixed(t, place), "peephole"))
        value = t.emit("AddV2", value, peephole)
    return t.emit("Sigmoid", value)


def _projected(t: Translation, state: Ref) -> Ref:
    limit = float(t.optional("ProjClip", 0.0))
    if not t.has(PROJECTION):
        return state
    made = t.emit("MatMul", state, t.const(_fixed(t, PROJECTION).T, "projection"))
    if t.has(PROJECTION_BIAS):
        made = t.emit("BiasAdd", made, t.const(_fixed(t, PROJECTION_BIAS), "projection_bias"))
    return _clipped(t, made, limit)


def _rnn(t: Translation) -> Ref:
    """h = activation(W x + R h + b); inputs: sequence, W, R, b, state."""
    steps, axis = _steps(t, _fixed(t, 1).T, _fixed(t, 3) if t.has(3) else None)
    held, results = t.const(_fixed(t, 2).T, "recurrent_weights"), list[Ref]()
    for step in steps:
        sums = t.emit("AddV2", step, t.emit("MatMul", results[-1], held)) if results else step
        results.append(t.activated(sums))
    return t.emit("Pack", *results, axis=axis)


OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
        "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
    }
)
