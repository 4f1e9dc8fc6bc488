"""The broadcast of ActorQ in PyTorch: quantize dynamically, pickle, load a state dict.

It uses the same shared memory as qgraph, so that the comparison covers only PyTorch's own work.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from qgraph.ir.types import Array
from qgraph.records import from_json
from qgraph.rl.actor import ActorProgram
from qgraph.rl.broadcast import Channel, Member
from qgraph.rl.broadcast.quantizer import PACKED, SECONDS
from qgraph.rl.broadcast.weights import WeightChannels, WeightReceiver

SIZE = 8  # bytes before a pickled block, which hold its size


class TorchPolicy:
    """An actor with 32 or 8 bits."""

    def __init__(self, program: ActorProgram, bits: int) -> None:
        torch.set_num_threads(1)
        self.model = model_of(program)
        if bits == 8:
            self.model = quantized(self.model)

    def take(self, block: Array) -> tuple[float, float]:
        """Deserialize and load a block; return the seconds of each."""
        begin = time.perf_counter()
        size = int(block[:SIZE].view(np.int64)[0])
        found = pickle.loads(block[SIZE : SIZE + size].tobytes())
        middle = time.perf_counter()
        self.model.load_state_dict(found)
        return middle - begin, time.perf_counter() - middle

    def act(self, observation: Array) -> Array:
        with torch.no_grad():
            found: Array = self.model(torch.from_numpy(observation)).numpy()
        return found


def model_of(program: ActorProgram) -> Any:
    layers: list[Any] = []
    for step in program.steps:
        layers.append(torch.nn.Linear(*program.weight_shapes[step.weights[0]]))
        layers.append(torch.nn.Tanh() if step.activation == "tanh" else torch.nn.ReLU())
    return torch.nn.Sequential(*layers).eval()


def quantized(model: Any) -> Any:
    quantize: Any = torch.ao.quantization.quantize_dynamic
    return quantize(model, {torch.nn.Linear}, dtype=torch.qint8)


def pickled(program: ActorProgram, model: Any, weights: Mapping[str, Array], bits: int) -> bytes:
    """Quantize and pickle the weights."""
    state: dict[str, Any] = {}
    for i, step in enumerate(program.steps):
        kernel, bias = (torch.from_numpy(np.array(weights[name])) for name in step.weights)
        state |= {f"{2 * i}.weight": kernel.T, f"{2 * i}.bias": bias}
    model.load_state_dict(state)
    found = quantized(model) if bits == 8 else model
    return pickle.dumps(found.state_dict())


def quantizer(member: Member, settings: dict[str, Any]) -> None:
    """The process between learner and actors."""
    torch.set_num_threads(1)
    program = ActorProgram.from_json(settings["program"])
    channels = from_json(WeightChannels, settings["weights"])
    weights, model = WeightReceiver(program, channels, member), model_of(program)
    blocks = Channel.open(settings["blocks"]).writer()
    while weights.wait():
        found = weights.take()
        for name in found:
            weights.arrived(name)
        begin = time.perf_counter()
        content = pickled(program, model, found, settings["bits"])
        block = blocks.next_block()
        block[:SIZE].view(np.int64)[0] = len(content)
        block[SIZE : SIZE + len(content)] = np.frombuffer(content, np.uint8)
        blocks.publish(weights.version)
        member.numbers[PACKED] += 1
        member.numbers[SECONDS] += time.perf_counter() - begin
