"""The actor in plain numpy: what native code has to give, bit for bit, and what serves without it.

All is float32, one rounding for each operation, no fused multiply-add. The input of each kernel
with integer codes is quantized for each sample on its own:

    low = min(x, 0), high = max(x, 0), range = high - low
    zero = rint(-low * 255 / range), code = rint(x * 255 / range) + zero, held to 0..255
    y = (sum code * w - zero * sum w) * (range / 255 * scale of w) + bias

rint rounds halves to even. Zero has a code of its own, so that padding is exact. A range below
2^-100 counts as 0; one that overflows, or an input with NaN, makes the result NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor.block import Block
from qgraph.rl.actor.form import Step
from qgraph.rl.actor.layout import LANES, PANEL, Kernel

F = np.float32
SMALLEST = F(2.0**-100)  # range of an input, or largest weight, that is not taken for 0
LARGEST = np.finfo(F).max
PARTS = 4  # sums of products of floats are four: values 0, 4, 8, ... of a segment, 1, 5, 9, ...


# -- kernels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Codes:
    """A kernel without its panels: [segments, length, m]."""

    values: Array  # float64, which has whole numbers and sums of their products; or float32
    scale: Array | None = None  # [m]


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
        self._kernels = {k.name: read_kernel(block, k) for k in block.layout.kernels.values()}
        self._vectors = {
            name: block.array("<f4", block.program.weight_shapes[name][0], at)
            for name, at in block.layout.vectors.items()
        }

    def _run(self, observations: Array) -> list[Array]:
        program = self._layout.program
        values = {program.observation: observations}
        with np.errstate(all="ignore"):
            for step in program.steps:
                inputs = [values[name] for name in step.inputs]
                values[step.output] = self._run_step(step, inputs)
        return [values[name] for name in program.outputs]

    def _run_step(self, step: Step, inputs: list[Array]) -> Array:
        if step.op in ("dense", "conv"):
            kernel, bias = self._kernels[step.weights[0]], self._vectors[step.weights[1]]
            shape = self._layout.program.weight_shapes[step.weights[0]]
            window = shape[:2] if step.op == "conv" else None
            y = product(inputs[0], kernel, window, step.strides, step.pads) + bias
            return activate(y, step.activation, step.alpha)
        return OPS[step.op](step, inputs, [self._vectors[name] for name in step.weights])


def product(
    x: Array,
    kernel: Codes,
    window: tuple[int, ...] | None,
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], tuple[int, int]],
) -> Array:
    """x [n, k] or [n, h, w, c] times a kernel, without bias."""
    if kernel.scale is None:
        return _float_sums(_windows(x, window, strides, pads, F(0)), kernel.values)
    flat = x.reshape(len(x), -1)
    delta, zero, codes = quantize_input(flat)
    each = (-1,) + (1,) * (x.ndim - 1)
    codes = codes.reshape(x.shape) - zero.reshape(each)
    rows = _windows(codes, window, strides, pads, 0)
    w = kernel.values.reshape(-1, kernel.values.shape[-1])
    sums = rows.reshape(*rows.shape[:-2], -1).astype(np.float64) @ w
    return np.asarray(sums.astype(F) * (delta.reshape(each) * kernel.scale))


def quantize_input(x: Array) -> tuple[Array, Array, Array]:
    """delta [n], zero [n], codes [n, k] of x [n, k]."""
    low, high = np.fmin.reduce(x, 1, initial=F(0)), np.fmax.reduce(x, 1, initial=F(0))
    span = high - low
    there = (span >= SMALLEST) & (span <= LARGEST)
    inverse = np.divide(F(255), span, out=np.zeros_like(span), where=there)
    delta = np.where(there, span / F(255), F(0))
    delta[(span > LARGEST) | np.isnan(x).any(1)] = np.nan
    zero = np.clip(np.rint(-low * inverse), 0, 255)
    codes = np.clip(np.rint(np.nan_to_num(x) * inverse[:, None]) + zero[:, None], 0, 255)
    return delta, zero.astype(np.int64), codes.astype(np.int64)


def _windows(x: Array, window: Any, strides: Any, pads: Any, fill: Any) -> Array:
    """[..., segments, values of a segment]"""
    if window is None:
        return x[:, None, :]
    x = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(x, window, (1, 2))
    found = found[:, :: strides[0], :: strides[1]]  # [n, h, w, c, kh, kw]
    return np.moveaxis(found, 3, 5).reshape(*found.shape[:3], window[0], -1)


def _float_sums(rows: Array, w: Array) -> Array:
    """In order: values of all segments, each to the sum that it belongs to, then the four."""
    sums = np.zeros((PARTS, *rows.shape[:-2], w.shape[-1]), F)
    for segment in range(w.shape[0]):
        for k in range(w.shape[1]):
            sums[k % PARTS] += rows[..., segment, k, None] * w[segment, k]
    return np.asarray((sums[0] + sums[1]) + (sums[2] + sums[3]))


# -- elementwise --------------------------------------------------------------------------------

LOG2_E, LN2_HIGH, LN2_LOW = F(1.4426950408889634), F(0.693359375), F(-2.12194440e-4)
ROUNDER = F(12582912)  # 1.5 * 2^23: a sum with it is rounded to a whole number


def held(x: Array, low: Any, high: Any) -> Array:
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)


def exp(x: Array) -> Array:
    x = held(x, F(-104), F(89))
    n = x * LOG2_E + ROUNDER
    whole = np.asarray(n.view(np.int32) - ROUNDER.view(np.int32))
    n = n - ROUNDER
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    y = np.full_like(r, 1 / 5040)
    for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
        y = y * r + F(factor)
    half = whole >> 1
    return np.asarray(y * _power_of_two(half) * _power_of_two(whole - half))


def _power_of_two(n: Array) -> Array:
    # What NaN has become here may be anything.
    return ((n.astype(np.int64) + 127).astype(np.uint32) << 23).astype(np.uint32).view(F)


def tanh(x: Array) -> Array:
    size = abs(x)
    square = x * x
    above = x * ((square + F(105)) * square + F(945))
    near = above / ((F(15) * square + F(420)) * square + F(945))
    far = F(1) - F(2) / (exp(held(size + size, F(0), F(40))) + F(1))
    return np.where(size < F(0.6), near, np.where(x < 0, -far, far))


def sigmoid(x: Array) -> Array:
    return F(1) / (exp(-x) + F(1))


def softplus(x: Array) -> Array:
    """max(x, 0) + log(1 + e), e = exp(-|x|): the logarithm as 2 atanh(e / (e + 2))."""
    e = exp(-abs(x))
    s = e / (e + F(2))
    square = s * s
    y = np.full_like(s, 1 / 15)
    for odd in (13, 11, 9, 7, 5, 3, 1):
        y = y * square + F(1 / odd)
    return np.where(x < 0, F(0), x) + (s + s) * y


def activate(x: Array, name: str, alpha: float) -> Array:
    if name == "linear":
        return x
    if name == "relu":
        return np.where(x < 0, F(0), x)
    if name == "leaky_relu":
        return np.where(x < 0, x * F(alpha), x)
    if name == "elu":
        return np.where(x < 0, (exp(x) - F(1)) * F(alpha), x)
    if name == "swish":
        return x * sigmoid(x)
    return {"tanh": tanh, "sigmoid": sigmoid, "softplus": softplus, "exp": exp}[name](x)


def total(x: Array) -> Array:
    """Sums over the last axis, kept: lane i has i, i + 16, ..., then halves are added up."""
    size = x.shape[-1]
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -size % LANES)])
    lanes = np.zeros((*x.shape[:-1], LANES), F)
    for at in range(0, x.shape[-1], LANES):
        lanes = lanes + x[..., at : at + LANES]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes


def mean(x: Array) -> Array:
    return total(x) / F(x.shape[-1])


def _layer_norm(step: Step, inputs: list[Array], weights: list[Array]) -> Array:
    centered = inputs[0] - mean(inputs[0])
    scale = F(1) / np.sqrt(mean(centered * centered) + F(step.attrs["epsilon"]))
    return (centered * scale) * weights[0] + weights[1]


def _softmax(step: Step, inputs: list[Array], weights: list[Array]) -> Array:
    y = exp(inputs[0] - np.fmax.reduce(inputs[0], -1, keepdims=True))
    return y / total(y)


def _max_pool(step: Step, inputs: list[Array], weights: list[Array]) -> Array:
    ksize = tuple(step.attrs["ksize"])
    x = np.pad(inputs[0], ((0, 0), *step.pads, (0, 0)), constant_values=F(-np.inf))
    found = np.lib.stride_tricks.sliding_window_view(x, ksize, (1, 2))
    found = found[:, :: step.strides[0], :: step.strides[1]]
    found = found.reshape(*found.shape[:4], -1)
    return np.asarray(np.fmax.reduce(found, -1, initial=F(-np.inf)))


Op = Callable[[Step, list[Array], list[Array]], Array]
OPS: Mapping[str, Op] = {
    "affine": lambda step, x, w: x[0] * w[0] + w[1],
    "clip": lambda step, x, w: held(x[0], w[0], w[1]),
    "layer_norm": _layer_norm,
    "activate": lambda step, x, w: activate(x[0], step.activation, step.alpha),
    "center": lambda step, x, w: x[0] - mean(x[0]),
    "softmax": _softmax,
    "max_pool": _max_pool,
    "add": lambda step, x, w: x[0] + x[1],
    "multiply": lambda step, x, w: x[0] * x[1],
    "concat": lambda step, x, w: np.concatenate(x, -1),
    "flatten": lambda step, x, w: x[0].reshape(len(x[0]), -1),
}
