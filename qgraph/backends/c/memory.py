"""Positions of tensors in the arena: tensors that exist at the same time never overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALIGNMENT = 8
Place = str | int  # a tensor by its name, the scratch row of a layer by its number


@dataclass(frozen=True)
class Life:
    """Bytes that are needed from layer `first` to layer `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan(lives: Mapping[Place, Life]) -> tuple[dict[Place, int], int]:
    """Assign an offset to each, and return the size of the arena too.

    The largest are placed first, each at the lowest offset where it fits.
    """
    offsets: dict[Place, int] = {}
    for name in sorted(lives, key=lambda n: (-lives[n].size, lives[n].first, str(n))):
        life, offset = lives[name], 0
        others = sorted(
            (offsets[n], offsets[n] + _rounded(lives[n].size))
            for n in offsets
            if lives[n].meets(life)
        )
        for begin, end in others:
            if offset + life.size <= begin:
                break
            offset = max(offset, end)
        offsets[name] = offset
    return offsets, max((offsets[n] + _rounded(lives[n].size) for n in lives), default=0)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
