"""How far quantized tensors are from the float network's (SQNR)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.data import chunk_inputs
from qgraph.quant.topology import QUANTIZERS


def sqnr(quantized: Graph, floating: Graph, data: Mapping[str, Array]) -> dict[str, float]:
    """Signal to quantization noise in dB for every quantizer, over the samples of `data`.

    The signal is the float network's tensor, the noise what the quantized network has in its
    place, all errors before it included. Infinite where there is no noise.
    """
    pairs = {
        n.name: original(quantized, n.name) for n in quantized.topological() if n.op in QUANTIZERS
    }
    pairs = {name: value for name, value in pairs.items() if value in floating.types}
    chunks = chunk_inputs(quantized, data)
    count = len(next(iter(chunks.values())))

    def powers(i: int) -> dict[str, tuple[float, float]]:
        feeds = {name: arrays[i] for name, arrays in chunks.items()}
        wanted = evaluate(floating, feeds, sorted(set(pairs.values())))
        found = evaluate(quantized, feeds, list(pairs))
        return {name: _powers(wanted[value], found[name]) for name, value in pairs.items()}

    with over_chunks(count) as each:
        parts = [*each(powers, range(count))]
    totals = {name: np.sum([part[name] for part in parts], axis=0) for name in pairs}
    return {name: decibel(*totals[name]) for name in pairs}


def _powers(wanted: Array, found: Array) -> tuple[float, float]:
    exact = wanted.astype(np.float64)
    return float((exact**2).sum()), float(((found - exact) ** 2).sum())


def original(quantized: Graph, name: str) -> str:
    """The value of the float graph that a quantizer stands for."""
    node = quantized.nodes[name]
    while node.op == "quantize":
        node = quantized.producer(node.inputs[0])
    return node.name


def decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(signal / noise)) if signal > 0 else float("-inf")
