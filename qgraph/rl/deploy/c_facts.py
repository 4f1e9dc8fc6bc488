"""Sizes and types that the files of a policy in C state."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from qgraph.rl.deploy.mask_source import words_of_masks
from qgraph.rl.head import Head


@dataclass(frozen=True)
class CPolicyFacts:
    """Sizes and types of a policy in C.

    name, net: names of the files, before their endings: of the policy and of its integer network.
    observed: type of the numbers of an observation, in C. outputs: number of outputs in front of
    the head. states: inputs of the network that keep their values. memory, arena, constants: bytes
    of `NAME_memory`, of its arena, and of weights and tables.
    """

    name: str
    net: str
    title: str
    shape: tuple[int, ...]
    observed: str
    head: Head | None
    outputs: int
    states: tuple[str, ...]
    memory: int
    arena: int
    constants: int

    @property
    def observation_size(self) -> int:
        return prod(self.shape)

    @property
    def discrete(self) -> bool:
        return self.head is not None and self.head.discrete

    @property
    def integers(self) -> bool:
        """Whether actions are integers."""
        return self.head is not None and self.head.integers

    @property
    def masks(self) -> bool:
        """Whether a mask of valid actions comes with each observation."""
        return self.head is not None and self.head.masks

    @property
    def action_size(self) -> int:
        """How many numbers an action has; 1 for a discrete one."""
        if self.head is None:
            return self.outputs
        return 1 if self.head.discrete else len(self.head.choices or self.head.low)

    @property
    def floats(self) -> bool:
        """Whether observations are floats, which may not be finite."""
        return self.observed == "float"

    def words(self) -> dict[str, str]:
        """Words of the templates."""
        sizes = " x ".join(map(str, self.shape))
        return {
            "name": self.name,
            "NAME": self.name.upper(),
            "net": self.net,
            "NET": self.net.upper(),
            "title": self.title,
            "observed": self.observed,
            "acted": "int32_t" if self.integers else "float",
            "observation": str(self.observation_size),
            "shape": sizes,
            "action": str(self.action_size),
            "outputs": str(self.outputs),
            "memory": str(self.memory),
            "arena": str(self.arena),
            "constants": str(self.constants),
            **words_of_masks(self.name, self.head, self.outputs),
        }
