"""The actor in plain numpy: what native code has to give, bit for bit, and what serves without it.

All is float32, one rounding for each operation, no fused multiply-add. `qgraph.rl.actor.ops` has
the arithmetic of each op; layers.py there says how the input of a layer is quantized.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor.block import Block
from qgraph.rl.actor.layout import PANEL, Kernel
from qgraph.rl.actor.ops.arithmetic import F
from qgraph.rl.actor.ops.layers import SMALLEST, Codes

# -- kernels ------------------------------------------------------------------------------------


def quantize_kernel(kernel: Kernel, weights: Array) -> Codes:
    """weights: float32 of the kernel's shape, finite."""
    w = np.asarray(weights, F).reshape(kernel.form)
    if kernel.bits == 32:
        return Codes(w)
    if kernel.bits == 16:
        return Codes(np.clip(w, -65504, 65504).astype(np.float16).astype(F))
    top = abs(w).max((0, 1))
    there = top >= SMALLEST
    inverse = np.divide(F(kernel.high), top, out=np.zeros_like(top), where=there)
    scale = np.where(there, top / F(kernel.high), F(0))
    codes = np.clip(np.rint(w * inverse), -kernel.high, kernel.high)
    return Codes(codes.astype(np.float64), scale)


def to_panels(kernel: Kernel, values: Array) -> Array:
    """uint8, as it lies in a block."""
    segments, length, m = kernel.form
    filled = np.zeros((segments, kernel.rows, kernel.channels), values.dtype)
    filled[:, :length, :m] = values
    panels = [filled[..., at : at + PANEL] for at in range(0, kernel.channels, PANEL)]
    return np.concatenate([_to_panel(kernel.storage, panel) for panel in panels])


def _to_panel(storage: str, w: Array) -> Array:
    if storage in ("float32", "float16"):
        return w.astype(storage).ravel().view(np.uint8)
    group = 4 if storage == "int8" else 8
    codes = w.astype(np.int8).reshape(len(w), -1, group, w.shape[-1]).swapaxes(2, 3)
    if storage == "int4":
        codes = (codes[..., :4] & 15) | (codes[..., 4:] << 4)
    return np.ascontiguousarray(codes).ravel().view(np.uint8)


def from_panels(kernel: Kernel, data: Array) -> Array:
    """[segments, length, m], from uint8 as it lies in a block."""
    _, length, m = kernel.form
    of_one = len(data) // kernel.channels
    panels = [data[at * of_one : (at + PANEL) * of_one] for at in range(0, kernel.channels, PANEL)]
    found = [_from_panel(kernel, panel, len(panel) // of_one) for panel in panels]
    return np.concatenate(found, -1)[:, :length, :m]


def _from_panel(kernel: Kernel, data: Array, width: int) -> Array:
    segments = kernel.form[0]
    if not kernel.exact:
        return data.view(kernel.storage).astype(F).reshape(segments, -1, width)
    codes = data.view(np.int8)
    if kernel.storage == "int4":
        halves = codes.reshape(-1, width, 4)
        codes = np.concatenate([halves << 4 >> 4, halves >> 4], -1)
    group = 4 if kernel.storage == "int8" else 8
    values = codes.reshape(segments, -1, width, group).swapaxes(2, 3)
    return values.reshape(segments, -1, width).astype(np.float64)


def read_kernel(block: Block, kernel: Kernel) -> Codes:
    values = from_panels(kernel, block.array("u1", kernel.size, kernel.data))
    if not kernel.exact:
        return Codes(values)
    return Codes(values, block.array("<f4", kernel.form[2], kernel.scale))


def read_weights(block: Block) -> dict[str, Array]:
    """Float32 weights by name, as a block has them after rounding."""
    found = {}
    for name, shape in block.program.weight_shapes.items():
        if name in block.layout.vectors:
            found[name] = block.array("<f4", shape[0], block.layout.vectors[name])
        else:
            codes = read_kernel(block, block.layout.kernels[name])
            values = codes.values.astype(F)
            found[name] = (values if codes.scale is None else values * codes.scale).reshape(shape)
    return found


# -- running ------------------------------------------------------------------------------------


class PlainActor:
    """Runs the steps of a block one by one."""

    def __init__(self, block: Block) -> None:
        self._layout = block.layout
        self._read(block)

    def use(self, buffer: Array) -> None:
        """Another block of the same program."""
        self._read(Block(buffer, self._layout, 0))

    def act(self, observations: Array) -> Array | None:
        found = self.act_all(observations)
        return None if found is None else found[0]

    def act_all(self, x: Array) -> list[Array] | None:
        """All outputs, in order; None for what is no finite float32 of the right shape."""
        program = self._layout.program
        if not isinstance(x, np.ndarray) or x.dtype != F or not x.size or not np.isfinite(x).all():
            return None
        if x.shape == program.shape:
            return [y[0] for y in self._run(x[None])]
        return self._run(x) if x.shape[1:] == program.shape else None

    def _read(self, block: Block) -> None:
        kernels = {k.name: read_kernel(block, k) for k in block.layout.kernels.values()}
        vectors = {
            name: block.array("<f4", block.program.weight_shapes[name][0], at)
            for name, at in block.layout.vectors.items()
        }
        self._weights: dict[str, Any] = {**kernels, **vectors}

    def _run(self, observations: Array) -> list[Array]:
        program = self._layout.program
        values = {program.observation: observations}
        with np.errstate(all="ignore"):
            for step in program.steps:
                inputs = [values[name] for name in step.inputs]
                weights = [self._weights[name] for name in step.weights]
                values[step.output] = step.definition.compute(step.attrs, inputs, weights)
        return [values[name] for name in program.outputs]
