"""A recurrent policy for episodes side by side: its states are given and returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.actor.program_state import ProgramState, next_states, size_of

RunRows = Callable[[Array], Mapping[str, Array]]  # rows with states to every output


@dataclass(frozen=True)
class RecurrentOutputs:
    """A policy with states as a function of rows: observations with the states behind them.

    A call computes the first output, [n, m], of rows [n, columns], so that two policies can be
    compared on the same states.
    """

    run: RunRows
    states: Sequence[ProgramState]
    output: str

    def __call__(self, rows: Array) -> Array:
        return np.asarray(self.run(rows)[self.output])

    def first_states(self, count: int) -> Array:
        """States at the beginning of episodes: zeros, float32 [count, size]."""
        return np.zeros((count, size_of(self.states)), np.float32)

    def rows(self, observations: Array, states: Array) -> Array:
        """Observations [n, ...] with states behind them."""
        flat = np.asarray(observations, np.float32).reshape(len(observations), -1)
        return np.concatenate([flat, states], -1)

    def step(self, observations: Array, states: Array) -> tuple[Array, Array]:
        """The first output of observations [n, ...], and the states of the next step."""
        outputs = self.run(self.rows(observations, states))
        return np.asarray(outputs[self.output]), next_states(self.states, outputs)


class ProgramRunner(Protocol):
    """Runs a program: every output by name, or the first one."""

    def run(self, observations: Array) -> Mapping[str, Array]: ...

    def __call__(self, observations: Array) -> Array: ...


def played(program: ActorProgram, runner: ProgramRunner) -> Callable[[Array], Array]:
    """A program for episodes that are played side by side: `RecurrentOutputs` if it has states."""
    if not program.states:
        return runner
    return RecurrentOutputs(runner.run, program.states, program.outputs[0])


def rows_of(policy: RecurrentOutputs, sequences: Array) -> Array:
    """Every step of sequences [n, steps, ...] as a row, [n * steps, columns], in order.

    The states are those of the policy, from zeros.
    """
    states, rows = policy.first_states(len(sequences)), []
    for t in range(sequences.shape[1]):
        rows.append(policy.rows(sequences[:, t], states))
        states = policy.step(sequences[:, t], states)[1]
    found = np.stack(rows, 1)
    return found.reshape(-1, found.shape[-1])
