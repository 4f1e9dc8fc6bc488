"""Affine quantization as simulated in the papers: a tensor becomes D(Q(x)), in float32.

    delta = (|min(x, 0)| + |max(x, 0)|) / 2^n        Q(x) = round(x / delta)       D = delta * Q

QuaRL (Lam et al., 2019) and ActorQ (Krishnan et al., 2022). Codes saturate to 2^n codes, which
include 0; the published code wraps: the largest number of a one-sided tensor becomes the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram, Weights
from qgraph.rl.policy import floats

FLOAT, HALF = 32, 16
MIN_BITS = 2


def dequantized(x: Array, bits: int, axes: tuple[int, ...] | None = None) -> Array:
    """D(Q(x)) with a range over `axes` (None: all); 16 bits are float16, 32 float32.

    Raises UsageError for fewer than 2 bits.
    """
    if bits >= FLOAT:
        return x
    if bits == HALF:
        largest = np.float32(np.finfo(np.float16).max)
        return np.clip(x, -largest, largest).astype(np.float16).astype(np.float32)
    if bits < MIN_BITS:
        raise UsageError(f"{bits} bits are too few", hint=f"from {MIN_BITS} to {FLOAT}")
    low = np.minimum(x.min(axis=axes, keepdims=True), 0)
    high = np.maximum(x.max(axis=axes, keepdims=True), 0)
    delta = (high - low) / np.float32(2**bits)
    delta = np.where(delta > 0, delta, np.float32(1))
    least, most = np.rint(low / delta), np.rint(high / delta)
    # There may be one code too many, which is taken from the end farther from 0.
    extra = most - least >= 2**bits
    below = -least > most
    codes = np.clip(np.rint(x / delta), least + (extra & below), most - (extra & ~below))
    return np.asarray(codes * delta, np.float32)


@dataclass(frozen=True)
class Simulated:
    """A policy with quantized kernels and quantized inputs of layers.

    Kernels of conv layers have a range for each output channel, others a single one. Inputs of
    layers have a range for each observation. Biases and norms stay float32.
    `qgraph.rl.sb3.QuantizationAware` trains with the same arithmetic.
    """

    program: ActorProgram
    weights: Weights
    activation_bits: int = FLOAT

    @staticmethod
    def of(
        program: ActorProgram, weights: Weights, bits: int, activation_bits: int | None = None
    ) -> Simulated:
        """Quantize weights once; activations have `bits` too, unless `activation_bits` is given."""
        changed = dict(weights)
        for step in program.steps:
            if step.definition.layer:
                kernel = np.asarray(weights[step.weights[0]], np.float32)
                axes = (0, 1, 2) if step.op == "conv" else None
                changed[step.weights[0]] = dequantized(kernel, bits, axes)
        return Simulated(program, changed, bits if activation_bits is None else activation_bits)

    def __call__(self, observations: Array) -> Array:
        """The first output, [n, m]."""
        return self.run(observations)[self.program.outputs[0]]

    def run(self, observations: Array) -> dict[str, Array]:
        """Every output by name, [n, ...]."""

        def feed(x: Array) -> Array:
            return dequantized(x, self.activation_bits, tuple(range(1, x.ndim)))

        return floats.run(self.program, self.weights, observations, feed)
