"""States of recurrent programs: columns of the observation that an output has for the next step.

An actor takes one array. The observation of a recurrent program has its states as its last
columns, and slices take the parts of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.ir.types import Array


@dataclass(frozen=True)
class ProgramState:
    """A state of a program.

    Attributes:
        name: Its name.
        size: Its numbers, columns of the observation behind those of the states before it.
        output: The output that has its next value, float32 [n, size].

    Examples:
        >>> from qgraph.rl.actor.program_state import ProgramState
        >>> ProgramState("hidden", 64, "next_hidden").size
        64
    """

    name: str
    size: int
    output: str


def size_of(states: Sequence[ProgramState]) -> int:
    """The numbers of all states."""
    return sum(state.size for state in states)


def next_states(states: Sequence[ProgramState], outputs: Mapping[str, Array]) -> Array:
    """The states of the next step, [n, size], from the outputs of a step."""
    return np.concatenate([outputs[state.output] for state in states], -1)
