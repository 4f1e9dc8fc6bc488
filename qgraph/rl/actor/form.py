"""The actor program: what a policy computes for one observation, as a few steps on float values.

It says what is computed, not in which format: `pack` puts the weights into int8, int4, float16 or
float32, and the same program serves all of them. Weights stand beside it, by name, so that a
learner's go from its variables into a packed block without another form between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qgraph.errors import GraphError
from qgraph.ir.types import Array

Weights = Mapping[str, Array]  # float32, as a learner holds them
Shape = tuple[int, ...]  # of one sample

ACTIVATIONS = (
    "linear", "relu", "leaky_relu", "elu", "tanh", "sigmoid", "softplus", "swish", "exp",
)  # fmt: skip
ALPHA = {"leaky_relu": 0.2, "elu": 1.0}  # where a step does not say its own


@dataclass(frozen=True)
class Step:
    """`op` on values by name; what else it needs is in attrs, and its weights by name.

    op          weights                             attrs
    dense       kernel [k, m], bias [m]             activation, alpha
    conv        kernel [kh, kw, c, m], bias [m]     the same, strides, pads ((t, b), (l, r))
    affine      scale [c], offset [c]               -            x * scale + offset, last axis
    clip        low [c], high [c]                   -            last axis
    layer_norm  gamma [c], beta [c]                 epsilon      over all of a sample
    activate    -                                   activation, alpha
    center      -                                   -            x - mean(x), last axis
    softmax     -                                   -            last axis
    max_pool    -                                   ksize, strides, pads
    add, multiply   -   -     two values of one shape, or the second with a last axis of 1
    concat      -                                   -            last axis
    flatten     -                                   -            rows first, as NHWC lies
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    weights: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def activation(self) -> str:
        return str(self.attrs.get("activation", "linear"))

    @property
    def alpha(self) -> float:
        return float(self.attrs.get("alpha", ALPHA.get(self.activation, 0.0)))

    @property
    def strides(self) -> tuple[int, int]:
        height, width = self.attrs.get("strides", (1, 1))
        return int(height), int(width)

    @property
    def pads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        (top, bottom), (left, right) = self.attrs.get("pads", ((0, 0), (0, 0)))
        return (int(top), int(bottom)), (int(left), int(right))


@dataclass(frozen=True)
class ActorProgram:
    """Steps from `observation`, of `shape` (one sample, float32), to `outputs`.

    weight_shapes says what `Weights` have to hold. Raises GraphError for steps that do not fit
    together.
    """

    shape: Shape
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    weight_shapes: Mapping[str, Shape]
    observation: str = "observation"

    def __post_init__(self) -> None:
        known = self.shapes()
        for name in self.outputs:
            if name not in known:
                raise GraphError("is an output that no step makes", node=name)

    def shapes(self) -> dict[str, Shape]:
        """The shape of each value, of one sample."""
        known = {self.observation: self.shape}
        for step in self.steps:
            for name in step.inputs:
                if name not in known:
                    raise GraphError(f"`{name}` is used before a step makes it", node=step.output)
            if step.output in known:
                raise GraphError("is made twice", node=step.output)
            if step.op not in RULES:
                raise GraphError(f"no actor has an op `{step.op}`", node=step.output)
            if step.activation not in ACTIVATIONS:
                raise GraphError(f"no actor has `{step.activation}`", node=step.output)
            weights = [self._weight(step, name) for name in step.weights]
            try:
                known[step.output] = RULES[step.op](step, [known[i] for i in step.inputs], weights)
            except (ValueError, IndexError) as error:
                raise GraphError(f"`{step.op}` does not fit: {error}", node=step.output) from None
        return known

    def size(self, name: str) -> int:
        """How many numbers a value has."""
        return math.prod(self.shapes()[name])

    def check(self, weights: Weights) -> None:
        """Raises GraphError for weights that are missing or of another shape."""
        for name, shape in self.weight_shapes.items():
            if name not in weights:
                raise GraphError("is a weight that is not given", node=name)
            if tuple(weights[name].shape) != shape:
                found = tuple(weights[name].shape)
                raise GraphError(f"is a weight of shape {shape}, but given is {found}", node=name)

    def as_json(self) -> dict[str, Any]:
        """All of it in numbers, texts and lists, for `from_json`."""
        parts = ("op", "inputs", "output", "weights", "attrs")
        return {
            "shape": self.shape,
            "steps": [{part: getattr(step, part) for part in parts} for step in self.steps],
            "outputs": self.outputs,
            "weight_shapes": dict(self.weight_shapes),
            "observation": self.observation,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> ActorProgram:
        """What `as_json` gave, perhaps by way of JSON. Raises GraphError, TypeError, KeyError."""
        found = _tuples(found)
        steps = tuple(Step(**step) for step in found["steps"])
        return ActorProgram(**{**found, "steps": steps})

    def _weight(self, step: Step, name: str) -> Shape:
        if name not in self.weight_shapes:
            raise GraphError(f"`{name}` is no weight of the program", node=step.output)
        return self.weight_shapes[name]


def _tuples(value: Any) -> Any:
    """JSON has lists where there were tuples."""
    if isinstance(value, list | tuple):
        return tuple(_tuples(part) for part in value)
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, Mapping) else value


# -- shape rules --------------------------------------------------------------------------------


def _same(wanted: Any, found: Any) -> None:
    if wanted != found:
        raise ValueError(f"{found} where {wanted} is wanted")


def _dense(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    (x,), (kernel, bias) = inputs, weights
    _same((x[0], kernel[1]), kernel)
    _same((kernel[1],), bias)
    _same(1, len(x))
    return bias


def _conv(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    (x,), (kernel, bias) = inputs, weights
    _same(3, len(x))
    _same((*kernel[:2], x[2], kernel[3]), kernel)
    _same((kernel[3],), bias)
    return (*_windows(step, x, kernel[:2]), kernel[3])


def _max_pool(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    (x,) = inputs
    _same(3, len(x))
    return (*_windows(step, x, tuple(step.attrs["ksize"])), x[2])


def _windows(step: Step, x: Shape, ksize: Shape) -> Shape:
    found = []
    for size, kernel, stride, pads in zip(x[:2], ksize, step.strides, step.pads, strict=True):
        if size + sum(pads) < kernel or stride < 1:
            raise ValueError(f"a window of {kernel} on {size} values, {stride} apart")
        found.append((size + sum(pads) - kernel) // stride + 1)
    return tuple(found)


def _per_channel(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    (x,), (first, second) = inputs, weights
    _same((x[-1],), first)
    _same((x[-1],), second)
    return x


def _layer_norm(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    _same(1, len(inputs[0]))
    return _per_channel(step, inputs, weights)


def _keeps(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    (x,) = inputs
    return x


def _two(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    a, b = inputs
    if b != (*a[:-1], 1):
        _same(a, b)
    return a


def _concat(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    for x in inputs[1:]:
        _same(inputs[0][:-1], x[:-1])
    return (*inputs[0][:-1], sum(x[-1] for x in inputs))


def _flatten(step: Step, inputs: list[Shape], weights: list[Shape]) -> Shape:
    (x,) = inputs
    return (math.prod(x),)


Rule = Callable[[Step, list[Shape], list[Shape]], Shape]
RULES: Mapping[str, Rule] = {
    "dense": _dense,
    "conv": _conv,
    "affine": _per_channel,
    "clip": _per_channel,
    "layer_norm": _layer_norm,
    "activate": _keeps,
    "center": _keeps,
    "softmax": _keeps,
    "max_pool": _max_pool,
    "add": _two,
    "multiply": _two,
    "concat": _concat,
    "flatten": _flatten,
}
