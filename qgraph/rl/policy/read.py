"""Reading the graph of a trained policy as an actor program and its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qgraph.errors import GraphError, UnsupportedError
from qgraph.interpret import needed_for
from qgraph.ir.graph import Graph
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.states import mark_states
from qgraph.ir.types import Array, Shape
from qgraph.ops.movement import TransposeAttrs
from qgraph.passes import PassManager
from qgraph.recipes import POLICY
from qgraph.rl.actor.program import ActorProgram, ActorStep
from qgraph.rl.actor.program_state import ProgramState
from qgraph.rl.policy.action_output import (
    check_state_is_kept,
    keep_action_output,
    with_states_last,
)
from qgraph.rl.policy.layered_states import separate_layers
from qgraph.rl.policy.observation_columns import ObservationColumns
from qgraph.rl.policy.one_input import check_parts, with_one_input
from qgraph.rl.policy.rules import RULES
from qgraph.rl.policy.sample_axis import SampleAxis
from qgraph.rl.policy.writer import ActorProgramWriter, no_actor
from qgraph.rl.setting_text import SettingText

TO_LAST = (0, 2, 3, 1)
SAME_FOR_ALL = ("cast", "identity", "add", "sub", "mul", "div")


@dataclass(frozen=True)
class PolicyNetwork:
    """A trained policy as a program with float32 weights.

    Attributes:
        program: The program of an actor.
        weights: Float32 arrays by name.
        graph: The graph that it was read from, with the same input and outputs.
        images_first: Whether the network was trained on images [c, h, w]. The program and the graph
            take [h, w, c].
        columns: The columns of the program's observation, if the graph has several inputs; the
            states of a recurrent policy are the last ones. None for a single input.

    Examples:
        >>> from qgraph.rl.policy import read_policy
        >>> network = read_policy("policy.onnx")
        >>> network.program.shape, network.images_first
        ((4,), False)
    """

    program: ActorProgram
    weights: Mapping[str, Array]
    graph: Graph
    images_first: bool = False
    columns: ObservationColumns | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation, without states."""
        return self.program.shape if self.columns is None else self.columns.shape

    @property
    def states(self) -> tuple[ProgramState, ...]:
        """The states of a recurrent policy."""
        return self.program.states


def read_policy(
    model: str | Path | Graph,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    signature: str | None = None,
    trust: bool = False,
    states: Mapping[str, str] | None = None,
) -> PolicyNetwork:
    """Read a trained policy, in any format that `qgraph.load` reads.

    An argmax at the end is removed, since the head computes it. Constant outputs of a file are left
    out, unless `outputs` names them. Several inputs become one row of numbers: the parts of the
    observation one after the other, then the states.

    Args:
        model: Path of the model, or a graph.
        inputs: Input tensors, if they are not detected. Needed for an observation of several
            inputs.
        outputs: Output tensors, the one with the actions first. Needed if a file has several that
            depend on the observation. A graph has its own outputs.
        input_shapes: Shapes of inputs by name, with None for unknown dimensions.
        signature: Signature of a SavedModel.
        trust: Whether a Keras file may run code.
        states: The states of a recurrent policy: each state input, with the output that has its
            next value.

    Returns:
        The policy.

    Raises:
        LoadError: The file cannot be read.
        UsageError: The file has several outputs, and none was chosen.
        UnsupportedError: Actors do not support an op. The error names the node.

    Examples:
        >>> from qgraph.rl.policy import read_policy
        >>> [step.op for step in read_policy("policy.onnx").program.steps]
        ['dense', 'dense']
    """
    from qgraph.frontends import load

    follows = dict(states or {})
    if outputs is not None:
        outputs = [*outputs, *(name for name in follows.values() if name not in outputs)]
    named = None if inputs is None else [*inputs, *(n for n in follows if n not in inputs)]
    graph = load(
        model,
        inputs=named,
        outputs=outputs,
        input_shapes=input_shapes,
        signature=signature,
        trust=trust,
    )
    if isinstance(model, Graph):
        graph = graph.copy()
    separate_layers(graph, follows)
    mark_states(graph, follows)
    check_state_is_kept(graph)
    PassManager(POLICY).run(graph)
    if outputs is None and not isinstance(model, Graph):
        keep_action_output(graph)
    graph.outputs = with_states_last(graph)
    used = [node.name for node in needed_for(graph, graph.outputs.values()) if node.op == "input"]
    if len(used) > 1:
        check_parts(graph, used, inputs)
        rows, columns = with_one_input(graph)
        network = _PolicyReader(rows, columns).read()
        return replace(network, graph=graph, columns=columns)
    _open_reshapes(graph)
    graph = _with_open_batch(graph)
    images_first = _take_images_last(graph)
    return replace(_PolicyReader(graph).read(), images_first=images_first)


def _open_reshapes(graph: Graph) -> None:
    """Let reshapes to one sample take any number of samples, as their inputs do.

    Tracing by PyTorch writes `x.view(len(x), ...)` with the number of samples that it was given, 1.
    """
    for name in [node.name for node in graph.topological() if node.op == "reshape"]:
        node = graph.nodes[name]
        before, after = graph.types[node.inputs[0]].shape or (), graph.types[name].shape or ()
        if before[:1] != (None,) or after[:1] != (1,) or None in (*before[1:], *after):
            continue
        if math.prod(d or 0 for d in before[1:]) == math.prod(d or 0 for d in after):
            graph.replace(replace(node, attrs={**node.attrs, "shape": (-1, *after[1:])}))


def _with_open_batch(graph: Graph) -> Graph:
    """The graph for any number of observations, if it was exported for a fixed number.

    The graph itself if its batch is open, or if its batch axis cannot be followed.
    """
    name, shape = _only_input(graph)
    if not shape or shape[0] is None:
        return graph
    given = graph.nodes[name]
    opened = graph.types[name].with_shape((None, *shape[1:]))
    changed = [replace(given, attrs={**given.attrs, "type": opened})]
    for node in graph.topological():
        if node.op != "reshape":
            continue
        before, after = graph.types[node.inputs[0]].shape, graph.types[node.name].shape
        if before is None or after is None or before[:1] != shape[:1]:
            continue
        if before[:1] != after[:1]:
            return graph
        changed.append(replace(node, attrs={**node.attrs, "shape": (-1, *after[1:])}))
    whole = graph.copy()
    try:
        whole.replace_all(changed)
    except GraphError:
        return graph
    open_ends = [
        (whole.types[value].shape or (0,))[:1] == (None,) for value in whole.outputs.values()
    ]
    return whole if all(open_ends) else graph


def _only_input(graph: Graph) -> tuple[str, Shape | None]:
    """The input that is used, with its shape; no shape unless it is the only one."""
    used = [name for name in graph.inputs if graph.is_used(name)]
    return (used[0], graph.types[used[0]].shape) if len(used) == 1 else ("", None)


def _take_images_last(graph: Graph) -> bool:
    """Let the network take images [h, w, c] if it transposes them first, or after pointwise ops.

    Returns False if it does not transpose images.
    """
    name, shape = _only_input(graph)
    if shape is None or len(shape) != 4:
        return False
    unturned, turns = {name}, []
    for node in graph.topological():
        others = [v for v in node.inputs if v not in unturned]
        if len(others) == len(node.inputs):
            continue
        if node.op == "transpose" and node.typed(TransposeAttrs).perm == TO_LAST:
            turns.append(node)
        elif node.op in SAME_FOR_ALL and all(_is_number(graph, v) for v in others):
            unturned.add(node.name)
        else:
            return False
    if not turns or not unturned.isdisjoint(graph.outputs.values()):
        return False
    given = graph.nodes[name]
    turned = graph.types[name].with_shape(tuple(shape[axis] for axis in TO_LAST))
    kept = [replace(turn, op="identity", attrs={}) for turn in turns]
    graph.replace_all([replace(given, attrs={**given.attrs, "type": turned}), *kept])
    return True


def _is_number(graph: Graph, value: str) -> bool:
    constant = graph.constant(value)
    return constant is not None and constant.size == 1


class _PolicyReader:
    """Reads a graph in order; a bias and an activation are merged into the layer before them."""

    def __init__(self, graph: Graph, columns: ObservationColumns | None = None) -> None:
        self.graph, self.writer, self.columns = graph, ActorProgramWriter(graph), columns
        self.outputs = {public: self._scores(value) for public, value in graph.outputs.items()}
        self.order = [
            node for node in needed_for(graph, self.outputs.values()) if node.op != "const"
        ]

    def read(self) -> PolicyNetwork:
        observation, shape = self._observation()
        self.writer.observation, self.writer.shapes[observation] = observation, shape
        for node in self.order:
            if node.name == observation or node.name in self.writer.aliases:
                continue
            rule = RULES.get(node.op)
            if rule is None or node.outputs > 1:
                raise no_actor(node)
            self.writer.begin(node)
            rule(self.writer, node)
        for value in self.outputs.values():
            if self.graph.constant(value) is not None:
                raise UnsupportedError(
                    "an output that does not depend on the observation",
                    node=value,
                    hint="leave it out",
                )
            self._shape_output(value)
        steps, names = self._with_public_names(observation)
        weights = {name: self.writer.weights[name] for step in steps for name in step.weights}
        shapes = {name: array.shape for name, array in weights.items()}
        self.graph.outputs = self.outputs
        states = () if self.columns is None else self.columns.states
        program = ActorProgram(shape, tuple(steps), names, shapes, observation, states)
        return PolicyNetwork(program, weights, self.graph)

    def _scores(self, value: str) -> str:
        """The input of an argmax over the last axis; `value` itself if there is no argmax."""
        node = self.graph.producer(value)
        rank = self.graph.types[node.inputs[0]].rank or 0 if node.inputs else 0
        last = node.op == "argmax" and node.typed(AxisAttrs).axis in (-1, rank - 1)
        return node.inputs[0] if last else value

    def _observation(self) -> tuple[str, tuple[int, ...]]:
        found = [node for node in self.order if node.op == "input"]
        if len(found) != 1:
            listed = ", ".join(f"`{node.name}`" for node in found) or "none"
            raise UnsupportedError(
                f"a policy must have one input; this graph has {listed}",
                hint=SettingText(
                    "name outputs that need the observation alone in {outputs}; `qgraph quantize` "
                    "quantizes a recurrent policy with its states (docs/streaming.md)"
                ),
            )
        (node,) = found
        shape = self.graph.types[node.name].shape
        if shape == (None,):
            raise UnsupportedError(
                f"each observation is a single number: {self.graph.types[node.name]}",
                node=node.name,
                hint="export the policy with rows of numbers; one of several is a one-hot row",
            )
        if shape is not None and len(shape) == 1:
            raise UnsupportedError(
                f"the observation has no axis of samples: {self.graph.types[node.name]}",
                node=node.name,
                hint=SettingText(
                    "give {input_shapes} {name}=?,{size}", name=node.name, size=shape[0]
                ),
            )
        if shape is None or len(shape) < 2 or None in shape[1:]:
            raise UnsupportedError(
                f"its size is unknown: {self.graph.types[node.name]}",
                node=node.name,
                hint=SettingText("give {input_shapes}"),
            )
        sample = tuple(int(d or 0) for d in shape[1:])
        for cast in self.graph.users(node.name):  # an actor's observations are float32 anyway
            if cast.op == "cast":
                self.writer.aliases[cast.name] = node.name
        return node.name, sample

    def _shape_output(self, value: str) -> None:
        """Give the program's value of an output the shape that it has in the graph."""
        node, samples = self.graph.producer(value), self.writer.samples_of(value)
        if samples != SampleAxis():
            raise no_actor(
                node,
                " that changes the number of samples",
                "an output has its samples along the first axis, one row for each",
            )
        if len(self.graph.types[value].shape or ()) < 2:
            raise no_actor(node, " with one number for each sample, without an axis for it")
        made = self.writer.shaped(value)
        if made != self.writer.value(value):
            self.writer.aliases[self.writer.value(value)] = made

    def _with_public_names(self, observation: str) -> tuple[list[ActorStep], tuple[str, ...]]:
        """Steps and outputs, with the public names of outputs in the graph."""
        names = {value: value for value in [observation, *self.writer.steps]}
        for public, value in self.outputs.items():
            own = self.writer.value(value)
            if own != observation and public not in names.values():
                names[own] = public
        steps = [
            replace(s, inputs=tuple(names[v] for v in s.inputs), output=names[s.output])
            for s in self.writer.steps.values()
        ]
        found = [names[self.writer.value(value)] for value in self.outputs.values()]
        return _needed(steps, found), tuple(dict.fromkeys(found))


def _needed(steps: list[ActorStep], outputs: list[str]) -> list[ActorStep]:
    """The steps that outputs need, without others such as columns that were sliced away."""
    wanted, found = set(outputs), []
    for step in reversed(steps):
        if step.output in wanted:
            wanted.update(step.inputs)
            found.append(step)
    return found[::-1]
