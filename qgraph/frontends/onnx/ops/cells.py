"""The steps of recurrent cells (LSTM, GRU, simple RNN) in ops of the IR.

Gates with one activation are a block, with one product of matrices for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from qgraph.frontends.onnx.builder import OnnxSite
from qgraph.frontends.onnx.ops.recurrent_activations import Function
from qgraph.frontends.onnx.ops.slicing import along
from qgraph.ir.types import Array


@dataclass(frozen=True)
class State:
    """The values that a step passes to the next one, [batch, hidden]; None for zeros."""

    hidden: str | None
    cell: str | None = None


@dataclass(frozen=True)
class Weights:
    """Weights of one direction: the rows of a gate follow those of the gate before it."""

    inputs: Array
    recurrent: Array
    input_bias: Array
    recurrent_bias: Array
    peepholes: Array | None = None


@dataclass(frozen=True)
class GateBlock:
    """Gates with one activation: their products with the inputs, and their recurrent weights."""

    gates: str
    columns: str  # [batch, steps * width]
    recurrent: str
    width: int


@dataclass(frozen=True)
class Direction:
    """One direction of a layer; `rows` has the inputs of all steps of all samples."""

    site: OnnxSite
    name: str
    gates: str  # in the order of the weights
    order: Sequence[int]  # steps, in the order of time
    rows: str
    samples: int  # the size of the batch in a reshape
    hidden: int
    weights: Weights
    functions: Sequence[Function]

    def op(self, what: str, op: str, *inputs: str, **attrs: object) -> str:
        return self.site.helper(f"{self.name}/{what}", op, *inputs, **attrs)

    def constant(self, array: Array, what: str) -> str:
        return self.site.const(array, f"{self.name}/{what}")

    def of_gates(self, array: Array, gates: str) -> Array:
        """The rows of some gates."""
        parts = np.split(array, len(self.gates))
        return np.concatenate([parts[self.gates.index(gate)] for gate in gates])

    def block(self, gates: str, *, whole_bias: bool = True) -> GateBlock:
        """The products of all steps with the inputs, and a bias.

        whole_bias: whether the recurrent bias is part of it.
        """
        weights, width = self.weights, len(gates) * self.hidden
        w = self.constant(self.of_gates(weights.inputs, gates).T, f"w_{gates}")
        bias = self.of_gates(weights.input_bias, gates)
        if whole_bias:
            bias = bias + self.of_gates(weights.recurrent_bias, gates)
        x = self.op(f"inputs_{gates}", "matmul", self.rows, w)
        x = self.op(f"biased_{gates}", "bias_add", x, self.constant(bias, f"bias_{gates}"))
        shape = (self.samples, len(self.order) * width)
        r = self.constant(self.of_gates(weights.recurrent, gates).T, f"r_{gates}")
        return GateBlock(gates, self.op(f"columns_{gates}", "reshape", x, shape=shape), r, width)

    def inputs_at(self, block: GateBlock, t: int) -> str:
        return self.columns(block.columns, t, block.width, f"step{t}/inputs_{block.gates}")

    def columns(self, value: str, index: int, width: int, what: str) -> str:
        """Columns number `index` of this width."""
        part = (index * width or None, (index + 1) * width, 1)
        return self.op(what, "slice", value, **along(2, 1, part))

    def product(self, block: GateBlock, t: int, hidden: str) -> str:
        """The product of a state with the recurrent weights."""
        return self.op(f"step{t}/recurrent_{block.gates}", "matmul", hidden, block.recurrent)

    def sums(self, block: GateBlock, t: int, *terms: str | None) -> str:
        """The part of the inputs, and other terms; the limit that the layer has is applied."""
        value = self.inputs_at(block, t)
        for i, term in enumerate(terms):
            if term is not None:
                value = self.op(f"step{t}/sum{i}_{block.gates}", "add", value, term)
        return self.clipped(value, f"step{t}/clipped_{block.gates}")

    def clipped(self, value: str, what: str) -> str:
        limit = self.site.node.real("clip", 0.0)
        if limit <= 0:
            return value
        low, high = (self.site.scalar(v, f"{self.name}/limit") for v in (-limit, limit))
        return self.op(what, "minimum", self.op(f"{what}_below", "maximum", value, low), high)

    def activated(self, block: GateBlock, t: int, value: str, function: Function) -> dict[str, str]:
        """The gates of a block after their activation."""
        y = function(value, f"{self.name}/step{t}/{block.gates}")
        if len(block.gates) == 1:
            return {block.gates: y}
        return {
            gate: self.columns(y, i, self.hidden, f"step{t}/{gate}")
            for i, gate in enumerate(block.gates)
        }

    def product_of(self, block: GateBlock, t: int, hidden: str | None) -> str | None:
        return None if hidden is None else self.product(block, t, hidden)

    def rest(self, gate: str, t: int) -> str:
        """1 - gate"""
        return self.op(f"step{t}/rest", "sub", self.one, gate)

    @cached_property
    def one(self) -> str:
        return self.site.scalar(1.0, f"{self.name}/one")

    def weighted(self, t: int, *pairs: tuple[str, str | None]) -> str:
        """The sum of the products of these pairs; None is 0."""
        products = [
            self.op(f"step{t}/product{i}", "mul", gate, value)
            for i, (gate, value) in enumerate(pairs)
            if value is not None
        ]
        value = products[0]
        for other in products[1:]:
            value = self.op(f"step{t}/state", "add", value, other)
        return value


def lstm(direction: Direction, state: State) -> dict[int, State]:
    """The states after each step.

    With peepholes, the gates also see the cell state, the output gate the new one. With
    `input_forget`, the forget gate is what the input gate leaves.
    """
    d = direction
    sigmoid, candidate, output = d.functions
    coupled = d.site.node.flag("input_forget")
    seen = d.weights.peepholes is not None
    gates = "io" if coupled else "iof"
    blocks = [d.block(g) for g in (gates if seen else [gates])]
    peepholes = {} if d.weights.peepholes is None else _peepholes(d, d.weights.peepholes)
    new = d.block("c")
    states: dict[int, State] = {}

    def opened(block: GateBlock, t: int, cell: str | None) -> dict[str, str]:
        looked = None
        if cell is not None and block.gates in peepholes:
            what = f"step{t}/seen_{block.gates}"
            looked = d.op(what, "mul", cell, peepholes[block.gates])
        sums = d.sums(block, t, d.product_of(block, t, state.hidden), looked)
        return d.activated(block, t, sums, sigmoid)

    for t in d.order:
        found: dict[str, str] = {}
        for block in blocks:
            if not (seen and block.gates == "o"):
                found |= opened(block, t, state.cell)
        sums = d.sums(new, t, d.product_of(new, t, state.hidden))
        found |= d.activated(new, t, sums, candidate)
        forget = d.rest(found["i"], t) if coupled and state.cell else found.get("f", "")
        cell = d.weighted(t, (found["i"], found["c"]), (forget, state.cell))
        if seen:
            found |= opened(blocks[1], t, cell)
        shown = output(cell, f"{d.name}/step{t}/shown")
        hidden = d.op(f"step{t}/hidden", "mul", found["o"], shown)
        state = states[t] = State(hidden, cell)
    return states


def _peepholes(d: Direction, array: Array) -> dict[str, str]:
    parts = zip("iof", np.split(array, 3), strict=True)
    return {gate: d.constant(part, f"peephole_{gate}") for gate, part in parts}


def gru(direction: Direction, state: State) -> dict[int, State]:
    """The states after each step: the update gate z blends the old state with a new one."""
    d = direction
    sigmoid, candidate = d.functions
    after = d.site.node.flag("linear_before_reset")
    gates, new = d.block("zr"), d.block("h", whole_bias=not after)
    bias = d.constant(d.of_gates(d.weights.recurrent_bias, "h"), "recurrent_bias")
    states: dict[int, State] = {}
    for t in d.order:
        sums = d.sums(gates, t, d.product_of(gates, t, state.hidden))
        found = d.activated(gates, t, sums, sigmoid)
        if after:
            value = bias
            if state.hidden is not None:
                value = d.op(f"step{t}/biased", "bias_add", d.product(new, t, state.hidden), bias)
            term = d.op(f"step{t}/reset", "mul", found["r"], value)
        elif state.hidden is not None:
            reset = d.op(f"step{t}/reset", "mul", found["r"], state.hidden)
            term = d.product(new, t, reset)
        else:
            term = None
        fresh = d.activated(new, t, d.sums(new, t, term), candidate)["h"]
        rest = d.rest(found["z"], t)
        hidden = d.weighted(t, (rest, fresh), (found["z"], state.hidden))
        state = states[t] = State(hidden)
    return states


def rnn(direction: Direction, state: State) -> dict[int, State]:
    """The states after each step."""
    d = direction
    block, states = d.block("h"), dict[int, State]()
    for t in d.order:
        sums = d.sums(block, t, d.product_of(block, t, state.hidden))
        state = states[t] = State(d.activated(block, t, sums, d.functions[0])["h"])
    return states


Steps: TypeAlias = Callable[[Direction, State], dict[int, State]]


@dataclass(frozen=True)
class Cell:
    """A kind of cell: gates in the order of ONNX, usual activations, and its steps."""

    gates: str
    activations: tuple[str, ...]
    steps: Steps
    has_cell_state: bool = False


CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        "LSTM": Cell("iofc", ("Sigmoid", "Tanh", "Tanh"), lstm, has_cell_state=True),
        "GRU": Cell("zrh", ("Sigmoid", "Tanh"), gru),
        "RNN": Cell("h", ("Tanh",), rnn),
    }
)
