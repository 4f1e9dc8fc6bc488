"""The encoder of images for continuous control (Kostrikov et al., 2020; section 4.6).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.actor.program import step_with_weights
from qgraph.rl.half.precision import Rounding
from qgraph.rl.half.standardize import standardized

Shape = tuple[int, ...]
FILTERS, FEATURES = 32, 50
STRIDES = (2, 1, 1, 1)
SHIFT = 4  # the most pixels that images are shifted by


def encoder(shape: Shape) -> ActorProgram:
    """Images [h, w, c] to 50 features: four convolutions, a linear layer, a layer norm, tanh."""
    height, width, channels = shape
    steps = [ActorStep("affine", ("observation",), "scaled", ("scaled/scale", "scaled/offset"))]
    shapes: dict[str, Shape] = {"scaled/scale": (channels,), "scaled/offset": (channels,)}

    def add(op: str, name: str, weights: Mapping[str, Shape], **attrs: object) -> None:
        step, by_name = step_with_weights(op, (steps[-1].output,), name, weights, attrs)
        steps.append(step)
        shapes.update(by_name)

    for i, stride in enumerate(STRIDES):
        weights = {"kernel": (3, 3, channels, FILTERS), "bias": (FILTERS,)}
        add("conv", f"conv_{i}", weights, activation="relu", strides=(stride, stride))
        height, width = (height - 3) // stride + 1, (width - 3) // stride + 1
        channels = FILTERS
    add("flatten", "flat", {})
    weights = {"kernel": (height * width * FILTERS, FEATURES), "bias": (FEATURES,)}
    add("dense", "encoded", weights)
    add("layer_norm", "norm", {"gamma": (FEATURES,), "beta": (FEATURES,)}, epsilon=1e-6)
    add("activate", "features", {}, activation="tanh")
    return ActorProgram(shape, tuple(steps), ("features",), shapes)


def composed(first: ActorProgram, then: ActorProgram) -> ActorProgram:
    """One program: `then` on the output of `first`."""
    given = {then.observation: first.outputs[0]}
    steps = [
        replace(step, inputs=tuple(given.get(name, name) for name in step.inputs))
        for step in then.steps
    ]
    shapes = {**first.weight_shapes, **then.weight_shapes}
    return ActorProgram(first.shape, (*first.steps, *steps), then.outputs, shapes)


def encoder_weights(weights: Mapping[str, Tensor], rounded: Rounding) -> dict[str, Tensor]:
    """The weights that an encoder runs with; those of its linear layer are standardised."""
    return {**weights, "encoded/kernel": rounded(standardized(weights["encoded/kernel"]))}


def shifted(images: Tensor, seed: Tensor) -> Tensor:
    """Images [n, h, w, c], each shifted by up to SHIFT pixels; border pixels are repeated."""
    n, height, width = (tf.shape(images)[axis] for axis in range(3))
    by = tf.random.stateless_uniform([2, n], seed, -SHIFT, SHIFT + 1, tf.int32)
    rows = tf.clip_by_value(tf.range(height) + by[0][:, None], 0, height - 1)
    columns = tf.clip_by_value(tf.range(width) + by[1][:, None], 0, width - 1)
    moved = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(moved, columns, axis=2, batch_dims=1)
