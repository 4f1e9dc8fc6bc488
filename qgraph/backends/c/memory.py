"""Positions of tensors in the arena: tensors that exist at the same time never overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALIGNMENT = 8
# A tensor by name, or scratch memory by the number of its layer and its name.
Place = str | tuple[int, str]


@dataclass(frozen=True)
class Lifetime:
    """Bytes that are needed from layer `first` to layer `last`, inclusive."""

    size: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan(lives: Mapping[Place, Lifetime]) -> tuple[dict[Place, int], int]:
    """Assign an offset to each; returns the offsets and the size of the arena.

    The largest are placed first, each at the lowest free offset.
    """
    offsets: dict[Place, int] = {}
    for name in sorted(lives, key=lambda n: (-lives[n].size, lives[n].first, str(n))):
        life, offset = lives[name], 0
        others = sorted(
            (offsets[n], offsets[n] + _rounded(lives[n].size))
            for n in offsets
            if lives[n].overlaps(life)
        )
        for begin, end in others:
            if offset + life.size <= begin:
                break
            offset = max(offset, end)
        offsets[name] = offset
    return offsets, max((offsets[n] + _rounded(lives[n].size) for n in lives), default=0)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
