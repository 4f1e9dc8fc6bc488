"""A module that acts by a packed block, which libraries transport as one of its buffers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from qgraph.errors import LoadError, UsageError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, Packer, end_bits
from qgraph.rl.actor.records import HEADER
from qgraph.rl.pytorch.network import TorchNetwork, read_network

WAIT = 1.0  # seconds until a block that is not whole is an error: copies take milliseconds


class QuantizedNetwork(nn.Module):  # type: ignore[misc]  # torch is not type-checked
    """Modules of PyTorch that act with quantized weights, in one call for many observations.

    Its only buffer is the block, so whatever carries the state of modules, such as `state_dict` or
    a library's collectors, carries weights of few bits. A block that has changed is checked before
    its first use. While it is damaged, such as while it is being written, the network acts by the
    block before it; after a second that is an error.

    The network has no gradients. A copy, also one in another process, acts, but has no modules to
    update from.

    Args:
        modules: The modules, which run one after the other; they are not changed.
        shape: Shape of one observation, as in `read_network`.
        divisor: Observations are divided by this number first, as in `read_network`.
        bits: Bits of weights.
        first_bits: Bits of the first layers; None chooses them as `qgraph.rl.actor.end_bits` does.
        last_bits: Bits of the last layers; None chooses them too.
        level: CPU instructions to use, as in `qgraph.rl.actor.Actor`.

    Attributes:
        block: The block, uint8.
        shape: Shape of one observation.
        refused: Number of calls that acted by an earlier block, because the newest was damaged.

    Raises:
        UsageError: The shape is needed, or the bits are not supported.
        UnsupportedError: Actors do not support a module. The error names it.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from qgraph.rl.pytorch import QuantizedNetwork
        >>> network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        >>> acting = QuantizedNetwork(network, bits=8)
        >>> acting(torch.zeros(5, 4)).shape
        torch.Size([5, 2])
        >>> [*acting.state_dict()]
        ['block']
    """

    def __init__(
        self,
        *modules: TorchModule,
        shape: Sequence[int] | None = None,
        divisor: float = 1.0,
        bits: int = 8,
        first_bits: int | None = None,
        last_bits: int | None = None,
        level: str = "auto",
    ) -> None:
        super().__init__()
        network = read_network(*modules, shape=shape, divisor=divisor)
        ends = end_bits(network.program, bits, first_bits, last_bits)
        self._source: tuple[TorchNetwork, Packer] | None = (
            network,
            Packer(network.program, bits, *ends),
        )
        self.shape, self.images, self.level = network.shape, network.images, level
        self.version = self.refused = 0
        self._actor: Actor | None = None
        self._used = b""  # the header of the block in use
        self._refused_since: float | None = None
        self.register_buffer("block", torch.zeros(self._source[1].size, dtype=torch.uint8))
        self.update()

    def update(self) -> None:
        """Pack the current weights of the modules.

        Raises:
            UsageError: The network is a copy.
            TrainingError: A weight is not finite. The network keeps its block.
        """
        if self._source is None:
            raise UsageError(
                "a copy of a quantized network has no modules to update from",
                hint="update the first one, and copy its state: `copy.load_state_dict(...)`",
            )
        network, packer = self._source
        packed = packer.pack(network.weights, self.version + 1)
        self.version += 1
        with torch.no_grad():
            self.block.copy_(torch.from_numpy(packed))

    def forward(self, observations: TorchTensor) -> TorchTensor:
        """Compute the outputs.

        Args:
            observations: Tensor [..., *shape].

        Returns:
            The outputs, float32 [..., m], on the device of the observations.

        Raises:
            UsageError: The observations have another shape, or contain NaN or infinity.
            LoadError: The block is damaged, or of another network.
        """
        axes = len(self.shape)
        x = observations.detach().cpu().numpy()
        front = x.shape[: x.ndim - axes]
        if x.ndim < axes or x.shape[x.ndim - axes :] != self.shape:
            raise UsageError(f"observations are [..., {self._sizes()}], not {list(x.shape)}")
        rows = x.reshape(math.prod(front), *self.shape)
        if self.images:
            rows = np.moveaxis(rows, 1, -1)
        outputs = self._newest()(np.ascontiguousarray(rows, np.float32))
        whole = outputs.reshape(*front, *outputs.shape[1:])
        return torch.from_numpy(whole).to(observations.device)

    def _sizes(self) -> str:
        return ", ".join(map(str, self.shape))

    def _newest(self) -> Actor:
        """The actor with the newest block that is whole."""
        given: Array = self.block.cpu().numpy()
        header = given[: HEADER.itemsize].tobytes()
        if self._actor is not None and header == self._used:
            return self._actor
        held = given.copy()  # what is carried into the buffer later does not change it
        try:
            if self._actor is None:
                self._actor = Actor(held, self.level)
            else:
                self._actor.switch(held)
        except LoadError:
            now = time.monotonic()
            self._refused_since = self._refused_since or now
            if self._actor is None or now - self._refused_since > WAIT:
                raise
            self.refused += 1
            return self._actor
        self._refused_since = None
        self._used = held[: HEADER.itemsize].tobytes()
        return self._actor

    def __getstate__(self) -> dict[str, object]:
        """The state of a copy: neither the modules nor the actor."""
        return {**self.__dict__, "_source": None, "_actor": None, "_used": b""}
