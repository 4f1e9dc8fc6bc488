"""Sequences, step by step: states are carried from each step to the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.states import states_of
from qgraph.ir.types import Array
from qgraph.quant.samples.sequences import first_states, takes_one_sample


class StepRunner(Protocol):
    """Runs one step: a `Session`."""

    @property
    def graph(self) -> Graph:
        """The network of one step."""

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs by name, from arrays by input name."""


class Stream:
    """Runs a network with states on sequences, one step at a time.

    A state leaves a step as codes and enters the next one as the same codes, because both ends
    have one format and one scale; it is stored as float32, which holds them exactly.

    Args:
        session: The network.
        count: Number of sequences that run side by side.

    Attributes:
        session: The network.
        states: The states before the next step, [count, ...] by input name.

    Raises:
        UsageError: The network has no states.

    Examples:
        >>> stream = session.stream()
        >>> for frame in frames:
        ...     scores = stream.step({"input": frame})["scores"]
    """

    def __init__(self, session: StepRunner, count: int = 1) -> None:
        self._follows = states_of(session.graph)
        if not self._follows:
            raise UsageError(
                "the network has no states",
                hint="name them when you quantize it: --state INPUT=OUTPUT",
            )
        self.session, self.count = session, count
        self._alone = takes_one_sample(session.graph)
        self.reset()

    def reset(self) -> None:
        """Begin new sequences: the states become zeros."""
        self.states = first_states(self.session.graph, self.count)

    def step(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run one step of each sequence.

        Args:
            feeds: [count, ...] for each input that is not a state.

        Returns:
            The outputs by name, as float32, without those that are the next states.

        Raises:
            UsageError: The feeds do not fit.
        """
        given = {**feeds, **self.states}
        parts = [slice(i, i + 1) for i in range(self.count)] if self._alone else [slice(None)]
        runs = [self.session.run({n: array[p] for n, array in given.items()}) for p in parts]
        found = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
        self.states = {name: found[output] for name, output in self._follows.items()}
        return {n: array for n, array in found.items() if n not in self._follows.values()}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run all steps of the sequences.

        Args:
            feeds: [count, steps, ...] for each input that is not a state.

        Returns:
            The outputs by name, [count, steps, ...], without those that are the next states.

        Raises:
            UsageError: The feeds do not fit.
        """
        lengths = {name: np.shape(array)[1:2] for name, array in feeds.items()}
        if len({*lengths.values()}) != 1 or not min(lengths.values()) or (0,) in lengths.values():
            raise UsageError(
                f"the sequences need one number of steps on their second axis: {lengths}",
            )
        ((steps,),) = {*lengths.values()}
        found = [self.step({n: array[:, t] for n, array in feeds.items()}) for t in range(steps)]
        return {name: np.stack([each[name] for each in found], axis=1) for name in found[0]}
