"""The writer of actor programs that rules use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import kind_of
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes
from qgraph.rewrite.constants import channel_vector
from qgraph.rl.actor.ops import OPS, ChannelRule
from qgraph.rl.actor.program import NOTHING, ActorStep, step_with_weights

# Steps whose result has the channels of their first input.
ALIKE = (ChannelRule.SEPARATE, ChannelRule.PAIRED)


class ActorProgramWriter:
    """The steps of a program, written from the nodes of `graph` in its order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: dict[str, ActorStep] = {}  # by output
        self.weights: dict[str, Array] = {}
        self.aliases: dict[str, str] = {}  # values that a step computes under another name
        self.means: dict[str, str] = {}  # means over the last axis, by name: the value
        self.reshaped: dict[str, str] = {}  # values in another shape for a while: the value
        self.observation = ""
        self.selected: dict[str, Array] = {}  # columns of the observation, by step that takes them

    def value(self, name: str) -> str:
        """The value of the program that `name` stands for."""
        while name in self.aliases:
            name = self.aliases[name]
        if name in self.means or name in self.reshaped:
            raise no_actor(self.graph.producer(name))
        return name

    def before(self, value: str) -> ActorStep | None:
        """The step that computes `value`, unless the value has other users or is selected."""
        alone = self.graph.use_count(value) == 1
        while alone and value in self.aliases:
            value = self.aliases[value]
            alone = self.graph.use_count(value) == 1
        return self.steps.get(value) if alone and value not in self.selected else None

    def sample(self, value: str) -> tuple[int | None, ...]:
        return (self.graph.types[value].shape or ())[1:]

    def shape(self, value: str) -> tuple[int | None, ...]:
        """The shape of a value of the graph, or of a vector that columns were taken for."""
        if value in self.graph.types:
            return self.graph.types[value].shape or ()
        return (None, self._width(value))

    def constant(self, node: Node, index: int = 1) -> Array:
        array = self.graph.constant(node.inputs[index])
        if array is None:
            raise UnsupportedError("the weights of an actor must be constant", node=node.name)
        return np.asarray(array, np.float32)

    def vector(self, node: Node, index: int) -> Array | None:
        """An input as one number for each channel of `node`; None if it is not a constant."""
        channels = (self.sample(node.name) or (None,))[-1]
        vector = channel_vector(self.graph, node.inputs[index], channels)
        return None if vector is None else np.array(vector, np.float32)

    def add(
        self,
        name: str,
        op: str,
        *inputs: str,
        attrs: Mapping[str, object] | Attributes = NOTHING,
        **weights: Array,
    ) -> None:
        """Add a step that computes the value `name`."""
        values = tuple(self.value(v) for v in inputs)
        self.steps[name], by_name = step_with_weights(op, values, name, weights, attrs)
        self.weights.update(by_name)

    def join(self, node: Node, step: ActorStep, **weights: Array) -> None:
        """Let `step` compute the value of `node`; weights replace its own, by role."""
        self.weights.update({_of_role(step, role): array for role, array in weights.items()})
        changed = replace(step, output=node.name)
        steps = [changed if old == step.output else each for old, each in self.steps.items()]
        self.steps = {each.output: each for each in steps}

    def columns(self, node: Node, value: str, columns: Array, channels: int) -> str:
        """The value of some columns of `value`, [..., channels], computed by new steps.

        Layers and steps on single channels can compute some columns alone, and a selection takes
        columns of an observation that is a vector. Raises UnsupportedError for other steps.
        """
        if len(columns) == channels and (columns == np.arange(channels)).all():
            return value
        step, name = self.steps.get(value), f"{node.name}/{value}"
        if name in self.steps:
            return name
        if value in self.selected:
            return self.select(name, self.selected[value][columns])
        if value == self.observation and len(self.sample(value)) == 1:
            return self.select(name, columns)
        weights = {} if step is None else {n.rsplit("/", 1)[-1]: n for n in step.weights}
        taken = {role: self.weights[n][..., columns] for role, n in weights.items()}
        if step is not None and step.definition.layer:
            self.add(name, step.op, step.inputs[0], attrs=step.attrs, **taken)
        elif step is not None and step.definition.channels is ChannelRule.SEPARATE:
            part = self.columns(node, step.inputs[0], columns, channels)
            self.add(name, step.op, part, attrs=step.attrs, **taken)
        elif step is not None and step.definition.channels is ChannelRule.PAIRED:
            whole = [self._width(each) == channels for each in step.inputs]
            parts = [
                self.columns(node, each, columns, channels) if own else each
                for each, own in zip(step.inputs, whole, strict=True)
            ]
            self.add(name, step.op, *parts)
        else:
            raise no_actor(node, " of a value that mixes channels")
        return name

    def _width(self, value: str) -> int | None:
        """The size of the last axis of a value of the program."""
        step = self.steps.get(value)
        if value in self.selected:
            return len(self.selected[value])
        if step is not None and step.weights:
            return int(self.weights[step.weights[-1]].shape[-1])
        if step is not None and step.op == "concat":
            return sum(self._width(value) or 0 for value in step.inputs)
        if step is not None and step.definition.channels in ALIKE:
            return self._width(step.inputs[0])
        return (self.sample(value) or (None,))[-1] if value in self.graph.types else None

    def select(self, name: str, columns: Array) -> str:
        """A step that takes some columns of the observation."""
        (total,) = self.sample(self.observation)
        kernel = np.zeros((int(total or 0), len(columns)), np.float32)
        kernel[columns, np.arange(len(columns))] = 1
        bias = np.zeros(len(columns), np.float32)
        self.selected[name] = columns
        self.add(name, "dense", self.observation, kernel=kernel, bias=bias)
        return name

    def weight(self, step: ActorStep, role: str) -> Array:
        return self.weights[_of_role(step, role)]


def _of_role(step: ActorStep, role: str) -> str:
    return next(name for name in step.weights if name.endswith(f"/{role}"))


def no_actor(node: Node, why: str = "", hint: str = "") -> UnsupportedError:
    kind = kind_of(node)
    return UnsupportedError(
        f"actors do not support `{kind}`{why}",
        node=node.name,
        hint=hint or f"ops of actors: {', '.join(OPS)}",
    )
