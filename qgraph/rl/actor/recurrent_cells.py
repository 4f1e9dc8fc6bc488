"""LSTM and GRU cells as steps of an actor program, with the gates of PyTorch.

LSTM (Hochreiter and Schmidhuber, 1997; Gers et al., 2000), GRU (Cho et al., 2014) with the reset
gate behind its product. Each gate has a layer for the input and one for the hidden state, which
quantize their inputs alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qgraph.choices import CellKind
from qgraph.ir.types import Array
from qgraph.rl.actor.ops import Shape
from qgraph.rl.actor.program import ActorStep

GATES = {CellKind.LSTM: "ifgo", CellKind.GRU: "rzn"}  # in the order of PyTorch's weights
PARTS = ("input", "recurrent")


@dataclass(frozen=True)
class RecurrentCell:
    """One layer of cells.

    name: of the layer, in front of the names of its steps and weights. inputs, units: how many. Its
    weights are NAME/GATE_input/kernel [inputs, units], NAME/GATE_recurrent/kernel
    [units, units], and a bias [units] beside each.
    """

    kind: CellKind
    name: str
    inputs: int
    units: int

    @property
    def states(self) -> tuple[str, ...]:
        """The names of its states: `hidden`, and `cell` of an LSTM."""
        return ("hidden", "cell") if self.kind is CellKind.LSTM else ("hidden",)

    def next(self, state: str) -> str:
        """The value that has the next value of a state."""
        return f"{self.name}/{state}"

    def layer(self, gate: str, part: str) -> str:
        """The layer of a gate for the input or the hidden state."""
        return f"{self.name}/{gate}_{part}"

    def weight_shapes(self) -> dict[str, Shape]:
        """The shape of each weight, by name."""
        found: dict[str, Shape] = {}
        for gate in GATES[self.kind]:
            for part, rows in zip(PARTS, (self.inputs, self.units), strict=True):
                found[f"{self.layer(gate, part)}/kernel"] = (rows, self.units)
                found[f"{self.layer(gate, part)}/bias"] = (self.units,)
        return found | {name: array.shape for name, array in self.fixed_weights().items()}

    def fixed_weights(self) -> dict[str, Array]:
        """Weights that are not trained: those of 1 - z, in a GRU."""
        if self.kind is CellKind.LSTM:
            return {}
        ones = np.ones(self.units, np.float32)
        return {f"{self.name}/rest/scale": -ones, f"{self.name}/rest/offset": ones}

    def steps(self, x: str, *states: str) -> Iterator[ActorStep]:
        """The steps on input `x`, and on the values of its states."""
        for gate in GATES[self.kind]:
            for part, value in zip(PARTS, (x, states[0]), strict=True):
                layer = self.layer(gate, part)
                weights = (f"{layer}/kernel", f"{layer}/bias")
                yield ActorStep("dense", (value,), layer, weights)
        yield from self._lstm(states[1]) if len(states) > 1 else self._gru(states[0])

    def _activated(self, gate: str, activation: str, *terms: str) -> Iterator[ActorStep]:
        total = f"{self.name}/{gate}_sum"
        yield ActorStep("add", terms, total)
        attrs = {"activation": activation}
        yield ActorStep("activate", (total,), f"{self.name}/{gate}", (), attrs)

    def _lstm(self, cell: str) -> Iterator[ActorStep]:
        own = self.name
        for gate in GATES[self.kind]:
            activation = "tanh" if gate == "g" else "sigmoid"
            yield from self._activated(gate, activation, *(self.layer(gate, p) for p in PARTS))
        yield ActorStep("multiply", (f"{own}/f", cell), f"{own}/kept")
        yield ActorStep("multiply", (f"{own}/i", f"{own}/g"), f"{own}/added")
        yield ActorStep("add", (f"{own}/kept", f"{own}/added"), self.next("cell"))
        squashed = {"activation": "tanh"}
        yield ActorStep("activate", (self.next("cell"),), f"{own}/shown", (), squashed)
        yield ActorStep("multiply", (f"{own}/o", f"{own}/shown"), self.next("hidden"))

    def _gru(self, hidden: str) -> Iterator[ActorStep]:
        """h' = (1 - z) n + z h."""
        own = self.name
        for gate in "rz":
            yield from self._activated(gate, "sigmoid", *(self.layer(gate, p) for p in PARTS))
        reset = f"{own}/reset"
        yield ActorStep("multiply", (f"{own}/r", self.layer("n", "recurrent")), reset)
        yield from self._activated("n", "tanh", self.layer("n", "input"), reset)
        weights = (f"{own}/rest/scale", f"{own}/rest/offset")
        yield ActorStep("affine", (f"{own}/z",), f"{own}/rest", weights)
        yield ActorStep("multiply", (f"{own}/rest", f"{own}/n"), f"{own}/new")
        yield ActorStep("multiply", (f"{own}/z", hidden), f"{own}/kept")
        yield ActorStep("add", (f"{own}/new", f"{own}/kept"), self.next("hidden"))
