"""Measurements of every network: exactness, and agreement with float."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml

from qgraph.backends.tf.agreement import Checker
from qgraph.compiler import quantize
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.profile import Profile, load_profile, parse_profile
from qgraph.quant.reconstruction import layer_codes
from qgraph.quantized import Quantized
from qgraph.stored.write import float_ops

METHODS = ("kl_j", "max", "percentile", "mse")
PER_CHANNEL = """
name: per-channel
description: graffitist-int8 with a power-of-two scale for each output channel of the weights
per_channel: true
"""


def statistics_weight(weight: float) -> AbstractContextManager[float]:
    """Let reconstruction of weights give batch-norm statistics this weight, relative to samples."""
    return patch.object(layer_codes, "STATISTICS_WEIGHT", weight)


@dataclass(frozen=True)
class Exactness:
    """Counts of compared elements in quantized tensors and integer outputs, and of those that
    differ.
    """

    tensors: int
    elements: int
    different: int

    def __str__(self) -> str:
        return f"{self.different} of {self.elements:,} in {self.tensors}"


def profiles() -> tuple[Profile, ...]:
    own = parse_profile(yaml.safe_load(PER_CHANNEL), "per-channel.yaml")
    return (load_profile("graffitist-int8"), load_profile("int32-bias"), own)


def timed(model: Graph, data: Any, profile: Profile, method: str) -> tuple[Quantized, float]:
    """A network quantized without a search, and the time in seconds."""
    start = time.perf_counter()
    result = quantize(model, data, profile=profile, effort="plain", method=method)
    return result, time.perf_counter() - start


def exactness(checker: Checker, batches: Iterable[Mapping[str, Array]]) -> Exactness:
    """Compare the emitted graph with the reference on every batch."""
    found = [checker.run(feeds) for feeds in batches]
    different = sum(d.count for agreement in found for d in agreement.differences)
    return Exactness(found[0].tensors, sum(a.elements for a in found), different)


def batches(name: str, images: Array, size: int) -> Iterable[dict[str, Array]]:
    for i in range(0, len(images), size):
        yield {name: images[i : i + size]}


def same_class(a: Array, b: Array) -> float:
    """The share of samples with the same class. Raises ValueError for different shapes."""
    _check_shapes(a, b)
    return float((a.argmax(-1) == b.argmax(-1)).mean())


def sqnr(wanted: Array, found: Array) -> float:
    """The signal-to-noise ratio in dB of `found` against `wanted`.

    Raises ValueError for different shapes.
    """
    _check_shapes(wanted, found)
    signal, noise = (
        float((np.asarray(v, np.float64) ** 2).sum()) for v in (wanted, found - wanted)
    )
    return float(10 * np.log10(signal / noise)) if noise else float("inf")


def _check_shapes(wanted: Array, found: Array) -> None:
    """NumPy would broadcast [n, 1, c] and [n, c, 1], and give a number without a meaning."""
    if wanted.shape != found.shape:
        raise ValueError(f"cannot compare shape {wanted.shape} with {found.shape}")


def kept_float(result: Quantized, shorten: Callable[[str], str] = str) -> str:
    """The ops that stay float, by kind, with the place of the first of each."""
    kinds: dict[str, list[str]] = {}
    for op in float_ops(result.graph):
        kinds.setdefault(op.op, []).append(shorten(op.name))
    shown = (
        f"{kind} (`{names[0]}`{f' and {len(names) - 1} more' if names[1:] else ''})"
        for kind, names in kinds.items()
    )
    return ", ".join(shown) or "nothing"
