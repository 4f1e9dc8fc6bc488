"""Recurrent layers, written out as the ops of every step.

The products of all steps with the inputs are one product of matrices; each step takes its columns.
Samples are the first axis here, whatever the layout of the layer, so that transposes around it
cancel. A state that starts with zeros is left out of the first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.limits import MAX_STEPS
from qgraph.frontends.lost_state import note_lost_state
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.cells import CELLS, Cell, Direction, State, Weights
from qgraph.frontends.onnx.ops.recurrent_activations import functions_of
from qgraph.frontends.onnx.ops.slicing import along
from qgraph.ir.types import Array

BACKWARD: Mapping[str, tuple[bool, ...]] = MappingProxyType(
    {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
)  # by the attribute `direction`
X, W, R, B, LENGTHS, HIDDEN, CELL, PEEPHOLES = range(8)  # inputs


@dataclass(frozen=True)
class RecurrentLayer:
    """Sizes of a layer, and the layout of its tensors."""

    site: OnnxSite
    cell: Cell
    steps: int
    batch: int | None
    features: int
    hidden: int
    backward: tuple[bool, ...]  # by direction
    samples_first: bool

    @property
    def samples(self) -> int:
        """The size of the batch in a reshape."""
        return -1 if self.batch is None else self.batch

    def rows(self) -> str:
        """The inputs of all steps of all samples, as rows."""
        x = self.site.inputs[X]
        if not self.samples_first:
            x = self.site.helper("samples_first", "transpose", x, perm=(1, 0, 2))
        return self.site.helper("rows", "reshape", x, shape=(-1, self.features))

    def weights(self) -> list[Weights]:
        """The weights of each direction."""
        count, rows = len(self.backward), len(self.cell.gates) * self.hidden
        w = self._constant(W, (count, rows, self.features), "weights")
        r = self._constant(R, (count, rows, self.hidden), "recurrent weights")
        bias, peepholes = np.zeros((count, 2 * rows), w.dtype), None
        if self.site.has(B):
            bias = self._constant(B, (count, 2 * rows), "biases")
        if self.cell.has_cell_state and self.site.has(PEEPHOLES):
            peepholes = self._constant(PEEPHOLES, (count, 3 * self.hidden), "peephole weights")
        return [
            Weights(
                w[i],
                r[i],
                bias[i, :rows],
                bias[i, rows:],
                None if peepholes is None else peepholes[i],
            )
            for i in range(count)
        ]

    def _constant(self, i: int, shape: tuple[int, ...], what: str) -> Array:
        array = self.site.constant(i)
        if array is None:
            raise UnsupportedError(
                f"the {what} of this `{self.site.node.op}` are not constant",
                node=self.site.name,
                hint="export the model with its weights as initializers",
            )
        if array.shape != shape:
            raise GraphError(f"{what} of {array.shape}, expected {shape}", node=self.site.name)
        return array

    @property
    def keeps_nothing(self) -> bool:
        """Whether a single step starts with a constant state."""
        starts = (HIDDEN, CELL) if self.cell.has_cell_state else (HIDDEN,)
        given = [i for i in starts if self.site.has(i)]
        return self.steps == 1 and all(self.site.constant(i) is not None for i in given)

    def first_state(self, index: int) -> State:
        """The state before the first step of direction `index`."""
        cell = self._first(CELL, index) if self.cell.has_cell_state else None
        return State(self._first(HIDDEN, index), cell)

    def _first(self, i: int, index: int) -> str | None:
        """Input `i`, a state of all directions, for one direction; None for zeros."""
        if not self.site.has(i):
            return None
        array, axis = self.site.constant(i), 1 if self.samples_first else 0
        if array is not None and not array.any():
            return None
        name, value = f"first{i}_{index}", self.site.inputs[i]
        if array is not None:  # one row if all samples start with the same state
            rows = np.take(array, index, axis)
            return self.site.const(rows[:1] if (rows == rows[:1]).all() else rows, name)
        if len(self.backward) > 1:
            part = along(3, axis, (index, index + 1, 1))
            value = self.site.helper(f"{name}_part", "slice", value, **part)
        return self.site.helper(name, "squeeze", value, axes=(axis,))


def _layer(site: OnnxSite, cell: Cell) -> RecurrentLayer:
    node, shape, weights = site.node, site.known_shape(X), site.known_shape(W)
    direction = node.text("direction", "forward")
    if direction not in BACKWARD:
        raise GraphError(f"unknown direction `{direction}`", node=site.name)
    if len(shape) != 3 or len(weights) != 3:
        raise GraphError(f"{shape} and weights of {weights} do not have 3 axes", node=site.name)
    samples_first = node.flag("layout")
    batch, steps = shape[:2] if samples_first else (shape[1], shape[0])
    hidden = node.integer("hidden_size") or (weights[1] or 0) // len(cell.gates)
    if steps is None or shape[2] is None:
        raise _unknown_steps(site, samples_first)
    if steps > MAX_STEPS:
        raise UnsupportedError(
            f"this `{node.op}` has {steps} steps; at most {MAX_STEPS} can be written out",
            node=site.name,
            hint="give a shorter sequence: --input-shape",
        )
    if steps < 1 or hidden < 1:
        raise GraphError(f"{steps} steps of {hidden} units", node=site.name)
    _check_lengths(site, steps)
    return RecurrentLayer(
        site, cell, steps, batch, shape[2], hidden, BACKWARD[direction], samples_first
    )


def _unknown_steps(site: OnnxSite, samples_first: bool) -> UnsupportedError:
    types = site.builder.graph.types
    opened = [i for i in site.builder.graph.inputs if None in (types[i].shape or (None,))]
    hint = "export the model with a fixed number of steps"
    if opened:
        sizes = types[opened[0]].shape or (None, None, None)
        listed = ",".join("?" if d is None else str(d) for d in sizes)
        hint = (
            f"give the shape of input `{opened[0]}`, which is {listed} with ? for unknown sizes: "
            f"--input-shape {opened[0]}={listed.replace('?', '16')}"
        )
    return UnsupportedError(
        f"the number of steps of this `{site.node.op}`, axis {int(samples_first)} of "
        f"`{site.inputs[X]}`, is unknown; a fixed-point network has a fixed number of steps, all "
        "of them written out",
        node=site.name,
        hint=hint,
    )


def _check_lengths(site: OnnxSite, steps: int) -> None:
    """Refuse sequences that are shorter than the tensor."""
    if not site.has(LENGTHS):
        return
    lengths = _repeated(site, site.inputs[LENGTHS])
    if lengths is None or (lengths != steps).any():
        found = "computed" if lengths is None else f"{np.unique(lengths).tolist()} of {steps} steps"
        raise UnsupportedError(
            f"the sequence lengths of this `{site.node.op}` are {found}; only full sequences are "
            "supported",
            node=site.name,
            hint="export the model without sequence lengths",
        )


def _repeated(site: OnnxSite, value: str) -> Array | None:
    """The elements of a value, also of one that is repeated for an open batch by a select."""
    builder = site.builder
    while builder.constant(value) is None and value in builder.graph.nodes:
        node = builder.graph.nodes[value]
        if node.op not in ("select", "identity", "cast") or len({*node.inputs[-2:]}) > 1:
            break
        value = node.inputs[-1]
    return builder.constant(value)


def _importer(cell: Cell) -> Importer:
    def importer(site: OnnxSite) -> Result:
        if not site.type().is_float:
            return None
        layer = _layer(site, cell)
        if layer.keeps_nothing:
            note_lost_state(site.builder.graph, site.name)
        weights, functions = layer.weights(), functions_of(site, cell.activations, layer.backward)
        rows, order = layer.rows(), range(layer.steps)
        runs = [
            cell.steps(
                Direction(
                    site,
                    "backward" if backward else "forward",
                    cell.gates,
                    order[::-1] if backward else order,
                    rows,
                    layer.samples,
                    layer.hidden,
                    weights[index],
                    functions[index],
                ),
                layer.first_state(index),
            )
            for index, backward in enumerate(layer.backward)
        ]
        return _outputs(layer, runs)

    return importer


def _outputs(layer: RecurrentLayer, runs: Sequence[Mapping[int, State]]) -> Result:
    """All hidden states, the last hidden states and the last cell states, if they are used."""
    last = [
        run[0 if back else layer.steps - 1] for run, back in zip(runs, layer.backward, strict=True)
    ]
    parts = (
        [run[t].hidden for t in range(layer.steps) for run in runs],
        [state.hidden for state in last],
        [state.cell for state in last],
    )
    counts = ((layer.steps, len(runs)), (len(runs),), (len(runs),))
    named = layer.site.node.outputs
    return tuple(
        _joined(layer, i, [v for v in parts[i] if v], counts[i]) if name else ""
        for i, name in enumerate(named)
    )


def _joined(
    layer: RecurrentLayer, output: int, parts: Sequence[str], counts: tuple[int, ...]
) -> str:
    """Output number `output`, with axes `counts` beside those of the batch and the units."""
    site, make = layer.site, layer.site.builder.make
    value = parts[0]
    if len(parts) > 1:
        value = site.helper(f"joined{output}", "concat", *parts, axis=-1)
    shape = (layer.samples, *counts, layer.hidden)
    if layer.samples_first:
        return make(site.named(output), "reshape", (value,), {"shape": shape})
    value = site.helper(f"split{output}", "reshape", value, shape=shape)
    perm = (*range(1, len(counts) + 1), 0, len(counts) + 1)
    return make(site.named(output), "transpose", (value,), {"perm": perm})


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {op: _importer(cell) for op, cell in CELLS.items()}
)
