"""Graph fusion: two steps as one, if no other step uses the value between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.compress.chain_policy import ChainPolicy, Task, rebuilt, shared
from qgraph.rl.compress.link import Link

Merged = tuple[ActorStep, dict[str, Array]]  # the one step, and its weights by name


@dataclass(frozen=True)
class Fuse(Link):
    """Merge pairs of steps, with the same function to float rounding (AcceRL, section 2.2).

    Activations and scales after a layer are merged into it, the mean of advantages into their
    weights, and two linear dense layers into one unless that has more weights. A scale in front of
    a layer is merged only if it is the same for all features: otherwise features of different size
    would share one range, which loses accuracy with few bits.
    """

    name: ClassVar[str] = "fuse"

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        while (merged := _once(policy, task)) is not None:
            policy = merged
        return policy


def _once(policy: ChainPolicy, task: Task) -> ChainPolicy | None:
    """Merge the first pair that can be merged; None if there is none."""
    program, common = policy.program, shared(policy.program)
    for first, then in _pairs(program):
        rule = RULES.get((first.op, then.op))
        if rule is None:
            continue
        if common.intersection((*first.weights, *then.weights)):
            task.refuse(then.output, "other steps use its weights too")
            continue
        values = {name: _wide(policy.weights[name]) for name in (*first.weights, *then.weights)}
        merged = rule(first, then, values)
        if isinstance(merged, str):
            task.refuse(then.output, merged)
            continue
        step, weights = merged
        step = replace(step, inputs=first.inputs, output=then.output)
        steps = [step if s is then else s for s in program.steps if s is not first]
        return rebuilt(policy, steps, {**policy.weights, **weights})
    return None


def _pairs(program: ActorProgram) -> list[tuple[ActorStep, ActorStep]]:
    """Pairs of steps of which only the second uses the value of the first."""
    pairs = []
    for first in program.steps:
        takers = [s for s in program.steps if first.output in s.inputs]
        if len(takers) == 1 and len(takers[0].inputs) == 1 and first.output not in program.outputs:
            pairs.append((first, takers[0]))
    return pairs


def _wide(weight: Array) -> Array:
    return np.asarray(weight, np.float64)


# -- rules: the merged step and its weights, or the reason for a refusal ---------------------------


HAS_ACTIVATION = "the step in front has an activation"


def _scale_into_layer(
    first: ActorStep, then: ActorStep, values: Mapping[str, Array]
) -> Merged | str:
    scale, offset = (values[name] for name in first.weights)
    kernel, bias = then.weights
    if np.any(offset) or np.any(scale != scale[0]):
        return "the scale in front has an offset, or differs between features"
    return then, {kernel: values[kernel] * scale[0], bias: values[bias]}


def _scale_behind_layer(
    first: ActorStep, then: ActorStep, values: Mapping[str, Array]
) -> Merged | str:
    scale, offset = (values[name] for name in then.weights)
    kernel, bias = first.weights
    if first.activation != "linear":
        return HAS_ACTIVATION
    return first, {kernel: values[kernel] * scale, bias: values[bias] * scale + offset}


def _activation(first: ActorStep, then: ActorStep, values: Mapping[str, Array]) -> Merged | str:
    if first.activation != "linear":
        return HAS_ACTIVATION
    return first.with_attrs(**dict(then.attrs.items())), {}


def _mean_into_layer(
    first: ActorStep, then: ActorStep, values: Mapping[str, Array]
) -> Merged | str:
    if first.activation != "linear":
        return HAS_ACTIVATION
    return first, {name: w - w.mean(-1, keepdims=True) for name, w in values.items()}


def _two_linear(first: ActorStep, then: ActorStep, values: Mapping[str, Array]) -> Merged | str:
    (before, shift), (kernel, bias) = first.weights, then.weights
    product = values[before] @ values[kernel]
    if first.activation != "linear":
        return HAS_ACTIVATION
    if product.size > values[before].size + values[kernel].size:
        return "one layer would have more weights than two"
    return then, {kernel: product, bias: values[shift] @ values[kernel] + values[bias]}


Rule = Callable[[ActorStep, ActorStep, Mapping[str, Array]], Merged | str]
RULES: Mapping[tuple[str, str], Rule] = {
    ("affine", "dense"): _scale_into_layer,
    ("affine", "conv"): _scale_into_layer,
    ("dense", "affine"): _scale_behind_layer,
    ("conv", "affine"): _scale_behind_layer,
    ("dense", "activate"): _activation,
    ("conv", "activate"): _activation,
    ("dense", "center"): _mean_into_layer,
    ("dense", "dense"): _two_linear,
}
