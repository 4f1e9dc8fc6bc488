"""Codes for the entries of a program that real samples rarely contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.ir.types import Codes
from qgraph.program.program import Program, Tensor

PATTERNS: Mapping[str, Callable[[Tensor], Codes]] = {
    "lowest": lambda t: np.full(t.shape, t.low, np.int64),
    "highest": lambda t: np.full(t.shape, t.high, np.int64),
    "alternating": lambda t: np.where(np.indices(t.shape).sum(0) % 2, t.low, t.high),
    "zero": lambda t: np.zeros(t.shape, np.int64),
}


def adversarial_entries(program: Program, seed: int = 0) -> dict[str, dict[str, Codes]]:
    """Codes of every entry, one sample, by label: ends of ranges, alternating ends, any code.

    `random extremes` draws from the lowest and the highest code, `random` from all codes.
    """
    rng = np.random.default_rng(seed)
    tensors = [program.tensors[entry.tensor] for entry in program.entries]
    found = {label: {t.name: pick(t) for t in tensors} for label, pick in PATTERNS.items()}
    found["random extremes"] = {
        t.name: rng.choice(np.array([t.low, t.high]), t.shape) for t in tensors
    }
    found["random"] = {t.name: rng.integers(t.low, t.high + 1, t.shape) for t in tensors}
    return found
