"""Structured pruning: units with the smallest weights are removed."""

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

    The result computes what the whole program does without the connections of removed units to the
    next layers; a layer norm is over the remaining units. Every layer loses the same share, rounded
    down, so the program depends on the sparsity only, not on weights.

    sparsity: above 0 and below 1. Raises UsageError for others, UnsupportedError if no layer has
    units that can be removed.
    """

    name: ClassVar[str] = "prune"

    sparsity: float

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise UsageError(
                f"sparsity, the share of units to remove, is {self.sparsity}; it must be "
                "above 0 and below 1"
            )

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        channels = channels_of(policy.program)
        if not channels.groups:
            raise UnsupportedError("no layer of the policy has units that can be removed")
        for step in policy.program.steps:
            self._refuse(step, channels, task)
        weights = {name: np.asarray(value) for name, value in policy.weights.items()}
        removed = chosen(policy.actor_program, weights, channels, self.sparsity)
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
    """The number of units of a group to remove, never all.

    1e-9: for shares that rounding has made a little less than a whole number.
    """
    return min(int(np.floor(sparsity * len(units) + 1e-9)), len(units) - 1)


def chosen(
    program: ActorProgram, weights: dict[str, Array], channels: Channels, sparsity: float
) -> Array:
    """The units to remove, bool [channels.count]: those of least importance in each group.

    program: the program of `channels`, or a part of it.
    """
    scores = importance(program, weights, channels)
    removed = np.zeros(channels.count, bool)
    for units in channels.groups.values():
        least = np.argsort(scores[units], kind="stable")[: count(sparsity, units)]
        removed[units[least]] = True
    return removed


def importance(program: ActorProgram, weights: dict[str, Array], channels: Channels) -> Array:
    """The L2 norm of a unit's incoming weights times that of its outgoing ones, [channels.count].

    The product does not change if a factor moves from one to the other, as ReLU allows.
    """
    incoming, outgoing = np.zeros(channels.count), np.zeros(channels.count)
    for step in program.steps:
        if not step.definition.layer:
            continue
        kernel = weights[step.weights[0]].astype(np.float64)
        bias = weights[step.weights[1]].astype(np.float64)
        others = tuple(range(kernel.ndim - 1))
        incoming[channels.of[step.output]] = (kernel**2).sum(others) + bias**2
        rows = (kernel**2).sum((*others[:-1], kernel.ndim - 1))
        np.add.at(outgoing, channels.of[step.inputs[0]], rows)
    return np.asarray(np.sqrt(incoming * outgoing))
