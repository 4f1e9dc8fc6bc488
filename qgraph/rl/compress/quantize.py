"""Quantization: fewer bits of weights, applied by the packer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.errors import UsageError
from qgraph.rl.actor.layout import BITS
from qgraph.rl.compress.chain_policy import ChainPolicy, Task
from qgraph.rl.compress.link import Link


@dataclass(frozen=True)
class Quantize(Link):
    """Kernels of 32 (float32), 16 (float16) or 8 to 2 bits; first and last: of those layers.

    Without first and last, these layers have the bits that `actor_bits` gives them
    (`qgraph.rl.actor.end_bits`). Biases are not corrected, as policies in training change too
    often: `qgraph rl quantize` corrects those of the last layers.
    With 8 bits and fewer, what goes into layers has 8 bits and a range in each step, so that no
    observations are needed (`qgraph.rl.actor.Packer`). Raises UsageError for other bits.
    """

    name: ClassVar[str] = "quantize"

    bits: int = 8
    first: int | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        for given in (self.bits, self.first, self.last):
            if given not in (None, *BITS):
                raise UsageError(f"weights have 32, 16 or 8 to 2 bits, not {given}")

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        return replace(policy, bits=(self.bits, self.first, self.last))

    def with_bits(self, bits: int) -> Quantize:
        """The link with other bits; first and last layers keep their own if these are more."""
        own = (self.first, self.last)
        first, last = (None if one is None else max(one, bits) for one in own)
        return Quantize(bits, first, last)
