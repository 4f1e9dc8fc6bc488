"""An actor program in numpy float32: the baseline of its quantized forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.interpret import run_node
from qgraph.ir.graph import Node
from qgraph.ir.types import Array
from qgraph.ops.lowerings import Lowerings
from qgraph.ops.movement import TransposeAttrs
from qgraph.ops.windows import ONE, MaxPoolAttrs
from qgraph.rl.actor.ops import (
    ALPHA,
    OPS,
    Activation,
    ActorConvAttrs,
    ColumnsAttrs,
    LayerNormAttrs,
    ShapeAttrs,
)
from qgraph.rl.actor.program import ActorProgram, ActorStep, Weights

Feed = Callable[[Array], Array]


def run(
    program: ActorProgram, weights: Weights, observations: Array, feed: Feed | None = None
) -> dict[str, Array]:
    """Outputs by name, [n, ...] float32, for observations [n, *program.shape].

    feed: a function that changes the input of each layer, dense or conv.
    """
    values = {program.observation: np.asarray(observations, np.float32)}
    for step in program.steps:
        inputs = [values[name] for name in step.inputs]
        own = [np.asarray(weights[name], np.float32) for name in step.weights]
        if feed is not None and step.definition.layer:
            inputs = [feed(x) for x in inputs]
        rule = STEPS.of(step.op, step.output)
        values[step.output] = activated(step, rule(step, *inputs, *own))
    return {name: values[name] for name in program.outputs}


def activated(step: ActorStep, x: Array) -> Array:
    if step.activation is Activation.LINEAR:
        return x
    alpha = {"alpha": step.alpha} if step.activation in ALPHA else {}
    return _op(step.activation, alpha, x)


def _op(op: str, attrs: Mapping[str, object], *inputs: Array) -> Array:
    """Compute an op by the compiler's definition of it."""
    return run_node(Node(op, op, attrs=attrs), inputs)[0]


def _conv(step: ActorStep, x: Array, kernel: Array, bias: Array) -> Array:
    attrs = step.attrs_as(ActorConvAttrs)
    window = {"strides": attrs.strides, "padding": attrs.pads, "dilations": ONE}
    return _op("conv2d", window, x, kernel) + bias


def _pool(step: ActorStep, x: Array) -> Array:
    attrs = step.attrs_as(MaxPoolAttrs)
    window = {"ksize": attrs.ksize, "strides": attrs.strides, "padding": attrs.pads}
    return _op(step.op, window, x)


def _layer_norm(step: ActorStep, x: Array, gamma: Array, beta: Array) -> Array:
    epsilon = step.attrs_as(LayerNormAttrs).epsilon
    return _op("layer_norm", {"epsilon": epsilon}, x, gamma, beta)


def _slice(step: ActorStep, x: Array) -> Array:
    first, count = step.attrs_as(ColumnsAttrs).columns
    return x[..., first : first + count]


def _transpose(step: ActorStep, x: Array) -> Array:
    return x.transpose(0, *(axis + 1 for axis in step.attrs_as(TransposeAttrs).perm))


def _center(step: ActorStep, x: Array) -> Array:
    return np.asarray(x - x.mean(axis=-1, keepdims=True))


TABLE: Mapping[str, Callable[..., Array]] = {
    "dense": lambda step, x, kernel, bias: x @ kernel + bias,
    "conv": _conv,
    "affine": lambda step, x, scale, offset: x * scale + offset,
    "clip": lambda step, x, low, high: np.minimum(np.maximum(x, low), high),
    "layer_norm": _layer_norm,
    "activate": lambda step, x: x,
    "center": _center,
    "softmax": lambda step, x: _op("softmax", {"axis": -1}, x),
    "max_pool": _pool,
    "avg_pool": _pool,
    "add": lambda step, x, y: x + y,
    "multiply": lambda step, x, y: x * y,
    "concat": lambda step, *inputs: np.concatenate(inputs, axis=-1),
    "flatten": lambda step, x: x.reshape(len(x), -1),
    "slice": _slice,
    "reshape": lambda step, x: x.reshape(len(x), *step.attrs_as(ShapeAttrs).shape),
    "transpose": _transpose,
    "sum": lambda step, x: x.sum(-1, keepdims=True),
    "matmul": lambda step, a, b: a @ b,
}
STEPS = Lowerings("rl/policy/floats", OPS, TABLE)
