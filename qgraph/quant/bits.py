"""Bits for tensors of weights under a budget: who gets how many, from what each saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qgraph.errors import UsageError

Bits = tuple[int, ...]


@dataclass(frozen=True)
class Budget:
    """What weights may take: bytes, or bits for each on average."""

    mean_bits: float | None = None
    weight_bytes: int | None = None

    def limit(self, sizes: Sequence[int]) -> float:
        """In bits, for tensors of so many weights."""
        if self.weight_bytes is not None:
            return 8.0 * self.weight_bytes
        return (self.mean_bits or 0.0) * sum(sizes)

    def __str__(self) -> str:
        if self.weight_bytes is not None:
            return f"{self.weight_bytes:,} bytes"
        return f"{self.mean_bits:g} bits on average"


def budget_of(mean_bits: float | None, weight_bytes: int | None) -> Budget | None:
    """The budget that was given, if any. Raises UsageError for two, or for one that is none."""
    if mean_bits is None and weight_bytes is None:
        return None
    if mean_bits is not None and weight_bytes is not None:
        raise UsageError("bits on average and bytes were given", hint="give one budget for weights")
    given = mean_bits if mean_bits is not None else weight_bytes
    if given is None or not 0 < given < float("inf"):
        raise UsageError(f"{given} is no budget for weights", hint="a number above 0")
    return Budget(mean_bits, weight_bytes)


def cost(bits: Sequence[int], sizes: Sequence[int]) -> int:
    return sum(b * size for b, size in zip(bits, sizes, strict=True))


def assign(noise: Sequence[Mapping[int, float]], sizes: Sequence[int], limit: float) -> Bits:
    """Bits for each unit within `limit`, where `noise[unit][bits]` is what it costs.

    Starts from the fewest bits, and takes what saves the most noise for its bits as long as it
    fits. A larger limit never gives fewer bits in all.
    """
    bits = [min(options) for options in noise]
    left = limit - cost(bits, sizes)
    offers = [
        (saved / (sizes[unit] * (to - start)), unit, start, to)
        for unit, options in enumerate(noise)
        for start, to, saved in _steps(options)
    ]
    for _, unit, start, to in sorted(offers, key=lambda offer: (-offer[0], *offer[1:])):
        price = sizes[unit] * (to - start)
        if bits[unit] == start and price <= left:
            bits[unit], left = to, left - price
    return tuple(bits)


Step = tuple[int, int, float]  # from bits, to bits, noise saved


def _steps(options: Mapping[int, float]) -> list[Step]:
    """All that save noise."""
    return [
        (start, to, options[start] - options[to])
        for start in options
        for to in options
        if start < to and options[start] > options[to]
    ]


def check_budgets(budgets: Sequence[Budget], sizes: Sequence[int], fewest: Sequence[int]) -> None:
    """Raise UsageError for a budget that even the fewest bits exceed."""
    if not sizes:
        raise UsageError(
            "there are no layers with weights to give bits to", hint="leave out the budget"
        )
    least = cost(fewest, sizes)
    for budget in budgets:
        if not budget.limit(sizes) >= least:
            raise UsageError(
                f"{budget}: less than the weights of this network need",
                hint=f"the least is {-(-least // 8):,} bytes, "
                f"{least / sum(sizes):.3g} bits on average",
            )
