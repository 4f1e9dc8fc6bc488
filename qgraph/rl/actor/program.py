"""The actor program: the computation of a policy for one observation, as steps on float values.

It does not fix a number format: `Packer` stores the weights in int8, int4, float16 or float32, and
the program is the same. Weights are kept apart, by name, so that a learner's variables are packed
into a block directly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attributes import A, Attributes, attributes_for
from qgraph.records import Object, from_json, to_object
from qgraph.rl.actor.ops import OPS, Activation, ActivationAttrs, AnyActorOp, Shape, actor_op

Weights = Mapping[str, Array]  # float32, as a learner holds them
NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, init=False)
class ActorStep:
    """One op, with its inputs, output and weights by name; `qgraph.rl.actor.ops` defines the ops.

    Attributes may be given as an instance of the op's class, or as values by name. Raises
    GraphError, which names the output, for an unknown op, a wrong number of inputs or weights, and
    attributes that are unknown or out of range.
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
        attrs: Attributes | Mapping[str, object] = NOTHING,
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
    def definition(self) -> AnyActorOp:
        return OPS[self.op]

    @property
    def activation(self) -> Activation:
        """The activation of the step; linear for ops without one."""
        attrs = self.attrs
        return attrs.activation if isinstance(attrs, ActivationAttrs) else Activation.LINEAR

    @property
    def alpha(self) -> float:
        return self.attrs.slope if isinstance(self.attrs, ActivationAttrs) else 0.0

    @property
    def is_linear_layer(self) -> bool:
        return self.definition.layer and self.activation is Activation.LINEAR

    def attrs_as(self, kind: type[A]) -> A:
        """The attributes as `kind`. Raises GraphError if they are of another class."""
        if not isinstance(self.attrs, kind):
            raise GraphError(f"{self.op}: has no {kind.__name__}", node=self.output)
        return self.attrs

    def with_attrs(self, **changed: object) -> ActorStep:
        """The step with some attributes changed. Raises GraphError."""
        attrs = {**dict(self.attrs.items()), **changed}
        return ActorStep(self.op, self.inputs, self.output, self.weights, attrs)


@dataclass(frozen=True)
class ActorProgram:
    """Steps from `observation`, of `shape` (one sample, float32), to `outputs`.

    weight_shapes: the shapes of its `Weights`, by name. Raises GraphError for steps that do not
    fit together.
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
                raise GraphError("an output that no step computes", node=name)

    def shapes(self) -> dict[str, Shape]:
        """The shape of each value, of one sample."""
        known = {self.observation: self.shape}
        for step in self.steps:
            for name in step.inputs:
                if name not in known:
                    raise GraphError(f"`{name}` is used before it is computed", node=step.output)
            if step.output in known:
                raise GraphError("computed by two steps", node=step.output)
            weights = [self._weight(step, name) for name in step.weights]
            inputs = [known[name] for name in step.inputs]
            try:
                known[step.output] = step.definition.shape(step.attrs, inputs, weights)
            except GraphError as error:
                message = f"`{step.op}` does not fit: {error.message}"
                raise GraphError(message, node=step.output) from None
        return known

    def size(self, name: str) -> int:
        """The number of elements of a value."""
        return math.prod(self.shapes()[name])

    def check(self, weights: Weights) -> None:
        """Raises GraphError for weights that are missing or of another shape."""
        for name, shape in self.weight_shapes.items():
            if name not in weights:
                raise GraphError("the weight is missing", node=name)
            if tuple(weights[name].shape) != shape:
                given = tuple(weights[name].shape)
                raise GraphError(f"the weight has shape {given}, not {shape}", node=name)

    def as_json(self) -> Object:
        """The program as JSON, which `from_json` reads."""
        steps = tuple(
            _StepRecord(step.op, step.inputs, step.output, step.weights, step.attrs.given())
            for step in self.steps
        )
        record = _ProgramRecord(
            self.shape, steps, self.outputs, self.weight_shapes, self.observation
        )
        return to_object(record)

    @staticmethod
    def from_json(data: object) -> ActorProgram:
        """The program that `as_json` wrote. Raises GraphError, ValueError."""
        record = from_json(_ProgramRecord, data)
        steps = tuple(
            ActorStep(step.op, step.inputs, step.output, step.weights, step.attrs)
            for step in record.steps
        )
        return ActorProgram(
            record.shape, steps, record.outputs, record.weight_shapes, record.observation
        )

    def _weight(self, step: ActorStep, name: str) -> Shape:
        if name not in self.weight_shapes:
            raise GraphError(f"the program has no weight `{name}`", node=step.output)
        return self.weight_shapes[name]


@dataclass(frozen=True)
class _StepRecord:
    """A step in JSON; attributes that have their defaults are left out."""

    op: str
    inputs: tuple[str, ...]
    output: str
    weights: tuple[str, ...]
    attrs: Mapping[str, object]


@dataclass(frozen=True)
class _ProgramRecord:
    """A program in JSON."""

    shape: Shape
    steps: tuple[_StepRecord, ...]
    outputs: tuple[str, ...]
    weight_shapes: Mapping[str, Shape]
    observation: str
