"""A learner whose weights are a function of its step, and actors that know every byte of a block.

The learner, the environment and their variables have no other purpose. They take a random time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.actor.block import as_bytes
from qgraph.rl.agents.learner import Teacher
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.environments import Actions, Outcome
from qgraph.rl.environments.environment import Action
from qgraph.rl.head import Head
from qgraph.rl.learn.replay import Batch
from tests.helpers.rl_policies import PROGRAM
from tests.rl.simulation.scheduler import TurnScheduler

PIECES = 4  # in which an actor reads its block
LONGEST = 0.001  # seconds of a step of a learner or an environment
BITS, END_BITS = 8, 16


def weights_of(version: int) -> dict[str, Array]:
    """The weights of the learner after that many steps."""
    return {
        name: np.float32(0.01) * np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        + np.float32(version + 1)
        for name, shape in PROGRAM.weight_shapes.items()
    }


@cache
def block_of(version: int) -> bytes:
    """The block that actors must get."""
    return Packer(PROGRAM, BITS, END_BITS, END_BITS).pack(weights_of(version), version).tobytes()


class SimulatedVariable:
    """A variable of a learner."""

    def __init__(self, value: Array) -> None:
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    def numpy(self) -> Array:
        return self.value

    def read_value(self) -> Array:
        return self.value

    def assign(self, value: Array) -> None:
        self.value = np.array(value)


class SimulatedLearner:
    """A learner whose weights are `weights_of` its steps. It checks the steps that it gets."""

    program, head, teacher, bits = PROGRAM, Head("categorical"), None, None

    def __init__(self, scheduler: TurnScheduler) -> None:
        self.scheduler = scheduler
        self.count = SimulatedVariable(np.zeros((), np.int64))
        self.policy = {name: SimulatedVariable(value) for name, value in weights_of(0).items()}

    @property
    def acting(self) -> Teacher:
        return Teacher(PolicySpec(self.program, self.head), self.policy)

    @property
    def state(self) -> dict[str, SimulatedVariable]:
        return {"count": self.count, **self.policy}

    def step(self, batch: Batch) -> tuple[Array, float]:
        self.scheduler.sleep(self.scheduler.random.uniform(0, LONGEST))
        for before in batch.records["observation"].reshape(-1, 3):
            if len(set(before.tolist())) > 1:
                self.scheduler.fail(f"a record is torn: {before}")
        self.count.assign(self.count.value + 1)
        for name, value in weights_of(int(self.count.value)).items():
            self.policy[name].assign(value)
        return np.zeros(batch.records.size), 0.0


class SimulatedEnvironment:
    """An environment without an end. Observations are [step, step, step]."""

    shape, actions, dtype = (3,), Actions(count=2), np.dtype(np.float32)

    def __init__(self, scheduler: TurnScheduler) -> None:
        self.scheduler, self.steps = scheduler, 0

    def reset(self, seed: int | None = None) -> Array:
        return np.zeros(3, np.float32)

    def step(self, action: Action) -> Outcome:
        self.scheduler.sleep(self.scheduler.random.uniform(0, LONGEST))
        self.steps += 1
        return Outcome(np.full(3, self.steps, np.float32), 1.0, 1.0, False)

    def close(self) -> None:
        """Do nothing."""


class CheckedActor(Actor):
    """An actor that reads its block, a piece at a time, before each action."""

    def __init__(self, scheduler: TurnScheduler, *given: Any, **named: Any) -> None:
        self.scheduler = scheduler
        super().__init__(*given, **named)

    def _begin(self, block: Any) -> None:
        self._bytes = block.buffer
        super()._begin(block)

    def switch(self, block: Any, check: str = "checksum") -> None:
        super().switch(block, check)
        self._bytes = as_bytes(block)

    def __call__(self, observations: Array) -> Array:
        wanted = block_of(self.version)
        size = -(-len(wanted) // PIECES)
        for begin in range(0, len(wanted), size):
            self.scheduler.step()
            if self._bytes[begin : begin + size].tobytes() != wanted[begin : begin + size]:
                self.scheduler.fail(f"the block of version {self.version} is not whole")
        return super().__call__(observations)
