"""Format numbers and words for messages."""

from __future__ import annotations

from collections.abc import Iterable


def noise_share(decibel: float) -> float:
    """Noise as a share of the signal, both as root mean squares."""
    return float(10 ** (-decibel / 20))


def counted(count: int, noun: str) -> str:
    """`1 sample`, `2,000 samples`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(share: float) -> str:
    """A share as `0.3 %`. A positive share is never shown as zero."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    return f"{share * 100:.{2 if share < 0.1 else 3}g} %"


def alternatives(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *some, last = words
    return f"{', '.join(some)} or {last}" if some else last
