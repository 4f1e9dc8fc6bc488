"""The end of a chain for actors: a block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.rl.compress.chain_policy import ChainPolicy, Task
from qgraph.rl.compress.link import End


@dataclass(frozen=True)
class Pack(End):
    """Pack program and weights into the block that actors run (`qgraph.rl.actor`).

    Raises UnsupportedError for a program that no block holds, TrainingError for weights that are
    not finite.
    """

    name: ClassVar[str] = "pack"

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        return replace(policy, block=policy.pack())
