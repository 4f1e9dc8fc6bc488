"""Structured pruning: units of least weight go, with their rows and columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.errors import UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.compress.chain_policy import ChainPolicy, Task
from qgraph.rl.compress.channels import Channels, channels_of, without
from qgraph.rl.compress.link import Link


@dataclass(frozen=True)
class Prune(Link):
    """Remove a share of the neurons and feature maps of each hidden layer (AcceRL, section 2.2).

    The program that is left computes what the whole one does with the removed units' way to the
    next layers cut; a layer norm is over the units that are left. Every layer loses the same
    share, rounded down, so that the program depends on the sparsity alone and not on weights.

    sparsity: above 0 and below 1. Raises UsageError for others, UnsupportedError where no layer has
    units to lose.
    """

    name: ClassVar[str] = "prune"

    sparsity: float

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise UsageError(
                f"sparsity is {self.sparsity}; it is the share of units to remove, "
                "above 0 and below 1"
            )

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        channels = channels_of(policy.program)
        if not channels.groups:
            raise UnsupportedError("no layer of the policy has units that can be removed")
        for step in policy.program.steps:
            self._refuse(step, channels, task)
        weights = {name: np.asarray(value) for name, value in policy.weights.items()}
        removed = chosen(policy.acted, weights, channels, self.sparsity)
        program, left = without(policy.program, weights, channels, removed)
        return replace(policy, program=program, weights=left)

    def _refuse(self, step: ActorStep, channels: Channels, task: Task) -> None:
        if not step.definition.layer:
            return
        units = channels.groups.get(step.output)
        if units is None:
            task.refuse(step.output, "its units reach an output, a mean, or a sum with others")
        elif not count(self.sparsity, units):
            task.refuse(step.output, f"has {len(units)} units: its share is less than one")


def count(sparsity: float, units: Array) -> int:
    """How many of a group go: never all.

    1e-9: for shares that are whole numbers but for rounding.
    """
    return min(int(np.floor(sparsity * len(units) + 1e-9)), len(units) - 1)


def chosen(
    program: ActorProgram, weights: dict[str, Array], channels: Channels, sparsity: float
) -> Array:
    """Which units go, bool [channels.count]: of each group those of least importance to a program,
    which may be a part of the one that the channels are of.
    """
    scores = importance(program, weights, channels)
    removed = np.zeros(channels.count, bool)
    for units in channels.groups.values():
        least = np.argsort(scores[units], kind="stable")[: count(sparsity, units)]
        removed[units[least]] = True
    return removed


def importance(program: ActorProgram, weights: dict[str, Array], channels: Channels) -> Array:
    """The L2 norm of what makes a unit times that of what takes it, [channels.count].

    A product, since ReLU lets any factor move from one to the other without a change.
    """
    made, taken = np.zeros(channels.count), np.zeros(channels.count)
    for step in program.steps:
        if not step.definition.layer:
            continue
        kernel = weights[step.weights[0]].astype(np.float64)
        bias = weights[step.weights[1]].astype(np.float64)
        others = tuple(range(kernel.ndim - 1))
        made[channels.of[step.output]] = (kernel**2).sum(others) + bias**2
        rows = (kernel**2).sum((*others[:-1], kernel.ndim - 1))
        np.add.at(taken, channels.of[step.inputs[0]], rows)
    return np.asarray(np.sqrt(made * taken))
