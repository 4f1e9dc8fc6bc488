"""A policy in float32 by numpy: what the learner is judged by, without a framework."""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, Step, Weights


class FloatActor:
    """`actor(observations)` as the packed actor has it: [n, *shape] to [n, m]."""

    def __init__(self, program: ActorProgram, weights: Weights, version: int = 0) -> None:
        program.check(weights)
        self.program, self.weights, self.version = program, weights, version

    def __call__(self, observations: Array) -> Array:
        values = {self.program.observation: np.asarray(observations, np.float32)}
        for step in self.program.steps:
            inputs = [values[name] for name in step.inputs]
            values[step.output] = _step(step, inputs, [self.weights[name] for name in step.weights])
        return values[self.program.outputs[0]]


def _step(step: Step, inputs: list[Array], weights: list[Array]) -> Array:
    x = inputs[0]
    if step.op == "dense":
        return _activated(step, x @ weights[0] + weights[1])
    if step.op == "conv":
        return _activated(step, _conv(x, weights[0], step.strides) + weights[1])
    if step.op == "affine":
        return x * weights[0] + weights[1]
    if step.op == "layer_norm":
        centered: Array = x - x.mean(-1, keepdims=True)
        variance = np.square(centered).mean(-1, keepdims=True)
        scaled = centered / np.sqrt(variance + np.float32(step.attrs["epsilon"]))
        return np.asarray(scaled * weights[0] + weights[1])
    if step.op == "activate":
        return _activated(step, x)
    if step.op == "center":
        return np.asarray(x - x.mean(-1, keepdims=True))
    if step.op == "add":
        return x + inputs[1]
    if step.op == "flatten":
        return x.reshape(len(x), -1)
    raise NotImplementedError(step.op)  # that no network of `networks` has


def _conv(x: Array, kernel: Array, strides: tuple[int, int]) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))
    windows = windows[:, :: strides[0], :: strides[1]]  # [n, h, w, c, kh, kw]
    return np.tensordot(windows, kernel, ([4, 5, 3], [0, 1, 2]))


def _activated(step: Step, x: Array) -> Array:
    if step.activation == "relu":
        return np.asarray(np.maximum(x, 0))
    if step.activation == "tanh":
        return np.asarray(np.tanh(x))
    if step.activation == "elu":
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    if step.activation == "sigmoid":
        return np.asarray(1 / (1 + np.exp(-x)))
    return x
