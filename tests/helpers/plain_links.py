"""Custom links, strategies and correctors in a module whose annotations are not text, as users may
write.
"""

from dataclasses import dataclass, replace
from typing import Optional

import numpy as np

from qgraph.rl.compress import Link
from qgraph.rl.compress.prune import Prune
from qgraph.rl.monitor import Decision


@dataclass(frozen=True)
class Same(Link):
    share: float = 0.5
    often: int = 1
    at_all: bool = True
    most: Optional[float] = None  # noqa: UP045 - as many write it

    def __call__(self, policy, task):
        return policy


@dataclass(frozen=True)
class RaisesAfter(Link):
    calls: int = 0

    def __call__(self, policy, task):
        task.memory["calls"] = task.memory.get("calls", 0) + 1
        if task.memory["calls"] > self.calls:
            raise ZeroDivisionError("a mistake of its author")
        return policy


@dataclass(frozen=True)
class Cut(Link):
    """A link that makes a policy with fewer outputs."""

    def __call__(self, policy, task):
        last = policy.program.steps[-1]
        kernel, bias = last.weights
        weights = {**policy.weights}
        weights |= {kernel: weights[kernel][:, :-1], bias: weights[bias][:-1]}
        shapes = {name: weight.shape for name, weight in weights.items()}
        return replace(
            policy, program=replace(policy.program, weight_shapes=shapes), weights=weights
        )


@dataclass(frozen=True)
class PrunesMore(Prune):
    """A link that prunes half of what is left."""

    def __call__(self, policy, task):
        return super().__call__(super().__call__(policy, task), task)


@dataclass(frozen=True)
class NoLink:
    share: float = 0.5


class AcceptsAny:
    """The part that the strategies below share."""

    def check(self, begun):
        pass


@dataclass(frozen=True)
class FailsToDecide(AcceptsAny):
    looks: int = 0

    def decide(self, begun, looks):
        if len(looks) > self.looks:
            raise KeyError("a mistake of its author")
        return Decision(begun, reason="fine")


@dataclass(frozen=True)
class DecidesNothing(AcceptsAny):
    looks: int = 0

    def decide(self, begun, looks):
        return None if len(looks) > self.looks else Decision(begun, reason="fine")


@dataclass(frozen=True)
class Decides(AcceptsAny):
    """A strategy with an invalid first decision: a share that is not a number, or a text as a
    chain.
    """

    share: float = 1.0
    text: bool = False

    def decide(self, begun, looks):
        found = str(begun) if looks and self.text else begun
        return Decision(found, np.float32(self.share if looks else 1.0), reason="fine")


class NoTarget:
    corrects = "weight"
    of_actions = False

    def __call__(self, steps, xp):
        return steps.rewards


class RaisesToCorrect:
    corrects = "weights"
    of_actions = False

    def __call__(self, steps, xp):
        raise KeyError("a mistake of its author")


class OfOneStep:
    corrects = "targets"
    of_actions = False

    def __call__(self, steps, xp):
        return steps.values[0]


class BranchesByNumbers:
    corrects = "weights"
    of_actions = False

    def __call__(self, steps, xp):
        return steps.rewards if steps.rewards[0, 0] > 0 else steps.values


class FailsAsItRuns:
    corrects = "weights"
    of_actions = False

    def __call__(self, steps, xp):
        with xp.control_dependencies([xp.debugging.Assert(False, ["a mistake of its author"])]):
            return xp.identity(steps.rewards)


class NotMade:
    def __init__(self):
        raise ValueError("a mistake of its author")


class OfWhat:
    corrects = "targets"

    def __call__(self, steps, xp):
        return steps.rewards


class Ones:
    """A corrector of weights without `of_actions`, which only correctors of targets need."""

    corrects = "weights"

    def __call__(self, steps, xp):
        return xp.ones_like(steps.rewards)
