"""The actor program: what a policy computes for one observation, as a few steps on float values.

It says what is computed, not in which format: `pack` puts the weights into int8, int4, float16 or
float32, and the same program serves all of them. Weights stand beside it, by name, so that a
learner's go from its variables into a packed block without another form between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attributes import A, Attributes, attributes_for
from qgraph.rl.actor.ops import OPS, Activation, ActivationAttrs, ActorOp, Shape, actor_op

Weights = Mapping[str, Array]  # float32, as a learner holds them
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, init=False)
class ActorStep:
    """One op on values by name, and its weights by name; `qgraph.rl.actor.ops` defines each.

    Attributes may be given as an instance of the op's class, or as values by name. Raises
    GraphError, naming the output, for an unknown op, a wrong number of inputs or weights, and
    attributes that the op does not have or that make no sense.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    weights: tuple[str, ...]
    attrs: Attributes

    def __init__(
        self,
        op: str,
        inputs: tuple[str, ...],
        output: str,
        weights: tuple[str, ...] = (),
        attrs: Attributes | Mapping[str, Any] = NOTHING,
    ) -> None:
        try:
            definition = actor_op(op)
            definition.check_counts(len(inputs), len(weights))
            checked = attributes_for(definition.attributes, attrs)
        except GraphError as error:
            message = f"{op}: {error.message}" if op in OPS else error.message
            raise GraphError(message, node=output, hint=error.hint) from None
        values = (op, inputs, output, weights, checked)
        for part, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, part.name, value)

    @property
    def definition(self) -> ActorOp[Any]:
        return OPS[self.op]

    @property
    def activation(self) -> Activation:
        """What the step ends in; linear for ops that have no activation."""
        found = self.attrs
        return found.activation if isinstance(found, ActivationAttrs) else Activation.LINEAR

    @property
    def alpha(self) -> float:
        return self.attrs.slope if isinstance(self.attrs, ActivationAttrs) else 0.0

    @property
    def is_linear_layer(self) -> bool:
        return self.definition.layer and self.activation is Activation.LINEAR

    def attrs_as(self, kind: type[A]) -> A:
        """The attributes, of a class that the caller knows them to be of. Raises GraphError."""
        if not isinstance(self.attrs, kind):
            raise GraphError(f"{self.op}: has no {kind.__name__}", node=self.output)
        return self.attrs

    def with_attrs(self, **changed: Any) -> ActorStep:
        """The step with some attributes changed. Raises GraphError."""
        attrs = {**dict(self.attrs.items()), **changed}
        return ActorStep(self.op, self.inputs, self.output, self.weights, attrs)


@dataclass(frozen=True)
class ActorProgram:
    """Steps from `observation`, of `shape` (one sample, float32), to `outputs`.

    weight_shapes says what `Weights` have to hold. Raises GraphError for steps that do not fit
    together.
    """

    shape: Shape
    steps: tuple[ActorStep, ...]
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
            weights = [self._weight(step, name) for name in step.weights]
            inputs = [known[name] for name in step.inputs]
            try:
                known[step.output] = step.definition.shape(step.attrs, inputs, weights)
            except GraphError as error:
                message = f"`{step.op}` does not fit: {error.message}"
                raise GraphError(message, node=step.output) from None
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
        parts = ("op", "inputs", "output", "weights")
        return {
            "shape": self.shape,
            "steps": [
                {**{part: getattr(step, part) for part in parts}, "attrs": step.attrs.given()}
                for step in self.steps
            ],
            "outputs": self.outputs,
            "weight_shapes": dict(self.weight_shapes),
            "observation": self.observation,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> ActorProgram:
        """What `as_json` gave, perhaps by way of JSON. Raises GraphError, TypeError, KeyError."""
        found = _tuples(found)
        steps = tuple(ActorStep(**step) for step in found["steps"])
        return ActorProgram(**{**found, "steps": steps})

    def _weight(self, step: ActorStep, name: str) -> Shape:
        if name not in self.weight_shapes:
            raise GraphError(f"`{name}` is no weight of the program", node=step.output)
        return self.weight_shapes[name]


def _tuples(value: Any) -> Any:
    """JSON has lists where there were tuples."""
    if isinstance(value, list | tuple):
        return tuple(_tuples(part) for part in value)
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, Mapping) else value
