"""A quantized network with states as a policy, and the parts of a policy that C is written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.errors import UnsupportedError, UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.states import states_of
from qgraph.ir.types import Array
from qgraph.program import Program
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy
from qgraph.rl.policy.observation_columns import ObservationPart, part_of
from qgraph.words import alternatives


class NetworkPolicy:
    """A directory of `qgraph quantize` that acts as a policy, one observation at a time.

    States, such as those of an LSTM, are carried from each observation to the next one.

    Args:
        folder: An output directory. Its network has one input and one output besides its states.
        head: The head, which turns outputs into actions; None if only outputs are needed.

    Attributes:
        network: The quantized network.
        head: The head.
        observation: The input that takes observations.
        output: The output in front of the head.
        shape: Shape of one observation.
        states: The output that each state follows, by input.

    Raises:
        LoadError: The folder is not what `qgraph quantize` wrote.
        UnsupportedError: The network has several observations or outputs, or no integer program.

    Examples:
        >>> from qgraph.rl.deploy import NetworkPolicy
        >>> from qgraph.rl.head import Head
        >>> NetworkPolicy("out", Head("argmax")).observation
        'observation'
    """

    def __init__(self, folder: str | Path, head: Head | None = None) -> None:
        from qgraph.runtime import Session
        from qgraph.stored import load_network

        self.network, self.head = load_network(folder), head
        graph = self.network.graph
        self.states = states_of(graph)
        self.observation = _only(
            [name for name in graph.inputs if name not in self.states], "input", folder
        )
        self.output = _only(
            [name for name in graph.outputs if name not in self.states.values()], "output", folder
        )
        self.shape = tuple(size or 1 for size in (graph.types[self.observation].shape or ())[1:])
        self._session = Session.open(folder)
        self._stream = self._session.stream() if self.states else None

    @property
    def size(self) -> int:
        """The number of outputs."""
        shape = self.network.graph.types[self.network.graph.outputs[self.output]].shape or ()
        return int(np.prod([size or 1 for size in shape]))

    def reset(self) -> None:
        """Begin an episode: the states become zeros."""
        if self._stream is not None:
            self._stream.reset()

    def __call__(self, observation: Array, masks: Array | None = None) -> Array:
        """Compute the action for the next observation.

        Args:
            observation: Array of the shape `shape`.
            masks: Valid options, bool [m]; None if all are.

        Returns:
            The likeliest action, int64 [] or float32 [a]. Without a head, the outputs.

        Raises:
            UsageError: The observation has another shape, or has NaN or infinity.
        """
        x = np.asarray(observation, np.float32)
        if x.shape != self.shape:
            raise wrong_shape(x.shape, self.shape)
        if not np.isfinite(x).all():
            raise UsageError(
                "the observation has NaN or infinity",
                hint="check the observations that the environment returns",
            )
        feeds = {self.observation: x[None].astype(self.network.graph.types[self.observation].dtype)}
        run = self._session.run if self._stream is None else self._stream.step
        outputs = run(feeds)[self.output].reshape(1, -1)
        if self.head is None:
            return np.asarray(outputs[0])
        given = None if masks is None else np.atleast_2d(masks)
        return np.asarray(self.head.actions(outputs, None, given)[0])


@dataclass(frozen=True)
class PolicyParts:
    """The parts of a policy that its C is written from.

    inputs: the inputs of the graph that take observations, one after the other. output: the value
    in front of the head. states: the value that has the next value of each state, by input.
    """

    graph: Graph
    program: Program
    inputs: tuple[ObservationPart, ...]
    output: str
    shape: tuple[int, ...]
    head: Head | None
    states: Mapping[str, str]


def parts_of(policy: Policy | NetworkPolicy) -> PolicyParts:
    """The parts of a policy. Raises UsageError for a dynamic one."""
    network = policy.network
    graph, program = network.graph, network.program
    shape = tuple(policy.shape)
    states = {name: graph.outputs[public] for name, public in states_of(graph).items()}
    if isinstance(policy, NetworkPolicy):
        inputs, output = part_of(shape, policy.observation), policy.output
    elif policy.columns is not None:
        inputs, output = policy.columns.parts, policy.names[0]
    else:
        (observation,) = (name for name in graph.inputs if graph.is_used(name))
        inputs, output = part_of(shape, observation), policy.names[0]
    return PolicyParts(graph, program, inputs, graph.outputs[output], shape, policy.head, states)


def _only(names: list[str], what: str, folder: str | Path) -> str:
    if len(names) != 1:
        raise UnsupportedError(
            f"a policy has one {what} besides its states; this network has "
            f"{alternatives(names) if names else 'none'}",
            node=str(folder),
            hint="quantize it with the output that has the actions, and name its states",
        )
    return names[0]
