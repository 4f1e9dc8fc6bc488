"""Scales of codes in a `.tflite` file: quantizers that stay, or are left out.

Every tensor is read as the numbers that it stands for. After an operator whose results are codes,
a quantizer stays if its scale is to be kept and has a grid (`qgraph.frontends.grids`). Otherwise it
is left out. One whose zero point is its lowest code cuts off negative values, as a ReLU does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from qgraph.frontends.grids import ACTIVATION_BITS, QUANTIZED, Grid, ScalesOfFile, grid_of
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.codes import MOVES
from qgraph.frontends.tflite.operators.control import CONTROL
from qgraph.frontends.tflite.tensors import DTYPES, LiteTensor, same_scale
from qgraph.frontends.tflite.translation import Translation
from qgraph.ir.types import Array

BIASES = ("INT32", "INT64")
GATHER = "GATHER"  # of a constant table: the quantizer stays, since the table has none


@dataclass
class LiteQuantizers:
    """keep: whether scales with a grid stay. `grids` are those of constants, by node."""

    keep: bool
    grids: dict[str, Grid] = field(default_factory=dict)
    scales: int = 0
    with_grid: int = 0
    left_out: int = 0
    kept: int = 0
    rounded: list[str] = field(default_factory=list)

    def constant(self, tensor: LiteTensor, name: str) -> None:
        """Note the scale of a constant, which a node of this name holds."""
        grid = self._counted(tensor)
        if grid is not None and self.keep:
            self.grids[name] = grid

    def check(self, tensor: LiteTensor, name: str, values: Array) -> None:
        """Note a constant with a grid whose codes float32 cannot hold; `values` are its numbers."""
        if name not in self.grids or tensor.kind not in BIASES or name in self.rounded:
            return
        codes = np.frombuffer(tensor.content, DTYPES[tensor.kind]).reshape(values.shape)
        assert tensor.scale is not None
        if not np.array_equal(tensor.scale.codes_of(values), codes):
            self.rounded.append(name)

    def step(self, tensor: LiteTensor) -> tuple[str, dict[str, int]] | None:
        """The op that stands for the quantizer of a tensor, and its attributes; None without."""
        if tensor.scale is None:
            return None
        grid = self._counted(tensor, activation=True)
        if grid is not None and self.keep:
            self.kept += 1
            return QUANTIZED, dict(grid.attributes())
        self.left_out += 1
        lowest = np.iinfo(DTYPES[tensor.kind]).min
        return ("Relu", {}) if (tensor.scale.zeros == lowest).all() else ("Identity", {})

    def at(self, t: Translation, value: Ref, tensor: LiteTensor) -> Ref:
        """A value after the quantizer of a tensor, where it has one."""
        step = self.step(tensor)
        return value if step is None else t.emit(step[0], value, **step[1])

    def after(self, t: Translation, value: Ref, converted: Collection[int]) -> Ref:
        """The result of an operator after the quantizer of its output.

        converted: tensors that only QUANTIZE reads.
        """
        if t.operator.op in CONTROL:  # its bodies have the quantizers
            return value
        table = t.operator.op == GATHER and t.operator.inputs[0] in t.constants
        table = table and t.operator.outputs[0] not in converted
        if (
            t.operator.op in MOVES
            and not table
            and not t.has_activation()
            and all(
                same_scale(t.tensor(i).scale, t.output().scale)
                for i in range(len(t))
                if t.has(i) and t.tensor(i).scale is not None
            )
        ):
            return value
        return self.at(t, value, t.output())

    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the scales."""
        keeps = bool(self.kept or self.grids)
        notes = ScalesOfFile(self.scales, self.with_grid, self.left_out, keeps).notes()
        rounded = (
            f"`{name}`: its codes are wider than float32 and rounded" for name in self.rounded
        )
        return (*notes, *rounded)

    def _counted(self, tensor: LiteTensor, activation: bool = False) -> Grid | None:
        """The grid of a tensor. That of an activation has one exponent, and 8 or 16 bits."""
        if tensor.scale is None:
            return None
        scale = tensor.scale
        grid = grid_of(scale.scales, scale.zeros, np.dtype(DTYPES[tensor.kind]))
        if grid is not None and activation:
            fits = grid.bits in ACTIVATION_BITS and len(grid.exponents) == 1
            grid = grid if fits else None
        self.scales += 1
        self.with_grid += grid is not None
        return grid
