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
from typing import TypeVar

from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attributes import A, Attributes, attributes_for
from qgraph.records import Object, from_json, to_object
from qgraph.rl.actor.ops import OPS, Activation, ActivationAttrs, AnyActorOp, Shape, actor_op
from qgraph.rl.actor.program_state import ProgramState, size_of

Weights = Mapping[str, Array]  # float32, as a learner holds them
NOTHING: Mapping[str, object] = MappingProxyType({})
T = TypeVar("T")


@dataclass(frozen=True, init=False)
class ActorStep:
    """One op of a program. `qgraph.rl.actor.ops` defines the ops.

    Attributes:
        op: Name of the op.
        inputs: Names of its inputs.
        output: Name of its output.
        weights: Names of its weights.
        attrs: Its attributes. The constructor also takes a mapping of values by name.

    Raises:
        GraphError: The op is unknown, it has another number of inputs or weights, or attributes are
            unknown or out of range. The error names the output.

    Examples:
        >>> from qgraph.rl.actor import ActorStep
        >>> step = ActorStep("dense", ("x",), "y", ("kernel", "bias"), {"activation": "relu"})
        >>> step.activation
        'relu'
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
        """The definition of the op."""
        return OPS[self.op]

    @property
    def activation(self) -> Activation:
        """The activation of the step; linear for ops without one."""
        attrs = self.attrs
        return attrs.activation if isinstance(attrs, ActivationAttrs) else Activation.LINEAR

    @property
    def alpha(self) -> float:
        """The slope of a leaky ReLU for negative inputs; 0 for other activations."""
        return self.attrs.slope if isinstance(self.attrs, ActivationAttrs) else 0.0

    @property
    def is_linear_layer(self) -> bool:
        """Whether the step is a layer without an activation."""
        return self.definition.layer and self.activation is Activation.LINEAR

    def attrs_as(self, kind: type[A]) -> A:
        """Get the attributes with a static type.

        Args:
            kind: The class of attributes to expect.

        Returns:
            The attributes.

        Raises:
            GraphError: The attributes are of another class.
        """
        if not isinstance(self.attrs, kind):
            raise GraphError(f"{self.op}: has no {kind.__name__}", node=self.output)
        return self.attrs

    def with_attrs(self, **changed: object) -> ActorStep:
        """Copy the step with some attributes changed.

        Args:
            changed: New values of attributes, by name.

        Returns:
            The new step.

        Raises:
            GraphError: An attribute is unknown or out of range.
        """
        attrs = {**dict(self.attrs.items()), **changed}
        return ActorStep(self.op, self.inputs, self.output, self.weights, attrs)


def step_with_weights(
    op: str,
    inputs: tuple[str, ...],
    output: str,
    weights: Mapping[str, T],
    attrs: Attributes | Mapping[str, object] = NOTHING,
) -> tuple[ActorStep, dict[str, T]]:
    """A step whose weights are named `OUTPUT/ROLE`, and these weights by name.

    Args:
        op: As in `ActorStep`.
        inputs: As in `ActorStep`.
        output: As in `ActorStep`.
        weights: Weights, their shapes or other facts about them, by role.
        attrs: As in `ActorStep`.

    Returns:
        The step, and the values of `weights` by the names of the weights.

    Raises:
        GraphError: As in `ActorStep`.

    Examples:
        >>> step_with_weights("dense", ("x",), "y", {"kernel": (4, 2), "bias": (2,)})[1]
        {'y/kernel': (4, 2), 'y/bias': (2,)}
    """
    by_name = {f"{output}/{role}": weight for role, weight in weights.items()}
    return ActorStep(op, inputs, output, tuple(by_name), attrs), by_name


@dataclass(frozen=True)
class ActorProgram:
    """The computation of a policy: steps from an observation to outputs, in float32.

    A program does not contain weights, only their names and shapes.

    Attributes:
        shape: Shape of one observation, which is float32.
        steps: The steps, in the order of computation.
        outputs: Names of the values that are outputs.
        weight_shapes: The shape of each weight, by name.
        observation: Name of the observation in the steps.
        states: The states of a recurrent program, which are the last columns of the observation.

    Raises:
        GraphError: The steps do not fit together.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.actor import ActorProgram, ActorStep
        >>> layer = ActorStep("dense", ("observation",), "logits", ("kernel", "bias"))
        >>> program = ActorProgram((4,), (layer,), ("logits",), {"kernel": (4, 2), "bias": (2,)})
        >>> weights = {"kernel": np.ones((4, 2), np.float32), "bias": np.zeros(2, np.float32)}
        >>> program.shapes()
        {'observation': (4,), 'logits': (2,)}
    """

    shape: Shape
    steps: tuple[ActorStep, ...]
    outputs: tuple[str, ...]
    weight_shapes: Mapping[str, Shape]
    observation: str = "observation"
    states: tuple[ProgramState, ...] = ()

    def __post_init__(self) -> None:
        known = self.shapes()
        for name in self.outputs:
            if name not in known:
                raise GraphError("an output that no step computes", node=name)
        for state in self.states:
            if state.output not in self.outputs or known[state.output] != (state.size,):
                raise GraphError(
                    f"its state has {state.size} numbers, which no output has", node=state.name
                )
        if self.states and (len(self.shape) != 1 or self.observed < 1):
            raise GraphError("states are columns of an observation that is a vector")

    @property
    def observed(self) -> int:
        """The numbers of an observation without states."""
        return math.prod(self.shape) - size_of(self.states)

    def shapes(self) -> dict[str, Shape]:
        """Compute the shape of each value for one observation.

        Returns:
            Shapes by name, without a batch axis.

        Raises:
            GraphError: The steps do not fit together.
        """
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
        """Count the elements of a value for one observation.

        Args:
            name: Name of the observation or of an output of a step.

        Returns:
            The number of elements.
        """
        return math.prod(self.shapes()[name])

    def check(self, weights: Weights) -> None:
        """Check that weights fit the program.

        Args:
            weights: Arrays by name.

        Raises:
            GraphError: A weight is missing or has another shape.
        """
        for name, shape in self.weight_shapes.items():
            if name not in weights:
                raise GraphError("the weight is missing", node=name)
            if tuple(weights[name].shape) != shape:
                given = tuple(weights[name].shape)
                raise GraphError(f"the weight has shape {given}, not {shape}", node=name)

    def as_json(self) -> Object:
        """Convert the program to JSON.

        Returns:
            An object that `from_json` reads.
        """
        steps = tuple(
            _StepRecord(step.op, step.inputs, step.output, step.weights, step.attrs.given())
            for step in self.steps
        )
        record = _ProgramRecord(
            self.shape,
            steps,
            self.outputs,
            self.weight_shapes,
            self.observation,
            self.states,
        )
        return to_object(record)

    @staticmethod
    def from_json(data: object) -> ActorProgram:
        """Read a program that `as_json` wrote.

        Args:
            data: The JSON object.

        Returns:
            The program.

        Raises:
            GraphError: The steps do not fit together.
            ValueError: The object has other fields.
        """
        record = from_json(_ProgramRecord, data)
        steps = tuple(
            ActorStep(step.op, step.inputs, step.output, step.weights, step.attrs)
            for step in record.steps
        )
        return ActorProgram(
            record.shape,
            steps,
            record.outputs,
            record.weight_shapes,
            record.observation,
            record.states,
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
    states: tuple[ProgramState, ...] = ()
