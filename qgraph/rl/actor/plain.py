"""The actor in numpy: the bit-exact reference for native code, and used where that is missing.

Arithmetic is float32 and rounds after each operation, without fused multiply-add.
`qgraph.rl.actor.ops` has the arithmetic of each op, and layers.py in it the quantization of inputs.
"""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor.block import Block
from qgraph.rl.actor.layout import PANEL, Kernel
from qgraph.rl.actor.ops import StepWeight
from qgraph.rl.actor.ops.arithmetic import F
from qgraph.rl.actor.ops.layers import SMALLEST

# -- kernels ------------------------------------------------------------------------------------


def quantize_kernel(kernel: Kernel, weights: Array) -> StepWeight:
    """Quantize finite float32 weights of the kernel's shape."""
    w = np.asarray(weights, F).reshape(kernel.form)
    if kernel.bits == 32:
        return StepWeight(w)
    if kernel.bits == 16:
        return StepWeight(np.clip(w, -65504, 65504).astype(np.float16).astype(F))
    top = abs(w).max((0, 1))
    there = top >= SMALLEST
    inverse = np.divide(F(kernel.high), top, out=np.zeros_like(top), where=there)
    scale = np.where(there, top / F(kernel.high), F(0))
    codes = np.clip(np.rint(w * inverse), -kernel.high, kernel.high)
    return StepWeight(codes.astype(np.float64), scale)


def to_panels(kernel: Kernel, values: Array) -> Array:
    """The kernel as the bytes in a block, uint8."""
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
    """[segments, length, m], from the bytes in a block."""
    _, length, m = kernel.form
    of_one = len(data) // kernel.channels
    panels = [data[at * of_one : (at + PANEL) * of_one] for at in range(0, kernel.channels, PANEL)]
    values = [_from_panel(kernel, panel, len(panel) // of_one) for panel in panels]
    return np.concatenate(values, -1)[:, :length, :m]


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


def read_kernel(block: Block, kernel: Kernel) -> StepWeight:
    values = from_panels(kernel, block.array("u1", kernel.size, kernel.data))
    if not kernel.exact:
        return StepWeight(values)
    return StepWeight(values, block.array("<f4", kernel.form[2], kernel.scale))


def read_weights(block: Block) -> dict[str, Array]:
    """The weights of a block by name, in float32."""
    weights = {}
    for name, shape in block.program.weight_shapes.items():
        if name in block.layout.vectors:
            weights[name] = block.array("<f4", shape[0], block.layout.vectors[name])
        else:
            codes = read_kernel(block, block.layout.kernels[name])
            values = codes.values.astype(F)
            scaled = values if codes.scale is None else values * codes.scale
            weights[name] = scaled.reshape(shape)
    return weights


# -- running ------------------------------------------------------------------------------------


class PlainActor:
    """Runs the steps of a block one by one."""

    def __init__(self, block: Block) -> None:
        self._layout = block.layout
        self._read(block)

    def use(self, buffer: Array) -> None:
        """Replace the block by another one of the same program."""
        self._read(Block(buffer, self._layout, 0))

    def act(self, observations: Array) -> Array | None:
        outputs = self.act_all(observations)
        return None if outputs is None else outputs[0]

    def act_all(self, x: Array) -> list[Array] | None:
        """All outputs, in order; None unless x is finite float32 of the right shape."""
        program = self._layout.program
        if not isinstance(x, np.ndarray) or x.dtype != F or not x.size or not np.isfinite(x).all():
            return None
        if x.shape == program.shape:
            return [y[0] for y in self._run(x[None])]
        return self._run(x) if x.shape[1:] == program.shape else None

    def _read(self, block: Block) -> None:
        kernels = {k.name: read_kernel(block, k) for k in block.layout.kernels.values()}
        vectors = {
            name: StepWeight(block.array("<f4", block.program.weight_shapes[name][0], at))
            for name, at in block.layout.vectors.items()
        }
        self._weights = {**kernels, **vectors}

    def _run(self, observations: Array) -> list[Array]:
        program = self._layout.program
        values = {program.observation: observations}
        with np.errstate(all="ignore"):
            for step in program.steps:
                inputs = [values[name] for name in step.inputs]
                weights = [self._weights[name] for name in step.weights]
                values[step.output] = step.definition.compute(step.attrs, inputs, weights)
        return [values[name] for name in program.outputs]
