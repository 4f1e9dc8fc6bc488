"""Custom links and strategies, which are found by their names."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.rl.compress import Link
from qgraph.rl.monitor import Decision


@dataclass(frozen=True)
class FailsAbove(Link):
    """A link that accepts policies whose first bias is at most `limit` in magnitude."""

    limit: float = 0.0

    def __call__(self, policy, task):
        bias = next(v for v in policy.weights.values() if v.ndim == 1)
        if abs(bias[0]) > self.limit:
            raise UnsupportedError("does not fit")
        return policy


@dataclass(frozen=True)
class RefusesBits(Link):
    """A link that refuses policies with these bits."""

    bits: int = 16

    def __call__(self, policy, task):
        if policy.bits[0] == self.bits:
            raise UnsupportedError("has bits that do not fit")
        return policy


@dataclass(frozen=True)
class Writes(Link):
    """A link that overwrites its input with `value`, which is forbidden."""

    value: float = 0.0

    def __call__(self, policy, task):
        for weight in policy.weights.values():
            weight[...] = self.value
        return policy


@dataclass(frozen=True)
class Rebinds(Link):
    """A link that puts other weights, with `value`, into its input policy."""

    value: float = 0.0

    def __call__(self, policy, task):
        for name, weight in policy.weights.items():
            policy.weights[name] = np.full_like(weight, self.value)
        return policy


@dataclass(frozen=True)
class WritesSeen(Link):
    """A link that overwrites the observations with `value`, which is forbidden."""

    value: float = 0.0

    def __call__(self, policy, task):
        task.observations[...] = self.value
        return policy


@dataclass(frozen=True)
class Remembers(Link):
    """A link that stores `what` in its memory, under names that students may use too."""

    what: str = "mine"

    def __call__(self, policy, task):
        task.memory.update(dict.fromkeys(("student", "kept", "other"), self.what))
        return policy


@dataclass(frozen=True)
class Dies(Link):
    """A link that kills its process at the n-th call of all processes; `file` has a byte per
    call.
    """

    file: str
    calls: int = 5

    def __call__(self, policy, task):
        with Path(self.file).open("ab") as counted:
            counted.write(b".")
        if Path(self.file).stat().st_size == self.calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return policy


@dataclass(frozen=True)
class Steps:
    """A strategy that doubles the bits at each decision."""

    begin: int = 4

    def check(self, begun):
        """Accept any chain."""

    def decide(self, begun, looks):
        bits = min(self.begin * 2 ** len(looks), 32)
        return Decision(type(begun)().quantize(bits, bits, bits), reason=f"look {len(looks)}")
