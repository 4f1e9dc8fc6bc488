"""Find which axes a reshape splits, joins or keeps."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.ir.types import Shape


@dataclass(frozen=True)
class Group:
    """Axes before and after a reshape that contain the same elements."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def groups_of(before: Shape, after: Shape) -> tuple[Group, ...] | None:
    """The smallest groups, in order; None where they cannot be determined.

    At most one dimension may be unknown on either side, and the two must correspond.
    """
    if before.count(None) != after.count(None) or before.count(None) > 1 or 0 in before:
        return None
    if _product(before) != _product(after):
        return None
    made: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        taken = _group(before, after, i, j)
        if taken is None:
            return None
        made.append(Group(tuple(range(i, taken[0])), tuple(range(j, taken[1]))))
        i, j = taken
    return tuple(made)


def _product(shape: Shape) -> int:
    total = 1
    for d in shape:
        total *= 1 if d is None else d
    return total


def _group(before: Shape, after: Shape, i: int, j: int) -> tuple[int, int] | None:
    """End of the group that begins at `i` and `j`."""
    if i < len(before) and j < len(after) and before[i] == after[j]:
        return i + 1, j + 1
    left = right = 1
    first = True
    while first or left != right:
        first = False
        if j == len(after) or (left <= right and i < len(before)):
            if i == len(before) or before[i] is None:
                return None
            left *= before[i] or 1
            i += 1
        else:
            if after[j] is None:
                return None
            right *= after[j] or 1
            j += 1
    return i, j
