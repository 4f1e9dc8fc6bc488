"""Choose the bits of weight tensors under a budget, by the noise that each bit width causes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError

# Number of steps between the fewest bits everywhere and the most bits everywhere.
GRID = 1 << 16

Bits = tuple[int, ...]


@dataclass(frozen=True)
class Budget:
    """Limit on the size of all weights: bytes in total, or mean bits per weight."""

    mean_bits: float | None = None
    weight_bytes: int | None = None

    def limit(self, sizes: Sequence[int]) -> float:
        """The limit in bits, for tensors with these numbers of weights."""
        if self.weight_bytes is not None:
            return 8.0 * self.weight_bytes
        return (self.mean_bits or 0.0) * sum(sizes)

    def __str__(self) -> str:
        if self.weight_bytes is not None:
            return f"{self.weight_bytes:,} bytes"
        return f"{self.mean_bits:g} bits on average"


def budget_of(mean_bits: float | None, weight_bytes: int | None) -> Budget | None:
    """The budget that was given, if any. Raises UsageError for two budgets or an invalid one."""
    if mean_bits is None and weight_bytes is None:
        return None
    if mean_bits is not None and weight_bytes is not None:
        raise UsageError("two weight budgets: mean bits and bytes", hint="give one of them")
    given = mean_bits if mean_bits is not None else weight_bytes
    if given is None or not 0 < given < float("inf"):
        raise UsageError(f"{given} is not a valid weight budget", hint="a number above 0")
    return Budget(mean_bits, weight_bytes)


def cost(bits: Sequence[int], sizes: Sequence[int]) -> int:
    return sum(b * size for b, size in zip(bits, sizes, strict=True))


def assign(noise: Sequence[Mapping[int, float]], sizes: Sequence[int], limit: float) -> Bits:
    """Choose bits for each unit so that the total size is at most `limit` and the noise is least.

    `noise[unit][bits]` is the noise of a unit. Dynamic programming over the size beyond the fewest
    bits, in GRID steps: exact for small sizes; otherwise each unit counts up to one step more than
    its size. Ties in noise go to the fewest bits. A larger limit never gives more noise.
    """
    fewest = [min(options) for options in noise]
    most = cost([max(options) for options in noise], sizes)
    step = max((most - cost(fewest, sizes)) / GRID, 1.0)
    units = int(min(limit - cost(fewest, sizes), GRID * step) // step)
    least, choices = np.zeros(units + 1), []
    for options, size, start in zip(noise, sizes, fewest, strict=True):
        best, chosen = least + options[start], np.full(units + 1, start, np.int8)
        for bits in sorted(options)[1:]:
            price = math.ceil(size * (bits - start) / step)
            if price <= units:
                found = least[: units + 1 - price] + options[bits]
                better = found < best[price:]
                best[price:][better] = found[better]
                chosen[price:][better] = bits
        least = best
        choices.append(chosen)
    taken = []
    for chosen, size, start in zip(choices[::-1], sizes[::-1], fewest[::-1], strict=True):
        bits = int(chosen[units])
        units -= math.ceil(size * (bits - start) / step)
        taken.append(bits)
    return tuple(taken[::-1])


def check_budgets(budgets: Sequence[Budget], sizes: Sequence[int], fewest: Sequence[int]) -> None:
    """Raise UsageError for a budget that even the fewest bits exceed."""
    if not sizes:
        raise UsageError("the network has no layers with weights", hint="leave out the budget")
    least = cost(fewest, sizes)
    for budget in budgets:
        if not budget.limit(sizes) >= least:
            raise UsageError(
                f"{budget}: too small for the weights of this network",
                hint=f"the smallest budget is {-(-least // 8):,} bytes, "
                f"{least / sum(sizes):.3g} bits on average",
            )
