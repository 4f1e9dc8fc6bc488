"""The processes of a run: an actor that is timed, and PyTorch's quantizer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram
from qgraph.rl.broadcast import Channel, Member, joined

MODULE = "benchmarks.broadcast.processes"
# Numbers that an actor reports: the newest version that it acted with, the first time of that (ns),
# the seconds of each part of its steps, and the number of steps.
VERSION, MOMENT, FIRST_PART = 0, 1, 2
PARTS = ("act", "pull", "deserialise", "load", "environment")
# An actor beside others waits for its turn, so its processor time is the cost.
CLOCKS = {"wall": time.perf_counter, "processor": time.thread_time}


class Policy(Protocol):
    def take(self, block: Array) -> tuple[float, float]: ...

    def act(self, observation: Array) -> Array: ...


class QgraphPolicy:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.actor: Actor | None = None
        self.clock = clock

    def take(self, block: Array) -> tuple[float, float]:
        """Deserialize and load a block; return the seconds of each."""
        begin = self.clock()
        if self.actor is None:
            self.actor = Actor(block)
        else:
            self.actor.switch(block)
        return 0.0, self.clock() - begin

    def act(self, observation: Array) -> Array:
        assert self.actor is not None
        return self.actor(observation)


def act(member: Member, settings: dict[str, Any]) -> None:
    """Act, and load a newer block every `period` steps, until the run ends."""
    clock = CLOCKS[settings.get("clock", "wall")]
    policy, program = _policy(settings, clock), ActorProgram.from_json(settings["program"])
    blocks = Channel.attach(settings["blocks"], settings["reader"])
    environment = _environment(settings.get("environment"), program)
    observation, numbers = environment(None), np.zeros(len(PARTS) + 1)
    rest, step = settings.get("rest", 0.0), 0
    member.wait(lambda seconds: blocks.wait(0, seconds))
    while member.running():
        begin, loaded = clock(), (0.0, 0.0)
        if step % settings["period"] == 0:
            block = blocks.latest()
            loaded = loaded if block is None else policy.take(block)
        pulled = clock()
        action = policy.act(observation)
        acted = clock()
        if blocks.version != member.numbers[VERSION]:
            member.numbers[MOMENT] = time.monotonic_ns()
            member.numbers[VERSION] = blocks.version
        observation = environment(action)
        pull, end = pulled - begin - sum(loaded), clock()
        numbers += (acted - pulled, pull, *loaded, end - acted, 1)
        member.numbers[FIRST_PART:] = numbers
        step += 1
        if rest:
            time.sleep(rest)


def _policy(settings: dict[str, Any], clock: Callable[[], float]) -> Policy:
    if settings["kind"] == "ours":
        return QgraphPolicy(clock)
    from benchmarks.broadcast.torch_path import TorchPolicy

    return TorchPolicy(ActorProgram.from_json(settings["program"]), settings["bits"])


def _environment(name: str | None, program: ActorProgram) -> Callable[[Array | None], Array]:
    """A function from action to observation: an environment of gymnasium, or one that does
    nothing.
    """
    observations = np.random.default_rng(0).standard_normal((1, *program.shape), np.float32)
    if name is None:
        return lambda action: observations
    import gymnasium

    made = gymnasium.make(name)
    actions: Any = made.action_space

    def play(action: Array | None) -> Array:
        over = action is None
        if action is not None:
            observation, _, ended, cut, _ = made.step(int(action[0, : actions.n].argmax()))
            over = ended or cut
        if over:
            observation, _ = made.reset()
        observations[0, : len(observation)] = observation
        return observations

    return play


def main() -> None:
    with joined(dict[str, object]) as (member, settings):
        if settings["task"] == "actor":
            act(member, settings)
        else:
            from benchmarks.broadcast.torch_path import quantizer

            quantizer(member, settings)


if __name__ == "__main__":
    main()
