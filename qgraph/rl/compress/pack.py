"""The end of a chain for actors: a block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qgraph.rl.compress.form import End, Policy, Task


@dataclass(frozen=True)
class Pack(End):
    """Pack program and weights into the block that actors run (`qgraph.rl.actor`).

    Raises UnsupportedError for a program that no block holds, TrainingError for weights that are
    not finite.
    """

    def __call__(self, policy: Policy, task: Task) -> Policy:
        return replace(policy, block=policy.pack())
