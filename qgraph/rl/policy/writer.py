"""The writer of actor programs that rules use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import kind_of
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes
from qgraph.ops.movement import TransposeAttrs
from qgraph.rewrite.constants import channel_vector
from qgraph.rl.actor.ops import OPS, ChannelRule, Shape
from qgraph.rl.actor.program import NOTHING, ActorStep, step_with_weights
from qgraph.rl.policy.sample_axis import SampleAxis

RESHAPED = ("reshape", "flatten")  # steps that keep all numbers in their order
ARRANGING = ("reshape", "expand_dims", "squeeze", "transpose", "identity")  # nodes of any layout


class ActorProgramWriter:
    """The steps of a program, written from the nodes of `graph` in its order.

    A step's value may have another shape than the value of the graph that it stands for, with the
    same numbers in the same order and the same last axis: axes of size 1 need no steps. Where a
    shape matters, `shaped` adds one.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: dict[str, ActorStep] = {}  # by output
        self.weights: dict[str, Array] = {}
        self.aliases: dict[str, str] = {}  # values that a step computes under another name
        self.shapes: dict[str, Shape] = {}  # of the observation and the results of steps
        self.means: dict[str, str] = {}  # means over the last axis, by name: the value
        self.samples: dict[str, SampleAxis] = {}  # where they are not along the first axis
        self.observation = ""
        self.selected: dict[str, Array] = {}  # columns of the observation, by step that takes them

    def value(self, name: str) -> str:
        """The value of the program that `name` stands for."""
        while name in self.aliases:
            name = self.aliases[name]
        if name in self.means:
            self._add_mean(name, self.means.pop(name))
        return name

    def _add_mean(self, name: str, x: str) -> None:
        """Add the mean of x over its last axis, the value `name`."""
        self.add(f"{name}/sum", "sum", x)
        share = np.full(1, 1 / self.shapes[x][-1], np.float32)
        self.add(name, "affine", f"{name}/sum", scale=share, offset=np.zeros(1, np.float32))

    def shaped(self, name: str) -> str:
        """The value of the program that `name` stands for, in the shape of a sample of it."""
        return self.reshaped(f"{name}/shaped", self.value(name), self.known(name))

    def reshaped(self, name: str, value: str, shape: Shape) -> str:
        """A value of the program in another shape: itself, or the step `name`."""
        while self.shapes[value] != shape and self._is_reshape(value):
            value = self.steps[value].inputs[0]
        if self.shapes[value] == shape:
            return value
        if name not in self.steps and len(shape) == 1:
            self.add(name, "flatten", value)
        elif name not in self.steps:
            self.add(name, "reshape", value, attrs={"shape": shape})
        return name

    def _is_reshape(self, value: str) -> bool:
        return value in self.steps and self.steps[value].op in RESHAPED

    def before(self, value: str) -> ActorStep | None:
        """The step that computes `value`, unless the value has other users."""
        alone = self.graph.use_count(value) == 1
        while alone and value in self.aliases:
            value = self.aliases[value]
            alone = self.graph.use_count(value) == 1
        return self.steps.get(value) if alone else None

    def sample(self, value: str) -> tuple[int | None, ...]:
        """The shape of one sample of a value of the graph."""
        shape = self.graph.types[value].shape or ()
        return self.samples_of(value).sample(shape) if shape else ()

    def samples_of(self, value: str) -> SampleAxis:
        """The axis of samples of a value of the graph."""
        return self.samples.get(value, SampleAxis())

    def known(self, value: str) -> Shape:
        """The shape of one sample of a value of the graph. Raises UnsupportedError if unknown."""
        sizes = [size for size in self.sample(value) if size is not None]
        if len(sizes) < len(self.sample(value)):
            raise no_actor(self.graph.producer(value), " whose size is unknown")
        return tuple(sizes) or (1,)

    def axis(self, node: Node, axis: int) -> int:
        """An axis of a node's first input as an axis of one sample of it.

        Raises UnsupportedError for the axis of samples.
        """
        value = node.inputs[0]
        place = self.samples_of(value).place(axis % (self.graph.types[value].rank or 1))
        if place is None:
            raise no_actor(node, " along the axis of samples")
        return place

    def begin(self, node: Node) -> None:
        """Begin a node, in whose result samples lie as in its inputs."""
        values = [v for v in node.inputs if self.graph.constant(v) is None]
        given = {self.samples_of(value) for value in values}
        if len(given) > 1:
            raise no_actor(node, " of values in which samples lie along different axes")
        samples = given.pop() if given else SampleAxis()
        ranks = {self.graph.types[value].rank or 0 for value in values}
        if node.op not in ARRANGING and samples.axis and samples.axis + 1 in ranks:
            raise no_actor(node, " with samples along the last axis")
        self.samples[node.name] = samples

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

    def numbers(self, node: Node, index: int) -> Array | None:
        """An input as one number for each number of a sample of `node`, in a row.

        None if it is not a constant, or differs from sample to sample.
        """
        array = self.graph.constant(node.inputs[index])
        shape, samples = self.graph.types[node.name].shape or (), self.samples_of(node.name)
        if array is None or array.ndim > len(shape) or samples.before > 1:
            return None
        axis = samples.axis - (len(shape) - array.ndim)
        if axis >= 0 and array.shape[axis] != 1:
            return None
        each = (*shape[: samples.axis], samples.rows, *shape[samples.axis + 1 :])
        return np.array(np.broadcast_to(array, [size or 1 for size in each]), np.float32).ravel()

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
        step, by_name = step_with_weights(op, values, name, weights, attrs)
        self.weights.update(by_name)
        shapes = [self.shapes[value] for value in values]
        self.shapes[name] = step.definition.shape(
            step.attrs, shapes, [array.shape for array in weights.values()]
        )
        self.steps[name] = step

    def join(self, node: Node, step: ActorStep, **weights: Array) -> None:
        """Let `step` compute the value of `node`; weights replace its own, by role."""
        self.weights.update({_of_role(step, role): array for role, array in weights.items()})
        changed = replace(step, output=node.name)
        steps = [changed if old == step.output else each for old, each in self.steps.items()]
        self.steps = {each.output: each for each in steps}
        self.shapes[node.name] = self.shapes[step.output]

    def columns(self, node: Node, value: str, columns: Array, channels: int) -> str:
        """The value of some columns of `value`, [..., channels], computed by new steps.

        Layers and steps on single channels compute some columns alone; slices take columns of other
        values.
        """
        if len(columns) == channels and (columns == np.arange(channels)).all():
            return value
        step, name = self.steps.get(value), f"{node.name}/{value}"
        if name in self.steps:
            return name
        if value in self.selected:
            return self.select(name, self.selected[value][columns])
        if value == self.observation and len(self.shapes[value]) == 1:
            return self.select(name, columns)
        weights = {} if step is None else {n.rsplit("/", 1)[-1]: n for n in step.weights}
        taken = {role: self.weights[n][..., columns] for role, n in weights.items()}
        if step is not None and step.definition.layer:
            self.add(name, step.op, step.inputs[0], attrs=step.attrs, **taken)
        elif step is not None and step.definition.channels is ChannelRule.SEPARATE:
            part = self.columns(node, step.inputs[0], columns, channels)
            self.add(name, step.op, part, attrs=step.attrs, **taken)
        elif step is not None and step.definition.channels is ChannelRule.PAIRED:
            whole = [self.shapes[each][-1] == channels for each in step.inputs]
            parts = [
                self.columns(node, each, columns, channels) if own else each
                for each, own in zip(step.inputs, whole, strict=True)
            ]
            self.add(name, step.op, *parts)
        else:
            self.slices(name, value, columns)
        return name

    def select(self, name: str, columns: Array) -> str:
        """Add some columns of the observation, a vector, as the value `name`."""
        self.selected[name] = columns
        self.slices(name, self.observation, columns)
        return name

    def slices(self, name: str, value: str, columns: Array) -> None:
        """Add some columns of a value: a slice for each run of them, one after the other."""
        runs = np.split(columns, np.flatnonzero(np.diff(columns) != 1) + 1)
        names = [f"{name}/{run[0]}-{run[-1]}" for run in runs] if len(runs) > 1 else [name]
        for each, run in zip(names, runs, strict=True):
            if each not in self.steps:
                self.add(each, "slice", value, attrs={"columns": (int(run[0]), len(run))})
        if len(runs) > 1:
            self.add(name, "concat", *names)

    def joined_from(self, name: str, value: str, axis: int) -> tuple[str, int]:
        """A value with an axis and those behind it as one, named `name`; and how many are behind.

        Parts along the axis are then columns.
        """
        shape = self.shapes[value]
        inner = math.prod(shape[axis + 1 :])
        return self.reshaped(name, value, (*shape[:axis], shape[axis] * inner)), inner

    def moved(self, name: str, value: str, order: Sequence[int]) -> str:
        """A value with its axes in another order: itself, or the step `name`."""
        step = self.steps.get(value)
        if step is not None and step.op == "transpose":
            before = step.attrs_as(TransposeAttrs).perm
            value, order = step.inputs[0], [before[axis] for axis in order]
        if [*order] == [*range(len(order))]:
            return value
        self.add(name, "transpose", value, attrs={"perm": tuple(order)})
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
