"""A network of PyTorch modules as an actor program, whose weights can be read at any time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from qgraph.errors import UnsupportedError, UsageError
from qgraph.foreign import TorchModule
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.policy import floats
from qgraph.rl.pytorch.modules import ModuleReader, Read

IMAGE = 3  # axes of an image [c, h, w]
SAMPLES = 16  # random observations that a program is checked on
NEAR = 1e-3  # of the largest output: rounding of float32 in another order


@dataclass(frozen=True)
class TorchNetwork:
    """Modules of PyTorch as an actor program. Weights are read from the modules at any time.

    Attributes:
        program: The program.
        parameters: A function for each weight, which reads it from the modules.
        images: Whether the modules take images [c, h, w]; the program takes [h, w, c].
        shape: The shape of one observation, as the modules take it.

    Examples:
        >>> from torch import nn
        >>> from qgraph.rl.pytorch import read_network
        >>> network = read_network(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
        >>> network.shape, [step.op for step in network.program.steps]
        ((4,), ['dense', 'dense'])
    """

    program: ActorProgram
    parameters: Mapping[str, Read]
    images: bool
    shape: tuple[int, ...]

    @property
    def weights(self) -> dict[str, Array]:
        """The current weights of the modules, float32, by name."""
        return {
            name: np.ascontiguousarray(read(), np.float32) for name, read in self.parameters.items()
        }


def read_network(
    *modules: TorchModule, shape: Sequence[int] | None = None, divisor: float = 1.0
) -> TorchNetwork:
    """Read modules, which run one after the other, as an actor program.

    Outputs are compared with those of the modules on random observations, so hooks and overridden
    methods are found.

    Args:
        modules: The modules: layers, activations, norms, and sequences of them.
        shape: Shape of one observation, [c, h, w] for images. None takes the inputs of the first
            linear layer.
        divisor: Observations are divided by this number first, such as 255 for images.

    Returns:
        The program, whose weights are read from the modules at any time.

    Raises:
        UsageError: The shape is needed.
        UnsupportedError: Actors do not support a module, or it computes something else than its
            class does. The error names the module.

    Examples:
        >>> from torch import nn
        >>> from qgraph.rl.pytorch import read_network
        >>> sorted(read_network(nn.Sequential(nn.Linear(4, 2))).weights)
        ['0.0/bias', '0.0/kernel']
    """
    given = tuple(shape) if shape is not None else (_inputs_of(modules),)
    images = len(given) == IMAGE
    reader = ModuleReader(given, images)
    if divisor != 1:
        scale = np.full(reader.shape[-1], 1 / divisor, np.float32)
        reader.add("affine", "scaled", scale=lambda: scale, offset=lambda: np.zeros_like(scale))
    for index, module in enumerate(modules):
        reader.module(module, str(index))
    if not any(step.definition.layer for step in reader.steps):
        raise UnsupportedError("the network has no layer with weights")
    network = TorchNetwork(reader.program(), reader.parameters, images, given)
    _check(network, modules, divisor)
    return network


def _inputs_of(modules: Sequence[TorchModule]) -> int:
    """The inputs of the first layer, if it is linear."""
    parts = (part for module in modules for part in module.modules())
    first = next((p for p in parts if next(p.parameters(recurse=False), None) is not None), None)
    if isinstance(first, nn.Linear):
        return int(first.in_features)
    raise UsageError(
        "the shape of an observation is needed", hint="give `shape`, [c, h, w] for images"
    )


def _check(network: TorchNetwork, modules: Sequence[TorchModule], divisor: float) -> None:
    """Raise UnsupportedError unless the program computes what the modules do."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(SAMPLES, *network.shape)) * divisor).astype(np.float32)
    with torch.no_grad(), acting(modules):
        y = torch.from_numpy(x / np.float32(divisor)).to(_device(modules))
        for module in modules:
            y = module(y)
    wanted = y.cpu().numpy()
    seen = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if network.images else x
    program = network.program
    found = floats.run(program, network.weights, seen)[program.outputs[0]]
    near = NEAR * float(np.abs(wanted).max()) + 1e-6
    if found.shape != wanted.shape or not (np.abs(found - wanted) <= near).all():
        raise UnsupportedError(
            "the modules do not compute what their classes do: something else changes the outputs",
            hint="a hook, or a method that is overridden",
        )


@contextmanager
def acting(modules: Sequence[TorchModule]) -> Iterator[None]:
    """Modules as they act, without dropout. Each part is then as it was."""
    parts = [part for module in modules for part in module.modules()]
    before = [part.training for part in parts]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part, training in zip(parts, before, strict=True):
            part.training = training


def _device(modules: Sequence[TorchModule]) -> torch.device:
    for module in modules:
        for parameter in module.parameters():
            return parameter.device
    return torch.device("cpu")
