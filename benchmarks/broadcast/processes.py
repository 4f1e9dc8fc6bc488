"""Quantizers and actors that are timed, each a process of a run.

The two by PyTorch do what ActorQ's do: dynamic quantization, a pickled state dict, `load_state_dict`.
They have the same shared memory as ours, so that only their own work is compared.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram
from qgraph.rl.broadcast import Channel, Member, joined
from qgraph.rl.broadcast.weights import WeightLayout

MODULE = "benchmarks.broadcast.processes"
VERSION, MOMENT = 0, 1  # what an actor shows: the newest version it acted by, when first (ns)
PARTS = ("act", "pull", "deserialise", "load", "environment")
FIRST_PART = 2  # of the member's numbers: seconds so far; the last has the steps
SIZE = 8  # bytes before a pickled block: how many there are


class Policy(Protocol):
    """`take` returns the seconds that it took to deserialise and to load a block."""

    def take(self, block: Array) -> tuple[float, float]: ...

    def act(self, observation: Array) -> Array: ...


class Ours:
    def __init__(self) -> None:
        self.actor: Actor | None = None

    def take(self, block: Array) -> tuple[float, float]:
        begin = time.perf_counter()
        if self.actor is None:
            self.actor = Actor(block)
        else:
            self.actor.switch(block)
        return 0.0, time.perf_counter() - begin

    def act(self, observation: Array) -> Array:
        assert self.actor is not None
        return self.actor(observation)


class Torch:
    """The actor of ActorQ: bits 32 or 8."""

    def __init__(self, program: ActorProgram, bits: int) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self.model = torch_model(program)
        if bits == 8:
            self.model = torch_quantized(self.model)

    def take(self, block: Array) -> tuple[float, float]:
        begin = time.perf_counter()
        size = int(block[:SIZE].view(np.int64)[0])
        found = pickle.loads(block[SIZE : SIZE + size].tobytes())
        middle = time.perf_counter()
        self.model.load_state_dict(found)
        return middle - begin, time.perf_counter() - middle

    def act(self, observation: Array) -> Array:
        with self._torch.no_grad():
            found: Array = self.model(self._torch.from_numpy(observation)).numpy()
        return found


def torch_model(program: ActorProgram) -> Any:
    import torch

    layers: list[Any] = []
    for step in program.steps:
        layers.append(torch.nn.Linear(*program.weight_shapes[step.weights[0]]))
        layers.append(torch.nn.Tanh() if step.activation == "tanh" else torch.nn.ReLU())
    return torch.nn.Sequential(*layers).eval()


def torch_quantized(model: Any) -> Any:
    import torch

    quantize = torch.ao.quantization.quantize_dynamic
    return quantize(model, {torch.nn.Linear}, dtype=torch.qint8)


def torch_pickled(program: ActorProgram, model: Any, weights: dict[str, Array], bits: int) -> bytes:
    """What ActorQ's quantizer makes of weights: a pickled state dict."""
    import torch

    state = {}
    for i, step in enumerate(program.steps):
        kernel, bias = (torch.from_numpy(weights[name].copy()) for name in step.weights)
        state |= {f"{2 * i}.weight": kernel.T, f"{2 * i}.bias": bias}
    model.load_state_dict(state)
    found = torch_quantized(model) if bits == 8 else model
    return pickle.dumps(found.state_dict())


def torch_quantizer(member: Member, settings: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(1)
    program = ActorProgram.from_json(settings["program"])
    layout, model = WeightLayout(program), torch_model(program)
    weights = Channel.attach(settings["weights"], 0)
    blocks = Channel.open(settings["blocks"]).writer()
    while member.wait(lambda seconds: weights.wait(weights.version + 1, seconds)):
        found = weights.latest()
        if found is None:
            continue
        begin = time.perf_counter()
        views = layout.views(found)
        content = torch_pickled(program, model, views, settings["bits"])
        room = blocks.room()
        room[:SIZE].view(np.int64)[0] = len(content)
        room[SIZE : SIZE + len(content)] = np.frombuffer(content, np.uint8)
        blocks.publish(weights.version)
        member.numbers[0] += 1
        member.numbers[1] += time.perf_counter() - begin


def actor(member: Member, settings: dict[str, Any]) -> None:
    """Act, and take a newer block every `period` steps, until the run ends."""
    program = ActorProgram.from_json(settings["program"])
    torch = settings["kind"] == "torch"
    policy: Policy = Torch(program, settings["bits"]) if torch else Ours()
    blocks = Channel.attach(settings["blocks"], settings["reader"])
    if not member.wait(lambda seconds: blocks.wait(0, seconds)):
        return
    environment = _environment(settings.get("environment"), program)
    observation, numbers = environment(None), np.zeros(len(PARTS) + 1)
    step, rest = 0, settings.get("rest", 0.0)
    while member.going():
        moment = time.perf_counter()
        loaded = (0.0, 0.0)
        if step % settings["period"] == 0:
            block = blocks.latest()
            loaded = (0.0, 0.0) if block is None else policy.take(block)
        pulled = time.perf_counter()
        action = policy.act(observation)
        acted = time.perf_counter()
        if blocks.version != member.numbers[VERSION]:
            member.numbers[MOMENT] = time.monotonic_ns()
            member.numbers[VERSION] = blocks.version
        observation = environment(action)
        step += 1
        spent = (
            acted - pulled,
            pulled - moment - sum(loaded),
            *loaded,
            time.perf_counter() - acted,
        )
        numbers += (*spent, 1)
        member.numbers[FIRST_PART:] = numbers
        if rest:
            time.sleep(rest)


def _environment(name: str | None, program: ActorProgram) -> Callable[[Array | None], Array]:
    """A call from action to observation: one of gymnasium's, or nothing at all."""
    if name is None:
        still = np.random.default_rng(0).standard_normal((1, *program.shape), np.float32)
        return lambda action: still
    import gymnasium

    made = gymnasium.make(name)
    room = np.zeros((1, *program.shape), np.float32)

    def play(action: Array | None) -> Array:
        if action is None:
            found, _ = made.reset(seed=0)
        else:
            chosen = int(action[0, : made.action_space.n].argmax())  # type: ignore[attr-defined]
            found, _, over, cut, _ = made.step(chosen)
            if over or cut:
                found, _ = made.reset()
        room[0, : len(found)] = found
        return room

    return play


def main() -> None:
    with joined() as (member, settings):
        {"actor": actor, "quantizer": torch_quantizer}[settings["task"]](member, settings)


if __name__ == "__main__":
    main()
