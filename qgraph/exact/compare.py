"""How far quantized tensors are from the float network's (SQNR)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
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
    signal = dict.fromkeys(pairs, 0.0)
    noise = dict.fromkeys(pairs, 0.0)
    chunks = chunk_inputs(quantized, data)
    for i in range(len(next(iter(chunks.values())))):
        feeds = {name: arrays[i] for name, arrays in chunks.items()}
        wanted = evaluate(floating, feeds, sorted(set(pairs.values())))
        found = evaluate(quantized, feeds, list(pairs))
        for name, value in pairs.items():
            exact = wanted[value].astype(np.float64)
            signal[name] += float((exact**2).sum())
            noise[name] += float(((found[name] - exact) ** 2).sum())
    return {name: decibel(signal[name], noise[name]) for name in pairs}


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
