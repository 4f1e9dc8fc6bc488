"""Actor programs on TensorFlow's tensors, with gradients for learners.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import tensorflow as tf

from qgraph.errors import UnsupportedError
from qgraph.foreign import Tensor, TensorDType
from qgraph.ir.types import Array
from qgraph.ops.lowerings import LoweringRefusal, Lowerings
from qgraph.ops.movement import TransposeAttrs
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.actor.ops import ACTIVATIONS as OF_ACTORS
from qgraph.rl.actor.ops import (
    ALPHA,
    OPS,
    Activation,
    ActorConvAttrs,
    ColumnsAttrs,
    LayerNormAttrs,
    ShapeAttrs,
)
from qgraph.rl.learn.replay import Batch


class Transitions(NamedTuple):
    """A batch of n transitions for a learner's step.

    observation, next_observation  [n, *shape], in the environment's type
    action                         [n] of int, or [n, a] of float32 in [-1, 1]
    reward                         [n], the discounted sum over the steps of a transition
    discount                       [n], the factor of the value of next_observation; 0 at an end
    importance                     [n], the weight in the loss, at most 1
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_observation: Tensor
    importance: Tensor


NOTHING: Mapping[str, Tensor] = MappingProxyType({})
TRANSITION = Transitions._fields[:-1]  # the columns of a record


def run(
    program: ActorProgram,
    weights: Mapping[str, Tensor],
    x: Tensor,
    *,
    bfloat16: bool = False,
    dtype: TensorDType = tf.float32,
    through: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The first output [n, m] of observations [n, *shape]; parameters as in `run_all`."""
    return run_all(program, weights, x, bfloat16=bfloat16, dtype=dtype, through=through)[0]


def run_all(
    program: ActorProgram,
    weights: Mapping[str, Tensor],
    x: Tensor,
    *,
    bfloat16: bool = False,
    dtype: TensorDType = tf.float32,
    through: Callable[[Tensor], Tensor] | None = None,
    given: Mapping[str, Tensor] = NOTHING,
) -> list[Tensor]:
    """Every output [n, m] of observations [n, *shape].

    bfloat16: products are bfloat16, their sums and everything else float32. dtype: of weights and
    results. through: a function applied to the result of each step. given: values of steps that are
    not computed, such as the parts of a recurrent program's observation; then x may be None.
    """
    values = {} if x is None else {program.observation: tf.cast(x, dtype)}
    values |= given
    for step in program.steps:
        if step.output in given:
            continue
        inputs = [values[name] for name in step.inputs]
        result = _step(step, inputs, [weights[name] for name in step.weights], bfloat16)
        values[step.output] = result if through is None else through(result)
    return [values[name] for name in program.outputs]


def variables(
    weights: Mapping[str, Array], prefix: str, dtype: TensorDType = tf.float32
) -> dict[str, Tensor]:
    """A variable for each weight, by its name."""
    return {
        name: tf.Variable(value, name=f"{prefix}/{name}", dtype=dtype)
        for name, value in weights.items()
    }


def by_name(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The variables of several parts in one mapping, as `part/name`."""
    return {f"{part}/{name}": v for part, found in parts.items() for name, v in found.items()}


def transitions_of(batch: Batch) -> Transitions:
    """The tensors of a batch."""
    columns = [*(batch.records[name] for name in TRANSITION), batch.importance]
    return Transitions(*(tf.convert_to_tensor(column) for column in columns))


def _step(step: ActorStep, inputs: list[Tensor], weights: list[Tensor], bfloat16: bool) -> Tensor:
    rule = STEPS.of(step.op, step.output)
    if not step.definition.layer:
        return rule(step, inputs, weights)
    x, kernel, bias = inputs[0], *weights
    if bfloat16:
        x, kernel = tf.cast(x, tf.bfloat16), tf.cast(kernel, tf.bfloat16)
    sums = rule(step, [x], [kernel])
    return _activated(step, _plus(tf.cast(sums, bias.dtype), bias))


def _convolved(step: ActorStep, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    attrs = step.attrs_as(ActorConvAttrs)
    return tf.nn.conv2d(inputs[0], weights[0], attrs.strides, [(0, 0), *attrs.pads, (0, 0)])


def _layer_norm(step: ActorStep, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    mean, variance = tf.nn.moments(inputs[0], -1, keepdims=True)
    gamma, beta = weights
    epsilon = step.attrs_as(LayerNormAttrs).epsilon
    return tf.nn.batch_normalization(inputs[0], mean, variance, beta, gamma, epsilon)


def _slice(step: ActorStep, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    first, count = step.attrs_as(ColumnsAttrs).columns
    return inputs[0][..., first : first + count]


def _reshape(step: ActorStep, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    return tf.reshape(inputs[0], [tf.shape(inputs[0])[0], *step.attrs_as(ShapeAttrs).shape])


def _transpose(step: ActorStep, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    perm = step.attrs_as(TransposeAttrs).perm
    return tf.transpose(inputs[0], [0, *(axis + 1 for axis in perm)])


Rule = Callable[[ActorStep, list[Tensor], list[Tensor]], Tensor]
NO_DERIVATIVE = LoweringRefusal("a learner has no derivative of it")
# Layers without their bias and activation.
STEPS: Lowerings[Rule] = Lowerings(
    "rl/learn/tensors",
    OPS,
    {
        "dense": lambda step, x, w: tf.matmul(x[0], w[0]),
        "conv": _convolved,
        "affine": lambda step, x, w: x[0] * w[0] + w[1],
        "clip": lambda step, x, w: tf.clip_by_value(x[0], w[0], w[1]),
        "layer_norm": _layer_norm,
        "activate": lambda step, x, w: _activated(step, x[0]),
        "center": lambda step, x, w: x[0] - tf.reduce_mean(x[0], -1, keepdims=True),
        "add": lambda step, x, w: x[0] + x[1],
        "multiply": lambda step, x, w: x[0] * x[1],
        "concat": lambda step, x, w: tf.concat(x, -1),
        "flatten": lambda step, x, w: tf.reshape(x[0], [tf.shape(x[0])[0], -1]),
        "slice": _slice,
        "reshape": _reshape,
        "transpose": _transpose,
        "sum": lambda step, x, w: tf.reduce_sum(x[0], -1, keepdims=True),
        "matmul": lambda step, x, w: tf.matmul(x[0], x[1]),
    },
    dict.fromkeys(("softmax", "max_pool", "avg_pool"), NO_DERIVATIVE),
)
ACTIVATIONS: Lowerings[Callable[[Tensor], Tensor]] = Lowerings(
    "rl/learn/tensors",
    OF_ACTORS,
    {
        "linear": lambda x: x,
        "relu": tf.nn.relu,
        "elu": tf.nn.elu,
        "tanh": tf.tanh,
        "sigmoid": tf.sigmoid,
    },
    dict.fromkeys(("leaky_relu", "softplus", "swish", "exp", "sign", "erf"), NO_DERIVATIVE),
)


def _plus(x: Tensor, bias: Tensor) -> Tensor:
    if x.dtype != tf.float16:
        return x + bias
    return _to_pixels(x, bias) if x.shape.rank == 4 else _unfused(x, bias)


def _unfused(x: Tensor, bias: Tensor) -> Tensor:
    """TensorFlow would fuse x + bias with the product, which in float16 is slow on most CPUs."""
    return tf.add_n([x, tf.broadcast_to(bias, tf.shape(x))])


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _to_pixels(x: Tensor, bias: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """Add a bias to images; its gradient is summed in float32, since float16 loses small terms.

    430,000 times 0.01 gives 128 in float16.
    """

    def back(gradient: Tensor) -> tuple[Tensor, Tensor]:
        whole = tf.reduce_sum(tf.cast(gradient, tf.float32), [0, 1, 2])
        return gradient, tf.cast(whole, bias.dtype)

    return _unfused(x, bias), back


def _activated(step: ActorStep, x: Tensor) -> Tensor:
    if step.activation is Activation.ELU and step.alpha != ALPHA[Activation.ELU]:
        raise UnsupportedError(f"a learner has no elu with alpha {step.alpha}", node=step.output)
    return ACTIVATIONS.of(step.activation, step.output)(x)


def copies(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Give each second variable the value of the first."""
    for source, target in pairs:
        target.assign(source)
